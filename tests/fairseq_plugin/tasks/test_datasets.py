"""Data folders as fairseq's tasks open them: recorded checksums, data without a batch, shards."""

import json
import re
import shutil
import subprocess
from types import SimpleNamespace

import pytest
import torch

from roberta_small.common.errors import UserError
from roberta_small.common.files import sha256
from roberta_small.fairseq_plugin.tasks import datasets
from tests.support import preloaded
from tests.support.data_folders import write_data, write_shards
from tests.support.training import FAST, INPUT, LM, OURS, SIZES, STEPS, build_trainer, fairseq_train


def record(folder):
    """Write the checksums that `prepare` would have recorded."""
    files = {str(path.relative_to(folder)): sha256(path) for path in folder.rglob("*") if path.is_file()}
    (folder / "preprocess.json").write_text(json.dumps({"files": files}))
    return folder


def modify(path):
    """Change one bit, so that the file can still be read."""
    content = bytearray(path.read_bytes())
    content[0] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["input0/train.bin", "label/train.bin", "input0/dict.txt"])
def test_a_classifier_verifies_recorded_checksums(tmp_path, name):
    data = record(write_data(tmp_path / "data"))
    arguments = [data, *OURS, *INPUT, *SIZES, *FAST, *STEPS]
    build_trainer(arguments)[0].load_dataset("train")
    modify(data / name)
    with pytest.raises(UserError, match=rf"{re.escape(name)}: .*preprocess\.json"):
        build_trainer(arguments)[0].load_dataset("train")


def test_a_language_model_verifies_each_shard_when_it_opens_it(tmp_path):
    data = record(write_shards(tmp_path / "data", [6, 7]))
    arguments = [f"{data}/shard0:{data}/shard1", *LM, *SIZES, *FAST, *STEPS]
    task = build_trainer(arguments)[0]
    modify(data / "shard1/train.bin")
    task.load_dataset("train", epoch=1)
    with pytest.raises(UserError, match=r"shard1/train\.bin: .*preprocess\.json"):
        task.load_dataset("train", epoch=2)


def test_data_without_a_batch_are_an_error(tmp_path):
    """Of five blocks, fairseq makes no batch of a multiple of eight."""
    data = write_shards(tmp_path / "data", [1]) / "shard0"
    words = [data, *LM, *SIZES, *FAST, *STEPS]
    with pytest.raises(UserError, match=r"\b5 .*--required-batch-size-multiple 1"):
        build_trainer(words)[1].get_train_iterator(epoch=1, load_dataset=True)
    trainer = build_trainer([*words, "--required-batch-size-multiple", "1"])[1]
    batch = trainer.get_train_iterator(epoch=1, load_dataset=True).first_batch
    assert len(batch["net_input"]["src_tokens"]) == 5


def test_a_run_over_shards_resumes_in_the_same_shard(tmp_path):
    """The weights are the same, bit for bit, as without the interruption in the second shard."""
    data = record(write_shards(tmp_path / "data", [6, 7, 8]))
    shards = ":".join(str(data / f"shard{number}") for number in range(3))
    words = [shards, *LM, *SIZES, *FAST, *STEPS, "--batch-size", "4", "--max-update", "18"]

    def opened_by_a_run_in(folder):
        result = fairseq_train(*words, "--save-dir", folder, "--save-interval-updates", "9")
        assert result.returncode == 0, result.stderr[-2000:]
        return re.findall(r"examples from: \S+/(shard\d/\w+)", result.stdout)

    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert opened_by_a_run_in(whole) == ["shard0/valid", "shard0/train", "shard1/train", "shard2/train"]
    parts.mkdir()
    shutil.copy(whole / "checkpoint_2_9.pt", parts / "checkpoint_last.pt")
    assert opened_by_a_run_in(parts)[-2:] == ["shard1/train", "shard2/train"]
    assert weights(whole) == weights(parts)


def weights(run):
    state = torch.load(run / "checkpoint_last.pt", weights_only=True)["model"]
    return {name: tensor.numpy().tobytes() for name, tensor in state.items()}


@pytest.mark.parametrize(
    ("workers", "default", "current", "chosen"),
    [
        (1, "forkserver", "forkserver", ["fork"]),
        (1, "forkserver", "spawn", []),
        (0, "forkserver", "forkserver", []),
        (1, "fork", "fork", []),
    ],
)
def test_worker_processes_start_by_fork_unless_the_program_has_chosen(
    monkeypatch, workers, default, current, chosen
):
    calls = []
    monkeypatch.setattr(datasets.multiprocessing, "get_all_start_methods", lambda: [default, "other"])
    monkeypatch.setattr(datasets.multiprocessing, "get_start_method", lambda: current)
    monkeypatch.setattr(datasets.multiprocessing, "set_start_method", lambda name, force: calls.append(name))
    datasets.forking_workers(lambda iterator: None, SimpleNamespace(num_workers=workers))
    assert calls == chosen


def test_worker_processes_leave_no_folder_behind(tmp_path):
    """They end with the process that iterates, so they cannot remove their sockets."""
    program = f"""
import tempfile, torch
from types import SimpleNamespace
from roberta_small.fairseq_plugin.tasks import datasets
tempfile.tempdir = {str(tmp_path)!r}
datasets.forking_workers(lambda iterator: None, SimpleNamespace(num_workers=1))
kept = iter(torch.utils.data.DataLoader(torch.ones(8, 3), num_workers=1))
next(kept)
"""
    subprocess.run([preloaded.python(), "-c", program], check=True)
    assert not list(tmp_path.iterdir())
