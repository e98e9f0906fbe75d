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
def masked_lm(tmp_path_factory):
    """(data, checkpoint) of a masked language model."""
    return make_masked_lm(tmp_path_factory.mktemp("masked-lm"))


@pytest.fixture
def copied_run(trained, tmp_path):
    """A copy of the run that a test may change."""
    shutil.copytree(trained.run, tmp_path / "run")
    return tmp_path / "run"
