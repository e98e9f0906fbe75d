"""The default of --pretrained: the checkpoint in the repository, if it has the dictionary of the data."""

from pathlib import Path

import pytest

from common.errors import UserError
from experiments import inputs
from experiments.settings import train_settings


def dictionary(folder, tokens, count=1):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "dict.txt").write_text("".join(f"{token} {count}\n" for token in tokens), encoding="utf-8")


def checkpoint(folder, tokens):
    dictionary(folder, tokens)
    (folder / "model.safetensors").write_bytes(b"weights")


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """A folder with a shipped checkpoint, another one with the same dictionary, and data."""
    monkeypatch.setattr(inputs, "SHIPPED", tmp_path / "pretrained" / "fr")
    checkpoint(tmp_path / "pretrained" / "fr", "abc")
    checkpoint(tmp_path / "pretrained" / "a-trial", "abc")
    dictionary(tmp_path / "data" / "input0", "abc", count=7)  # counts may differ
    return tmp_path


def test_data_with_the_same_dictionary_use_the_shipped_checkpoint(trained):
    weights = trained / "pretrained" / "fr" / "model.safetensors"
    assert inputs.shipped_for(trained / "data") == weights
    settings = train_settings(["--data", str(trained / "data")], {})
    assert settings.inits == {"random": None, "pretrained": weights}


def test_without_weights_there_is_no_shipped_checkpoint(trained):
    (trained / "pretrained" / "fr" / "model.safetensors").unlink()
    assert inputs.shipped_for(trained / "data") is None


def test_data_with_another_dictionary_require_a_checkpoint(trained):
    dictionary(trained / "data" / "input0", "acb")
    assert inputs.shipped_for(trained / "data") is None
    with pytest.raises(UserError) as caught:
        train_settings(["--data", str(trained / "data")], {})
    assert all(fact in str(caught.value) for fact in ("--pretrained", str(trained / "data"), "--inits"))


def test_a_folder_is_replaced_by_its_weights(trained):
    folder = trained / "pretrained" / "a-trial"
    words = ["--data", "D", "--pretrained", str(folder), "--inits", "pretrained", f"own={folder}"]
    weights = folder / "model.safetensors"
    assert train_settings(words, {}).inits == {"pretrained": weights, "own": weights}
    assert inputs.checkpoint_of(Path("no-such-folder")) == Path("no-such-folder")
