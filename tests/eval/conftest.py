import shutil

import pytest
from tiny_runs import House, make_data, make_run


@pytest.fixture(scope="session")
def house(tmp_path_factory):
    root = tmp_path_factory.mktemp("house")
    data = make_data(root)
    run = root / "runs/fairseq/random/seed1"
    trainer = make_run(data, run, updates=3)
    return House(root, data, trainer, run)


@pytest.fixture
def copied_run(house, tmp_path):
    """The run, to spoil."""
    shutil.copytree(house.run, tmp_path / "run")
    return tmp_path / "run"
