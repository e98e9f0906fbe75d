"""Data for a classifier, and the code path of a GPU on a CPU."""

import pytest

from roberta_small.fairseq_plugin.models import attention
from tests.support import emulated_kernels
from tests.support.data_folders import write_data
from tests.support.training import CLASSIFIER, build_trainer, save


@pytest.fixture(scope="package")
def gpu_kernels():
    """aten's attention kernels exist on a CPU, too; the list of their calls."""
    with emulated_kernels.installed() as calls:
        yield calls


@pytest.fixture
def gpu_path(gpu_kernels, monkeypatch):
    """The network takes the code path of a GPU; the list of calls of its attention kernels."""
    monkeypatch.setattr(attention, "one_by_one", lambda x: False)
    gpu_kernels.clear()
    return gpu_kernels


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """48 training texts of two classes of at most 30 tokens, which no test changes."""
    return write_data(tmp_path_factory.mktemp("data"), longest=28)


@pytest.fixture(scope="session")
def classifier(data, tmp_path_factory):
    """A checkpoint of a classifier before its first update, which no test changes."""
    folder = tmp_path_factory.mktemp("classifier")
    _, trainer = build_trainer([data, *CLASSIFIER, "--save-dir", folder / "run"])
    save(trainer, folder / "model.pt")
    return folder / "model.pt"
