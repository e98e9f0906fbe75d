import json
import re

import numpy as np
import pytest
import sentencepiece

from roberta_small.preprocess import audit
from roberta_small.preprocess.__main__ import main

TRAIN = ["un livre", "un livre  ", "Un livre !", "très long", "unique", "un  livre"]
TEST = ["très long", "un livre.", "nouveau", " unique"]


@pytest.fixture
def data(tmp_path, monkeypatch, model):
    monkeypatch.chdir(tmp_path)
    for name, texts, labels in (("train", TRAIN, "001111"), ("test", TEST, "0101")):
        (tmp_path / f"{name}.input0").write_text("\n".join(texts) + "\n", encoding="utf-8")
        (tmp_path / f"{name}.label").write_text("\n".join(labels) + "\n")
    processor = sentencepiece.SentencePieceProcessor(model_file=model)
    tokens = [processor.id_to_piece(i) for i in range(3, len(processor)) if i % 4]
    (tmp_path / "dict.txt").write_text("".join(f"{token} 1\n" for token in tokens), encoding="utf-8")
    return tmp_path


def run(*arguments):
    return main(["audit", "--trainpref", "train", "--testpref", "test", "--out", "audit.json", *arguments])


def test_duplicates_and_conflicts(data):
    assert run() == 0
    report = json.loads((data / "audit.json").read_text())
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
    assert "lengths" not in report["splits"]["train"]


def test_lengths_and_unknown_tokens(data, model):
    assert run("--sentencepiece-model", model, "--srcdict", "dict.txt", "--max-positions", "9") == 0
    split = json.loads((data / "audit.json").read_text())["splits"]["train"]
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


def test_table_is_markdown(data, capsys):
    run()
    *lines, _, last = capsys.readouterr().out.splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert rows[0] == ["", "train", "test"]
    assert {len(row) for row in rows} == {3}
    assert [row[1:] for row in rows if "train (exact)" in row[0]] == [["", "2"]]
    assert [row[1:] for row in rows if "test (normalized)" in row[0]] == [["6", ""]]
    assert re.findall(r"\d+", last) == ["1"]


def test_pairs_are_duplicates_as_a_whole(data):
    for name, texts in (("train", TRAIN), ("test", TEST)):
        (data / f"{name}.input1").write_text("".join(f"{i}\n" for i in range(len(texts))))
    assert run("--inputs", "input0", "input1") == 0
    exact = json.loads((data / "audit.json").read_text())["duplicates"]["exact"]
    assert exact == {"train": {"test": [], "train": []}, "test": {"train": [], "test": []}}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--srcdict", "dict.txt"], "--sentencepiece-model and --dict: "),
        (["--inputs", "review"], r"train\.review: "),
        (["--testpref", "short"], r"short\.input0 .*\b1\b.*short\.label .*\b2\b"),
    ],
)
def test_fault_is_a_clear_error(data, capsys, arguments, message):
    (data / "short.input0").write_text("un\n")
    (data / "short.label").write_text("0\n1\n")
    assert run(*arguments) == 1
    error = capsys.readouterr().err
    assert re.search(message, error)
    assert error.count("\n") == 1
    assert not (data / "audit.json").exists()


def test_normalized_ignores_case_punctuation_and_spacing():
    assert audit.normalized(" L’École,\u00a0 c'est  « BIEN » !") == "l école c est bien"


def test_figures_of_cls_books(shared_data, tmp_path):
    """54 reviews of the test set stand in train, and the tokens are those of the published logs."""
    books, xlmr = shared_data / "cls-books", shared_data / "xlmr"
    arguments = ["--trainpref", str(books / "train"), "--testpref", str(books / "test"), "--inputs", "review"]
    arguments += ["--sentencepiece-model", str(xlmr / "sentencepiece.bpe.model")]
    arguments += ["--srcdict", str(xlmr / "dict.txt"), "--out", str(tmp_path / "audit.json")]
    assert main(["audit", *arguments]) == 0
    report = json.loads((tmp_path / "audit.json").read_text())
    assert len(report["duplicates"]["exact"]["test"]["train"]) == 54
    assert len(report["duplicates"]["exact"]["train"]["train"]) == 34
    assert report["splits"]["train"]["tokens"] == 315_231
    assert report["splits"]["test"]["tokens"] == 311_660
