"""The names and folders of the data sets of a suite."""

import argparse
from pathlib import Path

import pytest

from roberta_small.common.cli import OneOrMore
from roberta_small.common.errors import UserError
from roberta_small.common.run import Run
from roberta_small.common.suite import data_sets, has_runs, is_named, split_named


def test_data_sets_are_the_folders_with_runs(tmp_path):
    for name in ("films", "books"):
        run = Run.below(tmp_path / name, "fairseq,lr=1e-4", "random", 1)
        run.folder.mkdir(parents=True)
        (run.folder / "manifest.json").touch()
    (tmp_path / "report").mkdir()
    assert data_sets(tmp_path) == {"books": tmp_path / "books", "films": tmp_path / "films"}
    assert not has_runs(tmp_path)
    assert has_runs(tmp_path / "books")
    assert data_sets(tmp_path / "books") == data_sets(tmp_path / "missing") == {}


def test_what_is_a_named_data_set(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("a=b").mkdir()
    assert is_named("books=data/lr=1")
    assert is_named("b c=data")
    for path in ("a=b", "data/lr=1", "./a=c", "datasets:x=y", "data"):
        assert not is_named(path)


def test_names_and_paths_are_different():
    assert split_named("--data", ["b=y", "a=x=1"]) == {"b": "y", "a": "x=1"}
    for words in (["a=x", "a=y"], ["a=x", "b=./x"], ["a=x", "é=y"], ["a=x", "b="], ["..=x"]):
        with pytest.raises(UserError, match=r"--data"):
            split_named("--data", words)


def test_an_option_with_one_or_more_values():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", nargs="+", action=OneOrMore)
    assert parser.parse_args([]).data is None
    assert parser.parse_args(["--data", "a"]).data == "a"
    assert parser.parse_args(["--data", "a", "b"]).data == ["a", "b"]
    assert parser.parse_args(["--data", "a", "b", "--data", "c"]).data == "c"
