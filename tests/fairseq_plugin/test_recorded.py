"""Data whose checksums are on record, opened by fairseq's own tasks."""

import json
import re
import shutil

import pytest
import torch
from data_folders import write_data, write_shards
from training import FAST, INPUT, LM, OURS, SIZES, STEPS, build_trainer, fairseq_train

from common.errors import UserError
from common.files import sha256


def record(folder):
    """What `preprocess binarize` would have written beside the data."""
    files = {
        path.relative_to(folder).as_posix(): sha256(path) for path in folder.rglob("*") if path.is_file()
    }
    (folder / "preprocess.json").write_text(json.dumps({"files": files}))
    return folder


def spoil(path):
    """Another word: the file stays one that can be read."""
    content = bytearray(path.read_bytes())
    content[0] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["input0/train.bin", "label/train.bin", "input0/dict.txt"])
def test_a_classifier_trains_on_what_is_recorded(tmp_path, name):
    data = record(write_data(tmp_path / "data"))
    arguments = [data, *OURS, *INPUT, *SIZES, *FAST, *STEPS]
    build_trainer(arguments)[0].load_dataset("train")
    spoil(data / name)
    with pytest.raises(UserError, match=rf"{re.escape(name)}: not the file that .*preprocess\.json records"):
        build_trainer(arguments)[0].load_dataset("train")


def test_a_language_model_compares_each_shard_as_it_opens_it(tmp_path):
    data = record(write_shards(tmp_path / "data", [6, 7]))
    arguments = [f"{data}/shard0:{data}/shard1", *LM, *SIZES, *FAST, *STEPS]
    task = build_trainer(arguments)[0]
    spoil(data / "shard1/train.bin")
    task.load_dataset("train", epoch=1)
    with pytest.raises(UserError, match=r"shard1/train\.bin: not the file"):
        task.load_dataset("train", epoch=2)


def test_data_without_a_report_are_taken_as_they_are(tmp_path):
    data = write_data(tmp_path / "data")
    spoil(data / "input0/train.bin")
    task = build_trainer([data, *OURS, *INPUT, *SIZES, *FAST, *STEPS])[0]
    task.load_dataset("train")
    assert len(task.datasets["train"]) == 48


def test_a_run_over_shards_goes_on_in_the_shard_where_it_was(tmp_path):
    """Bit for bit: interrupted in the second shard or not."""
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
