"""The table of replaced fairseq functions."""

import ast
import re
import runpy
import subprocess
import sys
from pathlib import Path

import fairseq
import pytest

from roberta_small.common.errors import UsageError
from roberta_small.fairseq_plugin import compat
from tests.support import preloaded

PACKAGE = Path(compat.__file__).parent
FOREIGN = """
import functools
from fairseq.data import data_utils
original = data_utils.load_indexed_dataset
@functools.wraps(original)
def foreign(*args, **kwargs):
    return original(*args, **kwargs)
data_utils.load_indexed_dataset = foreign
import roberta_small.fairseq_plugin
from roberta_small.fairseq_plugin import compat
def count():
    return sum(compat.MARKER in vars(f) for f in compat.chain(data_utils.load_indexed_dataset))
assert count() == 1, count()
assert data_utils.load_indexed_dataset.__wrapped__ is foreign
compat.install()
assert count() == 1, count()
ours = data_utils.load_indexed_dataset
@functools.wraps(ours)
def outer(*args, **kwargs):
    return ours(*args, **kwargs)
data_utils.load_indexed_dataset = outer
compat.install()
assert data_utils.load_indexed_dataset is outer
"""


def current(patch):
    return compat.function_of(compat.stored(*compat.locate(patch.target)))


@pytest.mark.parametrize("patch", compat.PATCHES, ids=lambda patch: patch.key)
def test_every_replacement_is_installed_once(patch):
    before = current(patch)
    assert compat.is_installed(patch, before)
    compat.install()
    assert current(patch) is before
    assert patch.reason
    assert fairseq.__version__ == compat.VERSION


def test_a_function_wrapped_by_another_plugin_before_or_after_is_replaced_once():
    result = subprocess.run([preloaded.python(), "-c", FOREIGN], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_the_command_prints_the_table_and_nothing_else():
    command = [preloaded.python(), "-m", "roberta_small.fairseq_plugin.compat"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stderr == ""
    assert all(patch.target in result.stdout for patch in compat.PATCHES)
    assert "| no " not in result.stdout


@pytest.mark.parametrize(("word", "error"), [("--help", SystemExit), ("typo", UsageError)])
def test_the_command_has_no_arguments(monkeypatch, capsys, word, error):
    monkeypatch.setattr(sys, "argv", ["compat", word])
    with pytest.raises(error):
        runpy.run_path(compat.__file__, run_name="__main__")
    assert "| " not in capsys.readouterr().out


def assigned(tree):
    """The targets of assignments that modify an object imported from fairseq."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = getattr(node, "module", None) or node.names[0].name
            if module.split(".")[0] == "fairseq":
                names |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
    for node in ast.walk(tree):
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("setattr", "delattr"):
            targets = [ast.Attribute(node.args[0], "attribute")]
        for target in targets:
            changed = ast.unparse(target) if isinstance(target, ast.Attribute | ast.Subscript) else ""
            if re.match(r"\w*", changed)[0] in names:
                yield changed


def test_no_other_module_assigns_to_a_name_of_fairseq():
    for path in PACKAGE.rglob("*.py"):
        if path.name != "compat.py":
            assert list(assigned(ast.parse(path.read_text()))) == [], path
