"""The fp16 export: rounded weights in safetensors, usable wherever fairseq takes a checkpoint."""

import re
import shutil

import pytest
import torch
from fairseq.models.roberta import RobertaModel
from safetensors import safe_open
from safetensors.torch import save_file

from roberta_small.common.errors import UserError
from roberta_small.fairseq_plugin.checkpoints import fp16
from roberta_small.fairseq_plugin.checkpoints.architecture import read_architecture
from roberta_small.fairseq_plugin.checkpoints.loading import SUFFIX, load_checkpoint
from tests.support.training import CLASSIFIER, started


@pytest.fixture
def exported(classifier, data, tmp_path):
    """Data, a checkpoint of fairseq, and its export."""
    path = tmp_path / "released" / "model.pt"
    path.parent.mkdir()
    shutil.copy(classifier, path)
    shutil.copy(data / "input0" / "dict.txt", path.parent)
    export = path.with_suffix(SUFFIX)
    fp16.write(path, export)
    return data, path, export


def rounded(path):
    return {name: weight.half().float() for name, weight in load_checkpoint(path)["model"].items()}


def equal(found, expected):
    return found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in found)


def test_the_dictionary_is_copied_but_never_overwritten(exported, tmp_path, caplog):
    data, path, _ = exported
    fp16.write(path, tmp_path / "new/model.safetensors")
    dictionary = tmp_path / "new/dict.txt"
    assert dictionary.read_text() == (data / "input0/dict.txt").read_text()
    dictionary.write_text("another 1\n")
    fp16.write(path, tmp_path / "new/model.safetensors")
    assert dictionary.read_text() == "another 1\n"
    assert str(dictionary) in caplog.text


def test_weights_are_rounded_and_the_configuration_is_kept(exported):
    _, path, export = exported
    with safe_open(export, framework="pt") as stored:
        parts = [stored.get_tensor(name) for name in stored.keys()]  # noqa: SIM118
        assert '"/' not in stored.metadata()["configuration"]  # no absolute path
    assert {part.dtype for part in parts} == {torch.float16}
    state, original = load_checkpoint(export), load_checkpoint(path)
    tied = original["model"]["encoder.lm_head.weight"]  # to the embeddings: stored once
    numbers = sum(weight.numel() for weight in original["model"].values())
    assert sum(part.numel() for part in parts) == numbers - tied.numel()
    assert equal(state["model"], rounded(path))
    differ = {
        name
        for section in ("model", "task", "optimization")
        for name, value in as_dict(original["cfg"][section]).items()
        if as_dict(state["cfg"][section])[name] != value
    }
    assert differ == {"data", "save_dir", "plasma_path"}  # paths
    assert read_architecture(export) == read_architecture(path)


def as_dict(section):
    return section if isinstance(section, dict) else vars(section)


def test_restore_file_and_from_pretrained_accept_it(exported, tmp_path):
    data, path, export = exported
    resets = ("--reset-optimizer", "--reset-dataloader", "--reset-meters")
    words = [data, *CLASSIFIER, "--save-dir", tmp_path / "next", "--restore-file", export, *resets]
    trainer = started(words)
    assert equal(trainer.get_model().state_dict(), rounded(path))
    hub = RobertaModel.from_pretrained(str(export.parent), export.name, data_name_or_path=str(data), bpe=None)
    assert equal(hub.model.state_dict(), rounded(path))


def test_a_truncated_file_and_a_flipped_bit_are_errors(exported):
    _, _, export = exported
    whole = export.read_bytes()
    damaged = [whole[: int(len(whole) * fraction)] for fraction in (0, 0.001, 0.5, 0.999)]
    for content in (*damaged, whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:]):
        export.write_bytes(content)
        with pytest.raises(UserError, match=r"model\.safetensors: "):
            load_checkpoint(export)
    with safe_open(export, framework="pt") as stored:
        stored.keys()  # the safetensors library does not notice the bit


def test_other_safetensors_files_and_missing_ones_are_errors(tmp_path):
    save_file({"a": torch.ones(2)}, tmp_path / "other.safetensors")
    with pytest.raises(UserError, match=r"other\.safetensors: .*roberta-small export"):
        load_checkpoint(tmp_path / "other.safetensors")
    with pytest.raises(UserError, match=r"none\.safetensors: "):
        load_checkpoint(tmp_path / "none.safetensors")


def test_files_without_a_checksum_load(exported):
    _, path, export = exported
    with safe_open(export, framework="pt") as stored:
        metadata = {name: text for name, text in stored.metadata().items() if name != "sha256"}
        weights = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    save_file(weights, export, metadata)
    assert equal(load_checkpoint(export)["model"], rounded(path))


@pytest.mark.parametrize("value", [1e6, float("nan")])
def test_weights_outside_the_range_of_fp16_are_an_error(exported, value):
    _, path, export = exported
    export.unlink()
    state = load_checkpoint(path)
    name, weight = next(iter(state["model"].items()))
    weight.fill_(value)
    torch.save(state, path)
    with pytest.raises(UserError, match=rf"{re.escape(str(path))}.*{re.escape(name)}"):
        fp16.write(path, export)
    assert sorted(file.name for file in export.parent.iterdir()) == ["dict.txt", "model.pt"]
