import shutil

import pytest

from tests.support.exported_runs import make_masked_lm
from tests.support.tiny_runs import Trained, make_data, make_run


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    root = tmp_path_factory.mktemp("trained")
    data = make_data(root)
    run = root / "runs/fairseq/random/seed1"
    trainer = make_run(data, run, updates=3)
    return Trained(root, data, trainer, run)


@pytest.fixture(scope="session")
def sweep(trained, tmp_path_factory):
    """A folder with two runs that differ in their seed; tests may write predictions into it."""
    root = tmp_path_factory.mktemp("sweep")
    shutil.copytree(trained.run, root / "fairseq/random/seed1")
    make_run(trained.data, root / "fairseq/random/seed2", seed=2, updates=3)
    return root


@pytest.fixture(scope="session")
def pairs(tmp_path_factory):
    """As `trained`, with sentence pairs."""
    root = tmp_path_factory.mktemp("pairs")
    data = make_data(root, pairs=True)
    return Trained(root, data, make_run(data, root / "run"), root / "run")


@pytest.fixture(scope="session")
def untruncated(trained, tmp_path_factory):
    """A run with 80 positions, for which longer texts are an error."""
    run = tmp_path_factory.mktemp("untruncated") / "run"
    make_run(trained.data, run, "--shorten-method", "none", "--max-positions", "80")
    return run


@pytest.fixture(scope="session")
def masked_lm(tmp_path_factory):
    """(data, checkpoint) of a masked language model."""
    return make_masked_lm(tmp_path_factory.mktemp("masked-lm"))


@pytest.fixture
def copied_run(trained, tmp_path):
    """A copy of the run that a test may change."""
    shutil.copytree(trained.run, tmp_path / "run")
    return tmp_path / "run"
