"""The run tree of most tests."""

import pytest

from tests.support.analysis.run_trees import write_six_runs


@pytest.fixture
def runs(tmp_path):
    """The tree of `write_six_runs`."""
    return write_six_runs(tmp_path / "runs")
