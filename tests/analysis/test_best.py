"""Selection of the best checkpoint: ties, NaN, losses and missing test values."""

import pandas as pd
import pytest

from roberta_small.analysis.read.long_table import load_runs
from roberta_small.analysis.scoring import at_best, best_checkpoints
from roberta_small.common.metrics import lower_is_better
from tests.support.analysis.run_trees import write_events, write_run


def best_of(root, valid, test, **options):
    """The best checkpoint of one run with these values an epoch."""
    write_run(root, "random", 1, valid, test)
    (row,) = best_checkpoints(load_runs(root), **options).to_dict("records")
    return row


def test_hand_computed_tree(runs):
    best = best_checkpoints(load_runs(runs))
    assert best[["init", "seed", "valid", "test", "epoch", "step", "ties"]].to_numpy().tolist() == [
        ["pretrained", 1, 81.0, 79.25, 2, 450, 1],
        ["pretrained", 2, 80.0, 78.5, 3, 675, 2],
        ["pretrained", 3, 83.5, 80.0, 3, 675, 1],
        ["random", 1, 62.0, 65.5, 2, 450, 1],
        ["random", 2, 65.0, 66.75, 1, 225, 1],
        ["random", 3, 62.5, 68.25, 3, 675, 1],
    ]


@pytest.mark.parametrize(
    ("rule", "test", "step", "epoch"),
    [("latest", 62.0, 675, 3), ("earliest", 50.0, 225, 1), ("mean", 56.0, None, None)],
)
def test_tie_rules(tmp_path, rule, test, step, epoch):
    row = best_of(tmp_path, [60.0, 55.0, 60.0], [50.0, 99.0, 62.0], ties=rule)
    assert (row["test"], row["ties"], row["tied_steps"]) == (test, 2, "225 675")
    assert [None if pd.isna(row[name]) else row[name] for name in ("step", "epoch")] == [step, epoch]


def test_mean_without_a_tie_keeps_the_step(tmp_path):
    row = best_of(tmp_path, [60.0, 61.0], [50.0, 52.0], ties="mean")
    assert (row["test"], row["step"], row["epoch"]) == (52.0, 450, 2)


@pytest.mark.parametrize("rule", ["latest", "earliest", "mean"])
def test_nan_is_never_best(tmp_path, rule):
    nan = float("nan")
    assert best_of(tmp_path, [nan, 60.0, nan], [1.0, 2.0, 3.0], ties=rule)["step"] == 450


def test_a_run_of_nan_only_has_no_best(runs, caplog):
    nan = float("nan")
    write_run(runs, "random", 4, [nan, nan], [50.0, 50.0])
    row = best_checkpoints(load_runs(runs)).iloc[-1]
    assert (row["seed"], row["ties"]) == (4, 0)
    assert row[["valid", "test", "epoch", "step"]].isna().all()
    assert "accuracy on valid" in caplog.text
    assert "fairseq/random/seed4" in caplog.text


def test_warning_for_a_missing_test_value_at_the_best_step(tmp_path, caplog):
    row = best_of(tmp_path, [60.0, 61.0], [50.0])
    assert row["valid"] == 61.0
    assert pd.isna(row["test"])
    assert "accuracy on test" in caplog.text
    assert "fairseq/random/seed1" in caplog.text


def test_warning_for_a_run_without_the_metric(runs, caplog):
    write_run(runs, "scratch", 1, [6.5], [6.6], arm="pretrain", metric="loss")
    assert len(best_checkpoints(load_runs(runs))) == 6
    assert "accuracy on valid" in caplog.text
    assert "pretrain/scratch/seed1" in caplog.text


@pytest.fixture
def two_metrics(tmp_path):
    """One run whose loss and accuracy disagree on the best epoch; accuracy ties in epochs 1 and 2."""
    run = write_run(tmp_path, "random", 1, [60.0, 60.0, 55.0], [50.0, 52.0, 54.0])
    for subset, losses in (("valid", [0.7, 0.6, 0.5]), ("test", [0.8, 0.9, 1.0])):
        rows = [(225 * epoch, "loss", loss) for epoch, loss in enumerate(losses, start=1)]
        write_events(run / "tensorboard" / subset, rows, suffix=".loss")
    return load_runs(tmp_path)


@pytest.mark.parametrize(
    ("options", "step", "valid", "test"),
    [
        ({}, 450, 60.0, 52.0),
        ({"by": "loss"}, 675, 0.5, 54.0),
        ({"by": "loss", "direction": "highest"}, 225, 0.7, 50.0),
        ({"direction": "lowest"}, 675, 55.0, 54.0),
        ({"subset": "test"}, 675, 54.0, 54.0),
        ({"by": "loss", "subset": "test"}, 225, 0.8, 50.0),
    ],
)
def test_selection_by_another_metric_subset_or_direction(two_metrics, options, step, valid, test):
    (row,) = best_checkpoints(two_metrics, **options).to_dict("records")
    assert row["step"] == step
    assert (row["valid"], row["test"]) == (pytest.approx(valid), test)


@pytest.mark.parametrize(("ties", "loss"), [("latest", 0.9), ("earliest", 0.8), ("mean", 0.85)])
def test_any_metric_at_the_best_checkpoint(two_metrics, ties, loss):
    best = best_checkpoints(two_metrics, ties=ties)
    assert at_best(two_metrics, best, "loss", "test")["value"].tolist() == [pytest.approx(loss)]


@pytest.mark.parametrize(
    ("names", "lower"),
    [
        (["loss", "nll_loss", "ppl", "perplexity", "error", "ece", "best_loss"], True),
        (["accuracy", "macro_f1", "mcc", "lossless", "recall", "officer"], False),
    ],
)
def test_lower_is_better_for_losses(names, lower):
    for name in names:
        assert lower_is_better(name) == lower
        assert lower_is_better(name, "highest" if lower else "lowest") != lower
