"""RS_PLUGINS: modules of the user, in every command and in fairseq's own processes."""

import os
import subprocess
import sys

import pytest

from roberta_small.common import extensions
from roberta_small.common.errors import UserError

METRIC = """
from roberta_small.common.metrics import Metric, register

register(
    Metric(
        "constant_metric", higher_is_better=True, unit="", digits=1, description="one",
        from_confusion=lambda matrix: matrix.sum(axis=(-2, -1)) * 0 + 1.0,
    )
)
"""


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    (tmp_path / "my_metric.py").write_text(METRIC)
    monkeypatch.setenv("RS_PLUGINS", str(tmp_path / "my_metric.py"))
    return tmp_path


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ)


@pytest.mark.parametrize(
    "loaded_by",
    ["import roberta_small.fairseq_plugin", "from roberta_small.common.cli import Parser; Parser()"],
)
def test_commands_and_fairseqs_processes_have_the_registered_metric(plugin, loaded_by):
    names = "from roberta_small.common.metrics import logged\nprint([metric.name for metric in logged()])"
    done = run(f"{loaded_by}\n{names}")
    assert "'constant_metric'" in done.stdout, done.stderr


def test_a_package_is_named_like_an_import(tmp_path, monkeypatch):
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("")
    (tmp_path / "pkg" / "mine.py").write_text("loaded = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("RS_PLUGINS", " pkg.mine, ")
    extensions.load()
    assert sys.modules.pop("pkg.mine").loaded


def test_without_the_variable_nothing_is_imported(monkeypatch):
    monkeypatch.delenv("RS_PLUGINS", raising=False)
    before = set(sys.modules)
    extensions.load()
    assert set(sys.modules) == before


@pytest.mark.parametrize("name", ["missing.py", "missing_module", "broken.py"])
def test_a_module_that_cannot_be_imported_is_named(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.py").write_text("1 / 0\n")
    monkeypatch.setenv("RS_PLUGINS", name)
    with pytest.raises(UserError, match=name):
        extensions.load()
    assert "broken" not in sys.modules
