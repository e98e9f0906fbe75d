"""FLUE: archives of the same form as those of the authors, to JSON lines, to data folders."""

import json
import re
from pathlib import Path

import pytest

from roberta_small.common.errors import UserError
from roberta_small.preprocess.__main__ import main
from roberta_small.preprocess.download.archives import (
    CATEGORIES,
    CLS_ARCHIVE,
    CLS_MEMBER,
    PAWSX_ARCHIVE,
    XNLI_ARCHIVE,
    XNLI_TRAIN_ARCHIVE,
    unpack_flue,
)
from tests.support.archives import write_tar, write_zip

REVIEW = "<item><category>{}</category><rating>{}</rating><text>Avis {} &amp; {}</text></item>"
PAWSX = ("id", "sentence1", "sentence2", "label")
XNLI = ("language", "gold_label", "sentence1_binary_parse", "sentence2_binary_parse", "sentence1_parse",
        "sentence2_parse", "sentence1", "sentence2", "promptID")  # fmt: skip
PARTS = [(category, split) for category in CATEGORIES for split in ("train", "test")]
LABELS = ("neutral", "entailment", "contradiction")


def tsv(header, rows):
    return "".join("\t".join(map(str, row)) + "\n" for row in [header, *rows]).encode()


def pairs(split):
    rows = [(i, f'" Phrase {i} {split}', f"Phrase {i}", i % 2) for i in range(30)]
    return [*rows, (30, "NS", "Phrase", 1), (31, "Phrase", "", 0)]


def inference(split):
    rows = []
    for i in range(12):
        texts = f"{split} {i}", f"hypothèse {i}"
        rows += [(name, LABELS[i % 3], *[""] * 4, f"{name} {texts[0]}", texts[1], i) for name in ("en", "fr")]
    return rows


@pytest.fixture
def archives(tmp_path, monkeypatch, expect):
    """A function that writes the archives to the folder `local`, whose digests are then the expected ones."""
    monkeypatch.chdir(tmp_path)
    local = tmp_path / "local"
    local.mkdir()

    def write(pawsx=None, header=("premise", "hypo", "label")):
        reviews = {"cls-acl10-unprocessed/de/books/train.review": b"not XML"}
        for category, split in PARTS:
            items = "".join(REVIEW.format(category, 1 + 4 * (i % 2), i, split) for i in range(20))
            reviews[CLS_MEMBER.format(category=category, split=split)] = f"<items>{items}</items>".encode()
        write_tar(local / CLS_ARCHIVE, reviews)
        files = {"translated_train": "train", "dev_2k": "dev", "test_2k": "test"}
        found = {f"x-final/fr/{name}.tsv": tsv(PAWSX, pawsx or pairs(split)) for name, split in files.items()}
        write_tar(local / PAWSX_ARCHIVE, found)
        names = ("neutral", "entailment", "contradictory")
        train = tsv(header, [(f"Prémisse {i}", f"hypothèse {i}", names[i % 3]) for i in range(12)])
        write_zip(local / XNLI_TRAIN_ARCHIVE, {"XNLI-MT-1.0/multinli/multinli.train.fr.tsv": train})
        found = {f"XNLI-1.0/xnli.{split}.tsv": tsv(XNLI, inference(split)) for split in ("dev", "test")}
        write_zip(local / XNLI_ARCHIVE, found)
        expect("flue", local)
        return local

    return write


def rows(path):
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def test_all_tasks(archives, capsys):
    assert main(["download", "flue", "--out", "flue", "--from", str(archives())]) == 0
    printed = capsys.readouterr().out
    found = {str(path.relative_to("flue")) for path in Path("flue").rglob("*.jsonl")}
    reviews = {f"cls-{category}/{split}.jsonl" for category, split in PARTS}
    assert found == reviews | {
        f"{t}/{s}.jsonl" for t in ("paws-x", "xnli") for s in ("train", "valid", "test")
    }
    assert rows("flue/cls-music/test.jsonl")[1] == {"text": "Avis 1 & test", "label": "1"}
    valid = rows("flue/paws-x/valid.jsonl")
    assert len(valid) == 30
    # A quotation mark at the beginning of a field does not enclose it.
    assert valid[3] == {"sentence1": '" Phrase 3 dev', "sentence2": "Phrase 3", "label": "1"}
    assert re.search(r"paws-x/valid\.jsonl: 30 .*: 2\n", printed)
    assert rows("flue/xnli/train.jsonl")[2]["label"] == "contradiction"
    test = rows("flue/xnli/test.jsonl")
    assert len(test) == 12
    assert test[1] == {"premise": "fr test 1", "hypothesis": "hypothèse 1", "label": "entailment"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pawsx": [(1, "a", "b")]}, r"x-final\.tar\.gz: x-final/fr/\S+, line 2: 3 fields"),
        ({"pawsx": [(1, "a", "b", 0), (2, "a", "b", "x")]}, r"line 3: label 'x'"),
        ({"pawsx": [(1, "NS", "b", 0)]}, r"no examples"),
        ({"header": ("premise", "hypothesis", "label")}, r"multinli\.train\.fr\.tsv, line 1: .*hypo"),
    ],
)
def test_another_content(archives, capsys, changes, message):
    local = archives(**changes)
    assert main(["download", "flue", "--out", "flue", "--from", str(local)]) == 1
    error = capsys.readouterr().err
    assert re.search(message, error)
    assert error.count("\n") == 1


def test_damaged_zip_archives(archives):
    local = archives()
    whole = (local / XNLI_ARCHIVE).read_bytes()
    for content in (whole[: len(whole) // 2], whole[:60] + bytes(20) + whole[80:], b"<html></html>"):
        (local / XNLI_ARCHIVE).write_bytes(content)
        with pytest.raises(UserError, match=XNLI_ARCHIVE):
            unpack_flue(local)
