"""Names and folders of runs, and the checkpoint of a folder."""

import argparse
import re
from pathlib import Path

import pytest

from roberta_small.common import manifest
from roberta_small.common.cli import OneOrMore
from roberta_small.common.errors import UserError
from roberta_small.common.run import (
    Run,
    data_sets,
    find_checkpoint,
    has_runs,
    is_named,
    rank,
    split_arm,
    split_named,
)

CONTENT = {
    **{"schema": 1, "status": "finished", "arm": "fairseq,lr=1e-4", "init": "small", "seed": 3},
    **{"recipe": "reference", "command": [], "data": {}},
}


def test_names_of_a_run():
    run = Run.below(Path("out"), "fairseq,lr=1e-4", "small", 3)
    assert run.folder == Path("out/fairseq,lr=1e-4/small/seed3")
    assert (run.method, run.setting) == split_arm(run.arm) == ("fairseq", "lr=1e-4")
    assert run.group == "fairseq,lr=1e-4/small"
    assert run.name == "fairseq,lr=1e-4/small/seed3"
    assert run.label == "lr=1e-4/small/seed3"
    assert Run.below(Path("out"), "bow", "tfidf", 0).label == "tfidf/seed0"


def test_run_is_read_from_its_manifest(tmp_path):
    assert Run.at(tmp_path) is None
    manifest.write(tmp_path, CONTENT | {"checkpoint": {"path": "a.pt", "sha256": "0"}})
    run = Run.at(tmp_path)
    assert run == Run(tmp_path, "fairseq,lr=1e-4", "small", 3, Path("a.pt"))
    assert run.read_manifest()["status"] == "finished"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([], None),
        (["model.pt"], "model.pt"),
        (["model.safetensors"], "model.safetensors"),
        (["checkpoint_best.pt"], "checkpoint_best.pt"),
        (["checkpoint_best.pt", "model.pt"], "model.pt"),
        (["checkpoint_best.pt", "model.safetensors"], "model.safetensors"),
    ],
)
def test_checkpoint_of_a_folder(tmp_path, files, expected):
    for name in files:
        (tmp_path / name).touch()
    assert find_checkpoint(tmp_path) == (tmp_path / expected if expected else None)


def test_two_model_files_are_an_error(tmp_path):
    for name in ("checkpoint_best.pt", "model.pt", "model.safetensors"):
        (tmp_path / name).touch()
    with pytest.raises(UserError, match=rf"{re.escape(str(tmp_path))}: .*model\.safetensors and model\.pt"):
        find_checkpoint(tmp_path)


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


LABELS = "a" * 64


def finished(
    root, arm, seed, valid, *, seconds=1.0, metric="accuracy", labels=LABELS, test=50.0, path="data"
):
    run = Run.below(root, arm, "random", seed)
    run.folder.mkdir(parents=True)
    scores = {"valid": valid} if test is None else {"test": test, "valid": valid}
    best = {"metric": metric, "epoch": 1, "subset": "valid", "scores": scores, "labels": labels}
    content = {"arm": arm, "init": "random", "seed": seed, "data": {"path": path}, "seconds": seconds}
    manifest.write(run.folder, CONTENT | content | {"best": best})
    return run


def test_the_mean_over_seeds_decides_and_then_the_best_seed(tmp_path):
    lucky = [finished(tmp_path, "a", seed, valid) for seed, valid in ((1, 90.0), (2, 70.0))]
    steady = [finished(tmp_path, "b", seed, valid, test=60.0) for seed, valid in ((1, 81.0), (2, 83.0))]
    first, second = rank([*lucky, *steady])
    assert (first.runs, second.runs) == ((steady[1], steady[0]), tuple(lucky))
    assert (first.valid, first.scores) == (82.0, {"valid": 82.0, "test": 60.0})
    assert list(first.scores) == ["valid", "test"]


def test_on_a_tie_the_faster_method_and_the_smaller_seed(tmp_path):
    slow = finished(tmp_path, "a", 1, 80.0, seconds=9.0)
    fast = [finished(tmp_path, "b", seed, 80.0, seconds=2.0) for seed in (3, 2)]
    assert [group.runs for group in rank([slow, *fast])] == [(fast[1], fast[0]), (slow,)]


def test_a_loss_is_better_if_it_is_lower(tmp_path):
    runs = [finished(tmp_path, "a", seed, value, metric="loss") for seed, value in ((1, 0.7), (2, 0.3))]
    assert rank(runs)[0].runs == (runs[1], runs[0])


def test_a_subset_that_a_seed_lacks_is_left_out(tmp_path):
    runs = [finished(tmp_path, "a", seed, 80.0, test=test) for seed, test in ((1, 50.0), (2, None))]
    assert rank(runs)[0].scores == {"valid": 80.0}


@pytest.mark.parametrize(
    ("changes", "fact"),
    [
        ({"metric": "macro_f1"}, "metric"),
        ({"labels": "b" * 64}, "validation set"),
        ({"labels": None, "path": "other"}, "validation set"),
    ],
)
def test_runs_that_cannot_be_compared(tmp_path, changes, fact):
    runs = [finished(tmp_path, "a", 1, 80.0), finished(tmp_path, "b", 1, 80.0, **changes)]
    with pytest.raises(UserError, match=fact):
        rank(runs)


def test_a_run_of_an_earlier_version_cannot_be_compared(tmp_path):
    run = finished(tmp_path, "a", 1, 80.0)
    content = manifest.read(run.folder)
    del content["best"]
    manifest.write(run.folder, content)
    with pytest.raises(UserError, match="no best"):
        rank([run])
