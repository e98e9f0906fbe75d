import hashlib
import json

import pytest

from common.errors import UserError
from experiments import inputs

SUBSETS = ["train", "valid", "test"]


def test_files_of_a_classification_folder(here):
    files = inputs.classification_files(here / "bin", SUBSETS)
    assert sorted(files) == sorted(str(p.relative_to(here / "bin")) for p in (here / "bin").rglob("*.*"))


def test_missing_files_are_named(here):
    (here / "bin/label/test.idx").unlink()
    (here / "bin/input0/dict.txt").unlink()
    with pytest.raises(UserError, match=r"bin: .*input0/dict\.txt, label/test\.idx"):
        inputs.classification_files(here / "bin", SUBSETS)
    with pytest.raises(UserError, match="no such folder"):
        inputs.classification_files(here / "bim", SUBSETS)


def test_masked_lm_folder(here):
    assert inputs.masked_lm_files(here / "bin/input0", ["train"]) == ["dict.txt", "train.bin", "train.idx"]
    with pytest.raises(UserError, match=r"bin: .*\bdict\.txt"):
        inputs.masked_lm_files(here / "bin", ["train"])
    with pytest.raises(UserError, match="separator of folders"):
        inputs.masked_lm_files(here / "a:b", ["train"])


def test_classes_are_counted_without_padding_entries(here):
    assert inputs.count_classes(here / "bin/label/dict.txt") == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [("1 900\n0\n", "line 2: '0'"), ("1 900\nmadeupword0000 0\n", "1 class"), ("", "0 class")],
)
def test_a_label_dictionary_that_cannot_be(here, text, said):
    (here / "bin/label/dict.txt").write_text(text)
    with pytest.raises(UserError, match=said):
        inputs.count_classes(here / "bin/label/dict.txt")


def test_checkpoints_and_folders_are_checked(here):
    with pytest.raises(UserError, match=r"no\.pt: no such checkpoint file; correct --pretrained"):
        inputs.require_checkpoint(here / "no.pt", "--pretrained")
    (here / "empty.pt").touch()
    with pytest.raises(UserError, match="empty"):
        inputs.require_checkpoint(here / "empty.pt", "--pretrained")
    inputs.require_writable(here / "a/b/c")
    assert not (here / "a").exists()
    with pytest.raises(UserError, match=r"quick\.txt: is not a folder"):
        inputs.require_writable(here / "quick.txt/runs")


def test_fingerprints(here):
    expected = hashlib.sha256(b"label train bin").hexdigest()
    data = inputs.fingerprint_data(here / "bin", ["label/train.bin"])
    assert data == {"path": "bin", "sha256": {"label/train.bin": expected}}
    checkpoint = inputs.fingerprint_checkpoint(here / "model.pt")
    assert checkpoint == {"path": "model.pt", "sha256": hashlib.sha256(b"weights").hexdigest()}
    assert inputs.fingerprint_checkpoint(None) is None


def test_data_that_changed_since_they_were_written_are_refused(here):
    data, files = here / "bin", ["input0/train.bin", "label/train.bin"]
    digests = inputs.fingerprint_data(data, files)["sha256"]
    (data / "preprocess.json").write_text(json.dumps({"files": digests | {"input0/valid.bin": "not read"}}))
    assert inputs.fingerprint_data(data, files)["sha256"] == digests
    (data / "input0/train.bin").write_text("input0 train bim")
    with pytest.raises(UserError, match=r"input0/train\.bin: not the file that .*preprocess\.json records"):
        inputs.fingerprint_data(data, files)


@pytest.fixture
def shards(here):
    """A folder of running text in three shards, with its report."""
    data = here / "shards"
    for number in range(3):
        for name in [
            "dict.txt",
            "train.bin",
            "train.idx",
            *(["valid.bin", "valid.idx"] if number == 0 else []),
        ]:
            (data / f"shard{number}").mkdir(parents=True, exist_ok=True)
            (data / f"shard{number}" / name).write_text(f"{number} {name}")
    names = inputs.masked_lm_files(data, ["train", "valid"])
    digests = inputs.fingerprint_data(data, names)["sha256"]
    (data / "preprocess.json").write_text(json.dumps({"files": digests}))
    return data


def test_files_of_shards(shards):
    names = inputs.masked_lm_files(shards, ["train", "valid"])
    assert sorted(names) == sorted(path.relative_to(shards).as_posix() for path in shards.glob("*/*"))
    (shards / "shard2/train.idx").unlink()
    with pytest.raises(UserError, match=r"shards: .*shard2/train\.idx"):
        inputs.masked_lm_files(shards, ["train", "valid"])


def test_the_first_shard_is_read_before_the_start_and_the_others_when_they_are_opened(shards, monkeypatch):
    names = inputs.masked_lm_files(shards, ["train", "valid"])
    before = inputs.fingerprint_data(shards, names)
    read = []
    monkeypatch.setattr(
        inputs, "sha256", lambda path: read.append(path) or before["sha256"][f"shard0/{path.name}"]
    )
    assert inputs.fingerprint_data(shards, names) == before
    assert {path.parent.name for path in read} == {"shard0"}


def test_a_first_shard_of_other_data_is_refused(shards):
    (shards / "shard0/train.bin").write_text("other")
    with pytest.raises(UserError, match=r"shard0/train\.bin: not the file that"):
        inputs.fingerprint_data(shards, inputs.masked_lm_files(shards, ["train"]))
