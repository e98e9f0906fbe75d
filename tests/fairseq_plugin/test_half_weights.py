"""Weights in safetensors: the same to 16 bits, wherever fairseq takes a checkpoint."""

import shutil
import subprocess
import sys

import pytest
import torch
from data_folders import write_data
from fairseq import checkpoint_utils
from fairseq.models.roberta import RobertaModel
from safetensors import safe_open
from safetensors.torch import save_file
from training import FAST, INPUT, OURS, SIZES, STEPS, build_trainer, save

from common.errors import UserError
from fairseq_plugin.checkpoints import fp16
from fairseq_plugin.checkpoints.loading import load_checkpoint


def trainer_of(data, save_dir, *flags):
    _, trainer = build_trainer([data, *OURS, *INPUT, *STEPS, *SIZES, *FAST, "--save-dir", save_dir, *flags])
    return trainer


@pytest.fixture
def saved(tmp_path):
    """A checkpoint of fairseq and what `half_weights` makes of it."""
    data = write_data(tmp_path / "data")
    trainer = trainer_of(data, tmp_path / "first")
    path = tmp_path / "released" / "model.pt"
    path.parent.mkdir()
    save(trainer, path)
    shutil.copy(data / "input0" / "dict.txt", path.parent)
    half = path.with_suffix(fp16.SUFFIX)
    assert fp16.main([str(path), str(half)]) == 0
    return data, path, half


def rounded(path):
    return {name: weight.half().float() for name, weight in load_checkpoint(path)["model"].items()}


def same(found, wanted):
    return found.keys() == wanted.keys() and all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_the_dictionary_goes_with_them_and_none_is_replaced(saved, tmp_path, caplog):
    data, path, _ = saved
    fp16.write(path, tmp_path / "new/model.safetensors")
    text = (data / "input0/dict.txt").read_text()
    assert (tmp_path / "new/dict.txt").read_text() == text
    (tmp_path / "new/dict.txt").write_text("another 1\n")
    fp16.write(path, tmp_path / "new/model.safetensors")
    assert (tmp_path / "new/dict.txt").read_text() == "another 1\n"
    assert "dict.txt: not the dictionary of" in caplog.text


def test_weights_are_rounded_and_the_configuration_is_kept(saved):
    _, path, half = saved
    with safe_open(half, framework="pt") as stored:
        parts = [stored.get_tensor(name) for name in stored.keys()]  # noqa: SIM118
    assert {part.dtype for part in parts} == {torch.float16}
    tied = load_checkpoint(path)["model"]["encoder.lm_head.weight"]  # to the embeddings: stored once
    numbers = sum(weight.numel() for weight in load_checkpoint(path)["model"].values())
    assert sum(part.numel() for part in parts) == numbers - tied.numel()
    state, original = load_checkpoint(half), load_checkpoint(path)
    assert same(state["model"], rounded(path))
    differ = {
        name
        for section in ("model", "task", "optimization")
        for name, value in vars_of(original["cfg"][section]).items()
        if vars_of(state["cfg"][section])[name] != value
    }
    assert differ == {"data", "save_dir", "plasma_path"}  # paths


def vars_of(section):
    return section if isinstance(section, dict) else vars(section)


def test_no_folder_of_this_machine_is_told(saved, tmp_path):
    _, path, half = saved
    assert str(tmp_path).encode() in path.read_bytes()
    with safe_open(half, framework="pt") as stored:
        assert '"/' not in stored.metadata()["configuration"]


def test_a_run_starts_from_it(saved, tmp_path):
    data, path, half = saved
    resets = ("--reset-optimizer", "--reset-dataloader", "--reset-meters")
    trainer = trainer_of(data, tmp_path / "next", "--restore-file", half, *resets)
    checkpoint_utils.load_checkpoint(trainer.cfg.checkpoint, trainer)
    assert same(trainer.get_model().state_dict(), rounded(path))


def test_from_pretrained_takes_it(saved):
    data, path, half = saved
    hub = RobertaModel.from_pretrained(str(half.parent), half.name, data_name_or_path=str(data), bpe=None)
    assert same(hub.model.state_dict(), rounded(path))


def test_damaged_and_foreign_files_get_one_message(saved, tmp_path):
    _, _, half = saved
    whole = half.read_bytes()
    for share in (0, 0.001, 0.5, 0.999):
        half.write_bytes(whole[: int(len(whole) * share)])
        with pytest.raises(UserError, match=r"model\.safetensors: damaged or cut short"):
            load_checkpoint(half)
    save_file({"a": torch.ones(2)}, tmp_path / "other.safetensors")
    with pytest.raises(UserError, match="not written by"):
        load_checkpoint(tmp_path / "other.safetensors")
    with pytest.raises(UserError, match="no such checkpoint"):
        load_checkpoint(tmp_path / "none.safetensors")


def test_a_flipped_bit_is_noticed(saved):
    _, _, half = saved
    whole = half.read_bytes()
    half.write_bytes(whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
    with safe_open(half, framework="pt") as stored:
        stored.keys()  # the format itself does not mind
    with pytest.raises(UserError, match=r"model\.safetensors: damaged"):
        load_checkpoint(half)


def test_files_without_a_checksum_are_read(saved):
    _, path, half = saved
    with safe_open(half, framework="pt") as stored:
        metadata = {name: text for name, text in stored.metadata().items() if name != "sha256"}
        weights = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    save_file(weights, half, metadata)
    assert same(load_checkpoint(half)["model"], rounded(path))


@pytest.mark.parametrize("value", [1e6, float("nan")])
def test_weights_beyond_16_bits_are_refused(saved, value, capsys):
    _, path, half = saved
    half.unlink()
    state = load_checkpoint(path)
    next(iter(state["model"].values())).fill_(value)
    torch.save(state, path)
    assert fp16.main([str(path), str(half)]) == 1
    assert "16 bits cannot hold" in capsys.readouterr().err
    assert sorted(file.name for file in half.parent.iterdir()) == ["dict.txt", "model.pt"]


def test_another_suffix_is_refused(saved, capsys):
    _, path, half = saved
    assert fp16.main([str(path), str(half.with_suffix(".bin"))]) == 1
    assert "must end in .safetensors" in capsys.readouterr().err


def test_the_command_starts_without_a_warning():
    """Python warns where a package has imported the module that it is to run."""
    command = [sys.executable, "-m", "fairseq_plugin.checkpoints.fp16", "--help"]
    started = subprocess.run(command, capture_output=True, text=True)
    assert started.returncode == 0
    assert "RuntimeWarning" not in started.stderr
