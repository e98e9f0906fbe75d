"""The size of the test set from prediction files and data folders."""

import pytest

from roberta_small.analysis.predictions import find_size
from roberta_small.analysis.read.runs import find_runs
from roberta_small.common.errors import UserError
from roberta_small.common.files import sha256
from tests.support.analysis.prediction_files import write_predictions
from tests.support.analysis.run_trees import write_run
from tests.support.data_folders import write_data


def test_from_prediction_files(runs):
    write_predictions(runs / "fairseq/random/seed2", ["0", "1", "1"], ["0", "0", "0"])
    assert find_size(find_runs(runs)) == 3
    assert find_size(find_runs(runs), "valid") is None


def with_data(root, data, digest):
    write_run(
        root, "random", 1, [50.0], [51.0], data={"path": str(data), "sha256": {"label/test.idx": digest}}
    )


def test_from_the_data_folder_of_the_manifest(tmp_path):
    """A folder that fairseq's own builder wrote."""
    write_data(tmp_path / "data", sizes={"test": 7})
    index = tmp_path / "data/label/test.idx"
    with_data(tmp_path / "runs", tmp_path / "data", sha256(index))
    assert find_size(find_runs(tmp_path / "runs")) == 7


def test_not_from_a_folder_that_holds_other_data_now(tmp_path):
    write_data(tmp_path / "data")
    with_data(tmp_path / "runs", tmp_path / "data", "0" * 64)
    assert find_size(find_runs(tmp_path / "runs")) is None


@pytest.mark.parametrize("content", [b"", b"something else entirely, long enough"])
def test_not_from_another_format(tmp_path, content):
    index = tmp_path / "data/label/test.idx"
    index.parent.mkdir(parents=True)
    index.write_bytes(content)
    with_data(tmp_path / "runs", tmp_path / "data", sha256(index))
    assert find_size(find_runs(tmp_path / "runs")) is None


def test_runs_with_different_sizes_are_an_error(runs):
    write_predictions(runs / "fairseq/random/seed2", ["0", "1", "1"], ["0", "0", "0"])
    write_predictions(runs / "fairseq/random/seed3", ["0", "1"], ["0", "0"])
    with pytest.raises(UserError, match=r"random/seed2 .*3 .*random/seed3 .*2; .*--test-size"):
        find_size(find_runs(runs))
