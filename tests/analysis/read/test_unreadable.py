"""Folders and files that the user may not read: an error, because the statistics would lack their runs.

Modes do not concern root. As root, these tests read as the user 65534: they set the effective user of the
process for the time of the command.
"""

import logging
import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from roberta_small.analysis.read.runs import find_runs
from roberta_small.common.errors import UserError
from tests.support.analysis.printed_tables import failed
from tests.support.analysis.run_trees import write_run

NOBODY = 65534


@pytest.fixture
def runs():
    """Three seeds, in a folder that every user may read; `tmp_path` is in a folder of its owner."""
    root = Path(tempfile.mkdtemp(prefix="unreadable-"))
    root.chmod(0o755)
    for seed in (1, 2, 3):
        run = write_run(root / "runs", "random", seed, [50.0, 60.0], [51.0, 60.0 + seed])
        (run / "train.log").write_text("no statistics\n", encoding="utf-8")
    yield root / "runs"
    for path in root.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755)
    shutil.rmtree(root)


@contextmanager
def without_root():
    """The rights of a normal user."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)


@pytest.mark.parametrize(
    "inside",
    ["", "tensorboard", "tensorboard/test", "tensorboard/valid/events*", "manifest.json", "train.log"],
)
def test_an_unreadable_part_of_one_of_three_seeds_is_an_error(runs, inside, capsys):
    seed = runs / "fairseq" / "random" / "seed2"
    (path,) = seed.glob(inside) if inside else [seed]
    path.chmod(0)
    for command in ("runs", "tables"):
        with without_root():
            assert str(path) in failed(capsys, command, runs)


@pytest.mark.parametrize("mode", [0o444, 0o111])
def test_a_folder_that_may_only_be_listed_or_only_be_entered(runs, mode):
    seed = runs / "fairseq" / "random" / "seed2"
    seed.chmod(mode)
    with without_root(), pytest.raises(UserError, match=str(seed)):
        find_runs(runs)


def test_a_link_into_an_unreadable_folder(runs):
    disk = runs.parent / "disk"
    run = write_run(disk, "random", 4, [50.0, 60.0], [51.0, 61.0])
    (runs / "seed4").symlink_to(run)
    disk.chmod(0)
    with without_root(), pytest.raises(UserError, match="seed4"):
        find_runs(runs)


def test_unreadable_predictions(runs, capsys):
    path = runs / "fairseq" / "random" / "seed2" / "predictions-test.jsonl"
    path.write_text('{"index": 0, "gold": "a", "probabilities": {"a": 0.5, "b": 0.5}}\n', encoding="utf-8")
    path.chmod(0)
    with without_root():
        assert str(path) in failed(capsys, "tables", runs, "--table", "accuracy")


def test_links_without_a_target_are_named(runs, caplog):
    (runs / "seed4").symlink_to("absent")
    (runs / "knot").symlink_to("knot")
    assert len(find_runs(runs)) == 3
    (message,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert str(runs / "seed4") in message
    assert str(runs / "knot") in message


@pytest.mark.parametrize("name", ["manifest.json", "events.out.tfevents.1"])
def test_a_log_or_manifest_that_is_a_link_without_a_target_is_an_error(runs, name, capsys):
    path = runs / "fairseq" / "random" / "seed2" / name
    path.unlink(missing_ok=True)
    path.symlink_to("absent")
    assert str(path) in failed(capsys, "tables", runs)
