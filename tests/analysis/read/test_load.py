"""The long table: epochs, resumed runs, NaN, and runs without scalars."""

import re

import pytest

from roberta_small.analysis.read.long_table import COLUMNS, ORDER, load_runs, values_of
from roberta_small.analysis.read.runs import find_runs
from roberta_small.common.errors import UserError
from tests.support.analysis.run_trees import write_events, write_manifest, write_run


def test_columns_types_and_order(runs):
    table = load_runs(runs)
    assert list(table) == COLUMNS
    assert len(table) == 6 * 2 * 3
    assert table[["seed", "epoch", "step"]].dtypes.eq("int64").all()
    assert table["value"].dtype == "float64"
    assert table.equals(table.sort_values(ORDER, ignore_index=True))


def test_epoch_is_the_rank_among_the_validations(tmp_path):
    run = write_run(tmp_path, "random", 1, [50.0, 60.0], [50.0, 60.0])  # validations at 225 and 450
    inner = [(step, "loss", 1.0) for step in (100, 225, 226, 450, 451)]
    write_events(run / "tensorboard" / "train_inner", inner)
    write_events(run / "tensorboard" / "train", [(225, "loss", 0.7), (450, "loss", 0.6)])
    table = load_runs(tmp_path)
    epochs = {subset: rows["epoch"].tolist() for subset, rows in table.groupby("subset")}
    assert epochs == {"test": [1, 2], "train": [1, 2], "train_inner": [1, 1, 2, 2, 3], "valid": [1, 2]}


def test_a_resumed_run_keeps_the_later_value(tmp_path, caplog):
    """The later event file is the one with the later wall time, whatever its name."""
    run = write_run(tmp_path, "random", 1, [50.0], [51.0])
    rows = [(225, "accuracy", 55.0), (450, "accuracy", 60.0)]
    later = write_events(run / "tensorboard" / "valid", rows, wall_time=1_800_000_000.0, suffix=".resumed")
    later.rename(later.with_name("events.out.tfevents.0"))
    table = load_runs(tmp_path)
    assert values_of(table, "valid", "accuracy")["value"].tolist() == [55.0, 60.0]
    assert values_of(table, "valid", "accuracy")["step"].tolist() == [225, 450]
    (message,) = caplog.messages
    assert message.startswith("1 value ")
    assert "fairseq/random/seed1" in message


def test_a_finished_run_without_scalars_is_an_error(runs):
    write_manifest(runs / "fairseq" / "random" / "seed4", "fairseq", "random", 4)
    with pytest.raises(UserError, match=r"seed4: .*scalar"):
        load_runs(runs)


def test_an_unfinished_run_without_scalars_has_no_rows(runs):
    write_manifest(runs / "fairseq" / "random" / "seed4", "fairseq", "random", 4, status="failed")
    assert find_runs(runs)[-1].status == "failed"
    assert set(load_runs(runs, include_unfinished=True)["seed"]) == {1, 2, 3}


def test_no_scalar_in_any_run(tmp_path):
    run = tmp_path / "fairseq" / "random" / "seed1"
    write_manifest(run, "fairseq", "random", 1, status="running")
    write_events(run / "tensorboard" / "valid", [])
    with pytest.raises(UserError, match="--tensorboard-logdir"):
        load_runs(tmp_path, include_unfinished=True)


def test_an_unknown_subset_or_metric_is_an_error_that_lists_the_existing_ones(runs):
    table = load_runs(runs)
    with pytest.raises(UserError, match=r"'dev'.* test, valid.*--choose-on.*--pattern"):
        values_of(table, "dev", "accuracy")
    with pytest.raises(UserError, match=r"'mcc'.*'valid'.*--metric.* accuracy"):
        values_of(table, "valid", "mcc")


@pytest.mark.parametrize(
    ("logged", "suggested"),
    [
        (["accuracy", "loss", "wpb", "wps", "lr", "gnorm", "samples_per_second"], ["accuracy", "loss"]),
        (["wps"], ["wps"]),
    ],
)
def test_metrics_of_quality_are_suggested_if_there_are_any(tmp_path, logged, suggested):
    write_events(tmp_path / "random" / "seed1" / "valid", [(25, name, 2.0) for name in logged])
    with pytest.raises(UserError) as raised:
        values_of(load_runs(tmp_path), "valid", "absent")
    assert re.findall(r"\w+", str(raised.value).rpartition(":")[2]) == suggested
