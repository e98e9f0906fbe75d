"""The checkpoint that comes with the project is taken where the data have its dictionary."""

from pathlib import Path

import pytest

from common.errors import UserError
from experiments import inputs
from experiments.settings import train_settings


def dictionary(folder, pieces, count=1):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "dict.txt").write_text("".join(f"{piece} {count}\n" for piece in pieces), encoding="utf-8")


def checkpoint(folder, pieces):
    dictionary(folder, pieces)
    (folder / "model.safetensors").write_bytes(b"weights")


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """The shipped checkpoint, one made here with the same dictionary, and data."""
    monkeypatch.setattr(inputs, "SHIPPED", tmp_path / "pretrained" / "fr")
    checkpoint(tmp_path / "pretrained" / "fr", "abc")
    checkpoint(tmp_path / "pretrained" / "a-trial", "abc")
    dictionary(tmp_path / "data" / "input0", "abc", count=7)  # counts are of no matter
    return tmp_path


def test_the_dictionary_decides(trained):
    weights = trained / "pretrained" / "fr" / "model.safetensors"  # not a-trial
    assert inputs.shipped_for(trained / "data") == weights
    settings = train_settings(["--data", str(trained / "data")], {})
    assert settings.inits == {"random": None, "pretrained": weights}


def test_without_weights_nothing_is_shipped(trained):
    (trained / "pretrained" / "fr" / "model.safetensors").unlink()
    assert inputs.shipped_for(trained / "data") is None


def test_another_dictionary_asks_for_a_checkpoint(trained):
    dictionary(trained / "data" / "input0", "acb")
    assert inputs.shipped_for(trained / "data") is None
    with pytest.raises(UserError, match="none that comes with the project has the dictionary"):
        train_settings(["--data", str(trained / "data")], {})


def test_a_folder_stands_for_its_weights(trained):
    folder = trained / "pretrained" / "a-trial"
    words = ["--data", "D", "--pretrained", str(folder), "--inits", "pretrained", f"own={folder}"]
    weights = folder / "model.safetensors"
    assert train_settings(words, {}).inits == {"pretrained": weights, "own": weights}
    assert inputs.checkpoint_of(Path("no-such-folder")) == Path("no-such-folder")
