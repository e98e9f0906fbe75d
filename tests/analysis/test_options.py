"""Options become values once: nothing assigns to them. Names of features."""

import ast
import importlib
from dataclasses import fields
from pathlib import Path

import pytest

from roberta_small.analysis import features
from roberta_small.analysis.__main__ import build_parser, main, query_of
from roberta_small.analysis.features import FEATURES, TABLES
from roberta_small.analysis.query import Query
from roberta_small.analysis.study_file import FILE_KEYS, read_study

ROOT = Path(__file__).parents[2]
PACKAGES = ("analysis", "benchmarks", "eval", "experiments", "export", "preprocess")
PARSED = {"options", "args", "namespace"}
"""The names of parsed options."""


def is_parsed(node):
    return isinstance(node, ast.Name) and node.id in PARSED


def assigned(path):
    """The lines of a file that assign to an attribute of parsed options."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        is_target = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del)
        is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setattr"
        if (is_target and is_parsed(node.value)) or (is_call and is_parsed(node.args[0])):
            yield node.lineno


@pytest.mark.parametrize("package", PACKAGES)
def test_nothing_assigns_to_parsed_options(package):
    folder = ROOT / package if package == "benchmarks" else ROOT / "roberta_small" / package
    found = {str(path.relative_to(ROOT)): list(assigned(path)) for path in folder.rglob("*.py")}
    assert found
    assert not {path: lines for path, lines in found.items() if lines}


def test_parsed_options_are_only_passed_to_what_turns_them_into_values():
    for path in (ROOT / "roberta_small/analysis").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and any(map(is_parsed, node.args)):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
                assert name in {"query_of", "vars", "command"}, (path, node.lineno)


def test_options_that_are_not_given_and_a_study_file_without_keys_are_the_default_query(tmp_path):
    (tmp_path / "study.toml").write_text("", encoding="utf-8")
    assert read_study(tmp_path / "study.toml") == Query(file=str(tmp_path / "study.toml"))
    for command in ("tables", "compare"):
        assert query_of(build_parser().parse_args([command, "runs"])) == Query()
    assert {key.replace("-", "_") for key in FILE_KEYS} <= {one.name for one in fields(Query)}


def test_every_feature_is_found_and_its_tables_have_one_name():
    names = [name for one in FEATURES.values() for name in one.tables]
    assert len(names) == len(set(names))
    others = {"overview", "plan", "reference"}  # of reports and `compare`
    assert {*names, *others} == set(TABLES)
    for path in (path for one in FEATURES.values() for path in (one.table, one.figure) if path):
        module, _, name = path.rpartition(".")
        assert callable(getattr(importlib.import_module(f"{features.__name__}.{module}"), name))


def test_the_tables_of_a_feature_can_be_named_alone(runs, capsys):
    words = ["tables", str(runs), "--table"]
    assert main([*words, "settings", "--format", "csv"]) == 0
    alone = capsys.readouterr().out
    assert alone.startswith("arm,init,family,setting,")
    assert main([*words, "examples"]) == 1  # without prediction files
    assert "--table examples" in capsys.readouterr().err
    assert main([*words, "setings"]) == 1
    assert "settings?" in capsys.readouterr().err
