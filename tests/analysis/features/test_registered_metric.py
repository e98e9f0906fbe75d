"""A metric registered from outside the package sets direction, unit and digits of the tables."""

import pytest

from roberta_small.analysis.features.runs import table1
from roberta_small.analysis.read.long_table import load_runs
from roberta_small.analysis.scoring import best_checkpoints
from roberta_small.common.metrics import METRICS, Metric, register
from roberta_small.common.tables import render
from tests.support.analysis.run_trees import write_run


@pytest.fixture
def toy():
    yield register(Metric("toy", higher_is_better=False, unit="%", digits=1, from_confusion=lambda m: m))
    METRICS.pop("toy")


def test_direction_unit_and_digits(toy, tmp_path):
    write_run(tmp_path, "random", 1, [50.0, 12.34, 40.0], [60.0, 23.45, 70.0], metric="toy")
    table = load_runs(tmp_path)
    assert best_checkpoints(table, "toy")["epoch"].tolist() == [2]
    shown = render([table1(table, "toy")])
    assert "toy (%)" in shown
    assert "| 23.4" in shown or "| 23.5" in shown
    assert "23.45" not in shown
