"""The run tree of most tests."""

import pytest
from run_trees import write_run


@pytest.fixture
def runs(tmp_path):
    """Two inits x three seeds x three epochs; pretrained/seed2 ties in epochs 1 and 3."""
    root = tmp_path / "runs"
    write_run(root, "pretrained", 1, [70.0, 81.0, 80.0], [69.0, 79.25, 78.0], seconds=135.0)
    write_run(root, "pretrained", 2, [80.0, 75.0, 80.0], [78.0, 77.5, 78.5])
    write_run(root, "pretrained", 3, [70.0, 80.0, 83.5], [71.0, 79.0, 80.0])
    write_run(root, "random", 1, [50.0, 62.0, 61.0], [50.5, 65.5, 64.0])
    write_run(root, "random", 2, [65.0, 60.0, 61.0], [66.75, 60.0, 61.0])
    write_run(root, "random", 3, [50.0, 60.0, 62.5], [51.0, 60.0, 68.25])
    return root
