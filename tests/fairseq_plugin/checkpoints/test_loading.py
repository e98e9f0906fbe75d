"""Safe loading: fairseq's checkpoints load, pickles that execute code do not."""

import argparse
import os
import pickle
import re
import shutil
import zipfile
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
from fairseq.models.roberta import RobertaModel
from omegaconf import OmegaConf

from roberta_small.common.errors import UserError
from roberta_small.fairseq_plugin.checkpoints.loading import load_checkpoint, save_weights, verify_checksums
from tests.support.archives import Executes, write_zip
from tests.support.training import CLASSIFIER, build_trainer, save


def checkpoint(**extra):
    return {"model": OrderedDict(weight=torch.ones(2)), "cfg": None, **extra}


@pytest.fixture(scope="module")
def original(data, tmp_path_factory):
    """A checkpoint written by fairseq's trainer, with optimizer state."""
    _, trainer = build_trainer([data, *CLASSIFIER])
    iterator = trainer.get_train_iterator(epoch=1, load_dataset=True)
    trainer.train_step([next(iterator.next_epoch_itr())])
    path = tmp_path_factory.mktemp("original") / "model.pt"
    save(trainer, path)
    return path, trainer


@pytest.fixture
def trained(original, data, tmp_path):
    """A copy, which a test may change."""
    return shutil.copy(original[0], tmp_path / "model.pt"), original[1], data


def test_configurations_of_older_versions_and_numpy_metrics_load(tmp_path):
    cfg = OmegaConf.create({"task": {"data": "x", "lr": [0.1], "on": True, "n": 3}, "model": None})
    extra = {"best": np.float64(81.5), "steps": np.int64(3)}
    old = checkpoint(cfg=cfg, args=argparse.Namespace(arch="roberta"), extra_state=extra)
    torch.save(old, tmp_path / "old.pt")
    state = load_checkpoint(tmp_path / "old.pt")
    assert (state["cfg"], state["args"].arch) == (cfg, "roberta")
    assert state["extra_state"] == {"best": 81.5, "steps": 3}


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy pickle"])
@pytest.mark.parametrize("place", ["cfg", "extra_state", "model"])
def test_a_pickle_that_executes_code_is_refused(tmp_path, monkeypatch, place, legacy):
    """Also if the environment turns safe loading off."""
    path, mark = tmp_path / "evil.pt", tmp_path / "executed"
    torch.save(checkpoint(**{place: {"x": Executes(mark)}}), path, _use_new_zipfile_serialization=not legacy)
    with pytest.raises(UserError, match=r"evil\.pt: .*mkdir"):
        load_checkpoint(path)
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    with pytest.raises(UserError):
        load_checkpoint(path)
    assert not mark.exists()
    # Without `weights_only` the same file does execute code.
    torch.load(path, weights_only=False)
    assert mark.exists()


@pytest.mark.parametrize("fraction", [0.1, 0.999])
def test_a_truncated_file_is_an_error(trained, fraction):
    path, _, _ = trained
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * fraction)])
    with pytest.raises(UserError, match=r"model\.pt: "):
        load_checkpoint(path)


def test_a_flipped_bit_is_an_error(trained):
    """torch itself loads the wrong weight without an error."""
    path, trainer, _ = trained
    whole = path.read_bytes()
    weights = trainer.get_model().state_dict()["encoder.sentence_encoder.layers.0.fc1.weight"]
    place = whole.index(weights.numpy().tobytes()) + 5
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    torch.load(path, weights_only=True)
    with pytest.raises(UserError, match=r"model\.pt: "):
        load_checkpoint(path)


