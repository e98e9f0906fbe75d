import pytest

from roberta_small.export.transformers.to_transformers import convert
from tests.support.exported_runs import make_masked_lm, train_classifier


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """(data, run) of a classifier, with text, labels, spm.model and dict.txt beside the data."""
    return train_classifier(tmp_path_factory.mktemp("trained"))


@pytest.fixture(scope="session")
def masked_lm(tmp_path_factory):
    """(data, checkpoint) of a masked language model."""
    return make_masked_lm(tmp_path_factory.mktemp("masked-lm"))


@pytest.fixture(scope="session")
def classifier_folder(trained, tmp_path_factory):
    """The classifier as a from_pretrained folder."""
    folder = tmp_path_factory.mktemp("converted") / "classifier"
    convert(trained[1], folder)
    return folder


@pytest.fixture(scope="session")
def masked_lm_folder(masked_lm, tmp_path_factory):
    folder = tmp_path_factory.mktemp("converted") / "masked-lm"
    convert(masked_lm[1], folder, data=masked_lm[0])
    return folder


@pytest.fixture
def own_modules_cache(tmp_path, monkeypatch):
    """Keep the copies that Transformers makes of trusted code out of the user's cache."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
