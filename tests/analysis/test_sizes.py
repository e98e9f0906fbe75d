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


def size_of_data(root, digest=None):
    """The size of the test set of a run whose manifest records this folder of data."""
    digests = {"label/test.idx": digest or sha256(root / "data/label/test.idx")}
    data = {"path": str(root / "data"), "sha256": digests}
    write_run(root / "runs", "random", 1, [50.0], [51.0], data=data)
    return find_size(find_runs(root / "runs"))


@pytest.mark.parametrize(("digest", "size"), [(None, 7), ("0" * 64, None)])
def test_from_the_data_folder_of_the_manifest_if_it_is_unchanged(tmp_path, digest, size):
    """A folder that fairseq's own builder wrote."""
    write_data(tmp_path / "data", sizes={"test": 7})
    assert size_of_data(tmp_path, digest) == size


@pytest.mark.parametrize("content", [b"", b"something else entirely, long enough"])
def test_not_from_another_format(tmp_path, content):
    index = tmp_path / "data/label/test.idx"
    index.parent.mkdir(parents=True)
    index.write_bytes(content)
    assert size_of_data(tmp_path) is None


def test_runs_with_different_sizes_are_an_error(runs):
    write_predictions(runs / "fairseq/random/seed2", ["0", "1", "1"], ["0", "0", "0"])
    write_predictions(runs / "fairseq/random/seed3", ["0", "1"], ["0", "0"])
    with pytest.raises(UserError, match=r"random/seed2 .*3 .*random/seed3 .*2; .*--test-size"):
        find_size(find_runs(runs))
