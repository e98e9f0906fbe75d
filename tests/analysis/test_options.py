"""Options and names of features."""

import importlib
from dataclasses import fields

from roberta_small.analysis import features
from roberta_small.analysis.__main__ import build_parser, main, query_of
from roberta_small.analysis.features import FEATURES, TABLES
from roberta_small.analysis.query import Query
from roberta_small.analysis.study_file import FILE_KEYS, read_study


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
