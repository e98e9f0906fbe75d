"""Epochs derived from validations: missing validations, runs without common steps."""

import numpy as np
import pytest

from roberta_small.analysis.read.long_table import load_runs, shared_grid
from roberta_small.analysis.scoring import per_epoch
from tests.support.analysis.run_trees import STEPS_PER_EPOCH, write_events, write_manifest


def grid(*runs):
    found = shared_grid([np.array(steps) for steps in runs])
    return None if found is None else found.tolist()


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        (([1, 2, 3], [1, 2, 3]), None),  # nothing to repair
        (([1, 2, 3], [1, 3]), [1, 2, 3]),  # the other run has all
        (([1, 2, 3], [3]), [1, 2, 3]),
        (([1, 2, 3, 5], [1, 3, 4, 5]), [1, 2, 3, 4, 5]),  # each lacks one
        (([1, 2], [1, 2, 3]), [1, 2, 3]),  # shorter, no gap
        (([2, 4], [3, 6]), None),  # other steps
        (([1, 2, 3], [1, 2, 3], [5, 6, 7]), None),
    ],
)
def test_shared_grid(runs, expected):
    assert grid(*runs) == expected


def validated(root, seed, valid, train=(), manifest=True):
    """A run that logged `train` and `valid` at these epochs, which may be fractions."""
    run = root / "fairseq" / "random" / f"seed{seed}"
    if manifest:
        write_manifest(run, "fairseq", "random", seed)
    for subset, epochs in (("train", train), ("valid", valid), ("test", valid)):
        if epochs:
            points = [(int(STEPS_PER_EPOCH * at), "accuracy", 60.0 + at) for at in epochs]
            write_events(run / "tensorboard" / subset, points)


def test_a_gap_does_not_shift_the_epochs_after_it(tmp_path, caplog):
    validated(tmp_path, 1, valid=[1, 2, 3])
    validated(tmp_path, 2, valid=[1, 3])
    means = per_epoch(load_runs(tmp_path))
    assert means["n"].tolist() == [2, 1, 2]
    assert means["mean"].tolist() == [61.0, 62.0, 63.0]
    assert "fairseq/random/seed2 at step 450" in caplog.text


def test_warning_for_runs_without_a_common_step(tmp_path, caplog):
    validated(tmp_path, 1, valid=[1, 2])
    run = tmp_path / "fairseq" / "random" / "seed2"
    write_manifest(run, "fairseq", "random", 2)
    for subset in ("valid", "test"):
        write_events(run / "tensorboard" / subset, [(step, "accuracy", 60.0) for step in (100, 200)])
    table = load_runs(tmp_path)
    assert table.groupby("seed")["epoch"].max().tolist() == [2, 2]
    assert "different steps" in caplog.text
    assert "fairseq/random" in caplog.text


def epochs_of(root, subset="test"):
    table = load_runs(root)
    return table.loc[table["subset"] == subset, "epoch"].tolist()


def test_epochs_without_validation_are_counted(tmp_path, caplog):
    validated(tmp_path, 1, train=[1, 2, 3, 4, 5], valid=[2, 4, 5])
    assert epochs_of(tmp_path) == [2, 4, 5]
    assert epochs_of(tmp_path, "train") == [1, 2, 3, 4, 5]
    assert not caplog.text


def test_validations_within_epochs_are_counted_instead(tmp_path):
    validated(tmp_path, 1, train=[1, 2, 3], valid=[0.5, 1, 1.5, 2])
    assert epochs_of(tmp_path) == [1, 2, 3, 4]


def test_other_trainers_log_train_within_epochs(tmp_path):
    validated(tmp_path, 1, train=[0.5, 1, 1.5, 2], valid=[1, 2], manifest=False)
    assert epochs_of(tmp_path) == [1, 2]
