"""Mean and standard deviation per epoch against numpy, with the requested ddof."""

import numpy as np
import pytest

from roberta_small.analysis.read.long_table import load_runs
from roberta_small.analysis.scoring import per_epoch
from roberta_small.common.errors import UserError
from tests.support.analysis.run_trees import write_events, write_run


@pytest.mark.parametrize("ddof", [0, 1])
def test_per_epoch_is_numpys(runs, ddof):
    stats = per_epoch(load_runs(runs), ddof=ddof).set_index(["init", "epoch"])
    by_epoch = {1: [50.5, 66.75, 51.0], 2: [65.5, 60.0, 60.0], 3: [64.0, 61.0, 68.25]}
    for epoch, tests in by_epoch.items():
        row = stats.loc[("random", epoch)]
        assert row["n"] == 3
        assert row["mean"] == pytest.approx(np.mean(tests))
        assert row["std"] == pytest.approx(np.std(tests, ddof=ddof))


def test_only_values_at_a_validation_count(tmp_path):
    """Seed 1 lost the log of its second validation: its later test values have no epoch."""
    run = write_run(tmp_path, "random", 1, [50.0], [51.0, 99.0, 99.0])
    write_run(tmp_path, "random", 2, [50.0, 60.0], [53.0, 61.0])
    write_events(run / "tensorboard" / "test", [(100, "accuracy", 10.0)], suffix=".extra")
    stats = per_epoch(load_runs(tmp_path))
    assert stats[["epoch", "n", "mean"]].to_numpy().tolist() == [[1, 2, 52.0], [2, 1, 61.0]]


def test_no_value_at_a_validation(tmp_path):
    run = write_run(tmp_path, "random", 1, [50.0], [])
    write_events(run / "tensorboard" / "test", [(100, "accuracy", 10.0)], suffix=".extra")
    with pytest.raises(UserError, match=r"'accuracy'.*'test'.*validation"):
        per_epoch(load_runs(tmp_path))