def test_a_compressed_archive_is_verified_too(tmp_path):
    torch.save(checkpoint(), tmp_path / "stored.pt")
    with zipfile.ZipFile(tmp_path / "stored.pt") as stored:
        write_zip(tmp_path / "packed.pt", {name: stored.read(name) for name in stored.namelist()})
    with open(tmp_path / "stored.pt", "rb") as stored, open(tmp_path / "packed.pt", "rb") as packed:
        assert verify_checksums(stored)
        assert not verify_checksums(packed)
    assert torch.equal(load_checkpoint(tmp_path / "packed.pt")["model"]["weight"], torch.ones(2))
    with zipfile.ZipFile(tmp_path / "packed.pt") as packed:
        member = max(packed.infolist(), key=lambda member: member.compress_size)
    content = bytearray((tmp_path / "packed.pt").read_bytes())
    content[member.header_offset + 30 + len(member.filename) + member.compress_size // 2] ^= 1
    (tmp_path / "packed.pt").write_bytes(content)
    with pytest.raises(UserError, match="truncated or corrupt"):
        load_checkpoint(tmp_path / "packed.pt")


def test_a_checkpoint_of_fairseq_loads_and_without_the_optimizer_the_rest_is_the_same(trained):
    path, trainer, _ = trained
    whole, rest = load_checkpoint(path), load_checkpoint(path, optimizer=False)
    assert all(torch.equal(whole["model"][name], w) for name, w in trainer.get_model().state_dict().items())
    assert isinstance(whole["cfg"]["model"], argparse.Namespace)
    assert whole.keys() - rest.keys() == {"last_optimizer_state"}
    assert rest["cfg"] == whole["cfg"]
    assert rest["model"].keys() == whole["model"].keys()
    assert all(torch.equal(rest["model"][name], weight) for name, weight in whole["model"].items())
    embeddings, tied = (
        rest["model"][f"encoder.{name}.weight"] for name in ("sentence_encoder.embed_tokens", "lm_head")
    )
    assert embeddings.data_ptr() == tied.data_ptr()
    expected = embeddings.clone()
    path.write_bytes(bytes(path.stat().st_size))  # in place, as fairseq copies checkpoints
    assert torch.equal(embeddings, expected)


@pytest.mark.parametrize("optimizer", [True, False])
def test_the_head_of_a_checkpoint_from_a_gpu_is_tied_to_the_embeddings_again(trained, tmp_path, optimizer):
    state = torch.load(trained[0], weights_only=False)
    tokens, head = "encoder.sentence_encoder.embed_tokens.weight", "encoder.lm_head.weight"
    for name, tied in (("gpu.pt", True), ("untied.pt", False)):
        state["model"][head] = state["model"][tokens].clone() + (0 if tied else 1)
        torch.save(state, tmp_path / name)
        model = load_checkpoint(tmp_path / name, optimizer=optimizer)["model"]
        assert (model[head].data_ptr() == model[tokens].data_ptr()) == tied


def test_missing_files_and_those_in_another_format_are_errors(tmp_path):
    torch.save({"weights": 1}, tmp_path / "other.pt")
    write_zip(tmp_path / "archive.pt", {"readme": "text"})
    expected = {"none.pt": "", "other.pt": ".*'model'", "archive.pt": ""}
    for number, content in enumerate([b"", b"PK", b"not a checkpoint", pickle.dumps({"a": 1})]):
        (tmp_path / f"{number}.pt").write_bytes(content)
        expected[f"{number}.pt"] = ""
    for name, facts in expected.items():
        with pytest.raises(UserError, match=f"{name}: {facts}"):
            load_checkpoint(tmp_path / name)


def test_save_weights_writes_a_smaller_checkpoint_that_fairseq_loads(trained):
    path, trainer, data = trained
    folder = path.parent / "released"
    save_weights(path, folder / "model.pt")
    assert (folder / "model.pt").stat().st_size < path.stat().st_size / 2
    shutil.copy(data / "input0" / "dict.txt", folder)
    model = RobertaModel.from_pretrained(str(folder), "model.pt", data_name_or_path=str(data), bpe=None)
    for name, value in trainer.get_model().state_dict().items():
        assert torch.equal(model.model.state_dict()[name], value)


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="no peak memory here")
def test_neither_the_optimizer_nor_a_second_copy_of_the_weights_is_in_memory(tmp_path):
    weights = OrderedDict((str(number), torch.rand(1 << 20)) for number in range(12))
    moments = {str(number): torch.rand(1 << 20) for number in range(24)}
    torch.save({"model": weights, "cfg": None, "last_optimizer_state": moments}, tmp_path / "model.pt")
    del moments
    load_checkpoint(tmp_path / "model.pt", optimizer=False)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # reset the peak: proc_pid_clear_refs(5)
    before = peak_bytes()
    state = load_checkpoint(tmp_path / "model.pt", optimizer=False)
    assert (peak_bytes() - before) / 2**20 < 48 + 32
    assert all(torch.equal(state["model"][name], weight) for name, weight in weights.items())


def peak_bytes():
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) << 10
