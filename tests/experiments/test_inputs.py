import hashlib
import json

import numpy as np
import pytest

from roberta_small.common.errors import UserError
from roberta_small.common.label_kinds import REGRESSION
from roberta_small.experiments.inputs import files as inputs
from roberta_small.experiments.inputs.checkpoints import Resolved
from roberta_small.preprocess.__main__ import main as preprocess
from tests.support.labelled_files import tokenizer, write_csv

SUBSETS = ["train", "valid", "test"]


def test_missing_files_are_listed(here):
    (here / "bin/label/test.idx").unlink()
    (here / "bin/input0/dict.txt").unlink()
    with pytest.raises(UserError, match=r"bin: .*input0/dict\.txt, label/test\.idx.*--data"):
        inputs.classification_files(here / "bin", SUBSETS)
    with pytest.raises(UserError, match=r"bim: .*--data"):
        inputs.classification_files(here / "bim", SUBSETS)
    with pytest.raises(UserError, match=r"bin: .*\bdict\.txt"):
        inputs.masked_lm_files(here / "bin", ["train"])
    with pytest.raises(UserError, match=r"a:b: .*':'"):
        inputs.masked_lm_files(here / "a:b", ["train"])


def test_the_layout_of_numbers_of_stock_fairseq(tmp_path):
    names = ["input0/dict.txt", *(f"input0/{name}.{end}" for name in SUBSETS for end in ("bin", "idx"))]
    for name in (*names, "label/train.label", "label/valid.label"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    assert inputs.label_kind(tmp_path).name == REGRESSION
    assert inputs.subset_flags(tmp_path) == ["--valid-subset", "valid"]
    found = inputs.classification_files(tmp_path, ["train", "valid"])
    assert {"label/train.label", "label/valid.label"} < set(found)
    (tmp_path / "label/dict.txt").write_text("0 1\n1 1\n")
    assert inputs.label_kind(tmp_path).name != REGRESSION
    assert inputs.subset_flags(tmp_path / "input0") == []


def test_the_majority_class_of_each_subset(tmp_path):
    rows = [(f"review {i}", "neg" if i % 50 else "pos") for i in range(200)]
    write_csv(tmp_path / "a.csv", rows)
    words = ["--valid", "50", "--test", "40", "--tokenizer", tokenizer(), "--out", str(tmp_path / "data")]
    assert preprocess(["prepare", str(tmp_path / "a.csv"), *words]) == 0
    classes = inputs.class_names(tmp_path / "data/label/dict.txt")
    found = inputs.majorities(tmp_path / "data", ["valid", "test", "missing"], classes)
    for subset, one in found.items():
        labels = (tmp_path / f"data/text/{subset}.label").read_text().split()
        assert one.name == "neg"
        assert one.value == pytest.approx(100 * labels.count("neg") / len(labels))
    assert list(found) == ["valid", "test"]


def test_the_mean_of_each_subset(tmp_path):
    write_csv(tmp_path / "a.csv", [(f"review {i}", 1 + i**0.5) for i in range(40)])
    words = ["--task", "regression", "--valid", "9", "--tokenizer", tokenizer()]
    words += ["--out", str(tmp_path / "data")]
    assert preprocess(["prepare", str(tmp_path / "a.csv"), *words]) == 0
    train, valid = (np.loadtxt(tmp_path / f"data/text/{name}.label") for name in ("train", "valid"))
    rmse = ((valid - train.mean()) ** 2).mean() ** 0.5
    for metric, value in (("rmse", rmse), ("pearson", 0)):
        found = inputs.majorities(tmp_path / "data", ["valid", "missing"], [], metric)
        name = f"mean {train.mean():.4g}"
        assert found == {"valid": inputs.Majority(name, pytest.approx(value), 9, metric)}
    assert inputs.majorities(tmp_path / "data", ["valid"], [], "loss") == {}


@pytest.mark.parametrize(
    ("text", "fact"), [("1 900\n0\n", "line 2: '0'"), ("1 900\nmadeupword0000 0\n", ": 1 "), ("", ": 0 ")]
)
def test_invalid_label_dictionaries_raise(here, text, fact):
    path = here / "bin/label/dict.txt"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        inputs.class_names(path)
    assert str(path) in str(caught.value)
    assert fact in str(caught.value)


def test_fingerprints_of_data_and_checkpoint(here):
    expected = hashlib.sha256(b"label train bin").hexdigest()
    data = inputs.fingerprint_data(here / "bin", ["label/train.bin"])
    assert data == {"path": "bin", "sha256": {"label/train.bin": expected}}
    checkpoint = Resolved(here / "model.pt").fingerprint()
    assert checkpoint == {"path": "model.pt", "sha256": hashlib.sha256(b"weights").hexdigest()}


def test_data_that_differ_from_their_recorded_checksum_raise(here):
    data, files = here / "bin", ["input0/train.bin", "label/train.bin"]
    digests = inputs.fingerprint_data(data, files)["sha256"]
    (data / "preprocess.json").write_text(json.dumps({"files": digests | {"input0/valid.bin": "not read"}}))
    assert inputs.fingerprint_data(data, files)["sha256"] == digests
    (data / "input0/train.bin").write_text("input0 train bim")
    with pytest.raises(UserError, match=r"input0/train\.bin: .*preprocess\.json"):
        inputs.fingerprint_data(data, files)


def test_files_of_shards_of_which_the_first_is_hashed(tmp_path):
    for number in range(3):
        (tmp_path / f"shard{number}").mkdir()
        valid = ["valid.bin", "valid.idx"] if number == 0 else []
        for name in ["dict.txt", "train.bin", "train.idx", *valid]:
            (tmp_path / f"shard{number}" / name).write_text(f"{number} {name}")
    names = inputs.masked_lm_files(tmp_path, ["train", "valid"])
    assert sorted(names) == sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.glob("*/*"))
    digests = inputs.fingerprint_data(tmp_path, names)["sha256"]
    (tmp_path / "preprocess.json").write_text(json.dumps({"files": digests}))
    (tmp_path / "shard1/train.bin").write_text("other, which its reader finds when it is opened")
    assert inputs.fingerprint_data(tmp_path, names)["sha256"] == digests
    (tmp_path / "shard0/train.bin").write_text("other")
    with pytest.raises(UserError, match=r"shard0/train\.bin: .*preprocess\.json"):
        inputs.fingerprint_data(tmp_path, names)
    (tmp_path / "shard2/train.idx").unlink()
    with pytest.raises(UserError, match=r"shard2/train\.idx"):
        inputs.masked_lm_files(tmp_path, ["train", "valid"])
