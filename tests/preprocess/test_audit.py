from pathlib import Path

import numpy as np
import pytest
import sentencepiece

from roberta_small.preprocess import audit
from roberta_small.preprocess.binarize import Split
from roberta_small.preprocess.examples import Row
from roberta_small.preprocess.readers.records import Record
from roberta_small.preprocess.tokenization.encoder import Encoder

TRAIN = ["un livre", "un livre  ", "Un livre !", "très long", "unique", "un  livre"]
TEST = ["très long", "un livre.", "nouveau", " unique"]
SPLITS = (("train", TRAIN, "001111"), ("test", TEST, "0101"))


@pytest.fixture
def data(tmp_path, monkeypatch, model):
    monkeypatch.chdir(tmp_path)
    for name, texts, _ in SPLITS:
        (tmp_path / f"{name}.input0").write_text("\n".join(texts) + "\n", encoding="utf-8")
    processor = sentencepiece.SentencePieceProcessor(model_file=model)
    tokens = [processor.id_to_piece(i) for i in range(3, len(processor)) if i % 4]
    (tmp_path / "dict.txt").write_text("".join(f"{token} 1\n" for token in tokens), encoding="utf-8")
    return tmp_path


def run(model, pairs=False, **options):
    rows, files = {}, []
    for name, texts, labels in SPLITS:
        second = map(str, range(len(texts))) if pairs else [None] * len(texts)
        rows[name] = [
            Row("a.csv", Record(text, 1, pair), label)
            for text, pair, label in zip(texts, second, labels, strict=True)
        ]
        files.append(Split(name, {"input0": [f"{name}.input0"]}, None))
    return audit.audit(rows, files, Encoder.from_files(model, "dict.txt"), Path(), **options)


def test_duplicates_and_conflicts(data, model):
    report = run(model)
    assert report["duplicates"]["exact"] == {
        "train": {"test": [3, 4], "train": [1]},
        "test": {"train": [0, 3], "test": []},
    }
    assert report["duplicates"]["normalized"] == {
        "train": {"test": [0, 1, 2, 3, 4, 5], "train": [1, 2, 5]},
        "test": {"train": [0, 1, 3], "test": []},
    }
    assert report["conflicts"] == [{"train": {"3": "1"}, "test": {"0": "0"}}]
    assert report["splits"]["train"]["labels"] == {"0": 2, "1": 4}


def test_lengths_and_unknown_tokens(data, model):
    split = run(model, max_positions=9)["splits"]["train"]
    processor = sentencepiece.SentencePieceProcessor(model_file=model)
    known = {line.rsplit(" ", 1)[0] for line in (data / "dict.txt").read_text(encoding="utf-8").splitlines()}
    tokens = [processor.encode(text, out_type=str) for text in TRAIN]
    lengths = np.array([len(row) + 2 for row in tokens])
    unknown = sum(token not in known for row in tokens for token in row)
    assert split["tokens"] == lengths.sum() - len(TRAIN)
    assert (split["unknown"], split["unknown_rate"]) == (unknown, round(unknown / split["tokens"], 6))
    assert unknown > 0
    assert split["lengths"] == {
        "mean": round(lengths.mean(), 2),
        "median": np.median(lengths),
        "p95": round(np.percentile(lengths, 95), 1),
        "max": lengths.max(),
        "max_positions": 9,
        "truncated": (lengths > 9).sum(),
        "truncated_share": round((lengths > 9).mean(), 6),
    }
    assert 0 < split["lengths"]["truncated"] < len(TRAIN)


def test_pairs_are_duplicates_as_a_whole(data, model):
    exact = run(model, pairs=True)["duplicates"]["exact"]
    assert exact == {"train": {"test": [], "train": []}, "test": {"train": [], "test": []}}


def test_normalized_ignores_case_punctuation_and_spacing():
    assert audit.normalized(" L’École,\u00a0 c'est  « BIEN » !") == "l école c est bien"
