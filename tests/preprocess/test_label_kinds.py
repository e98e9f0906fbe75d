"""Multi-label and numeric labels in `prepare`: what is detected, written and refused."""

import json
from pathlib import Path

import numpy as np
import pytest

from roberta_small.common.errors import UserError
from roberta_small.common.label_kinds import KINDS, SINGLE_LABEL
from roberta_small.preprocess.__main__ import main
from roberta_small.preprocess.label_cells import label_lines
from tests.support.labelled_files import content, lines, prepare, texts, write_csv, write_json_lines

NUMBERS = [f"{i % 13 / 2.5:.3f}" for i in range(60)]
LISTS = [["a"], ["a", "b"], [], ["b", "two words"]] * 15
KIND = "label_kind"


def csv_of(labels, header=("text", "label")):
    cells = [[label] if isinstance(label, str) else label for label in labels]
    return write_csv(
        "a.csv", [(text, *row) for text, row in zip(texts(len(cells)), cells, strict=True)], header
    )


def lists_of(labels):
    rows = zip(texts(len(labels)), labels, strict=True)
    return write_json_lines("a.jsonl", [{"text": text, "label": label} for text, label in rows])


def report():
    return content("preprocess.json")


def rows_of(split):
    """The labels in the binary file, by fairseq."""
    from fairseq.data import Dictionary, data_utils

    dictionary = Dictionary.load("data/label/dict.txt")
    dataset = data_utils.load_indexed_dataset(f"data/label/{split}", dictionary)
    return [[dictionary[i] for i in dataset[n].tolist()] for n in range(len(dataset))]


def test_numbers_are_detected_and_standardized_on_train(workdir, capsys):
    prepare(csv_of(NUMBERS))
    assert "regression" in capsys.readouterr().out
    values = np.array(lines("train.label"), dtype=float)
    assert report()[KIND] == "regression"
    assert report()["labels"] == []
    assert report()["label_scaling"] == {"mean": values.mean(), "scale": values.std()}
    assert Path("data/label/train.label").read_text().split() == lines("train.label")
    assert "label/train.label" in report()["files"]
    parts = [len(lines(f"{split}.label")) for split in ("train", "valid", "test")]
    assert parts == [48, 6, 6]
    # Stratified by ranges: valid covers the range of the labels.
    assert max(map(float, lines("valid.label"))) > 3
    assert min(map(float, lines("valid.label"))) < 2


def test_numbers_are_classes_or_classes_numbers_on_request(workdir):
    prepare(csv_of(["1", "2", "3"] * 20), "--task", "regression")
    assert report()[KIND] == "regression"
    prepare(csv_of(NUMBERS), "--task", "classification", "--overwrite")
    assert KIND not in report()
    assert len(report()["labels"]) == 13


@pytest.mark.parametrize("kind", ["lists", "text", "python", "separated", "columns"])
def test_all_ways_to_write_several_labels_give_the_same_data(workdir, kind):
    names = sorted({name for labels in LISTS for name in labels})
    cells = [[str(int(name in labels)) for name in names] for labels in LISTS]
    files = {
        "lists": lambda: [lists_of(LISTS)],
        "text": lambda: [csv_of([json.dumps(labels) for labels in LISTS])],
        "python": lambda: [csv_of([str(labels) for labels in LISTS])],
        "separated": lambda: [
            csv_of(["; ".join(labels) or ";" for labels in LISTS]), "--label-separator", ";",
        ],
        "columns": lambda: [
            csv_of(cells, ("text", *names)), "--label-column", *names,
        ],
    }  # fmt: skip
    prepare(*files[kind]())
    assert report()[KIND] == "multi_label_classification"
    assert sorted(report()["labels"]) == names
    for split in ("train", "valid", "test"):
        expected = [json.loads(line) for line in lines(f"{split}.label")]
        assert [sorted(row[:-1]) for row in rows_of(split)] == expected
        assert all(row[-1] == "</s>" for row in rows_of(split))
    found = [
        labels for split in ("train", "valid", "test") for labels in map(json.loads, lines(f"{split}.label"))
    ]
    assert sorted(found) == sorted(map(sorted, LISTS))


@pytest.mark.parametrize("form", [str, float])
def test_empty_cells_of_indicators_are_counted(workdir, capsys, form):
    cells = [[form(i % 2), "" if i % 3 == 0 else form(0)] for i in range(60)]
    cells[4:6] = [["", ""], [form(1), form(1)]]
    prepare(csv_of(cells, ("text", "a", "b")), "--label-column", "a", "b")
    assert "'b' 20" in capsys.readouterr().out
    assert content("split.json")["left_out"] == [["a.csv", 6, "no label"]]
    assert sum('"b"' in line for name in ("train", "valid", "test") for line in lines(f"{name}.label")) == 1


def test_labels_that_look_alike_are_merged(workdir):
    prepare(lists_of([["a", "B"], ["A", "b"], ["a", "b"]] * 20), "--merge-labels")
    assert sorted(report()["labels"]) == ["a", "b"]


def test_line_files_have_their_kind(workdir):
    prepare(lists_of(LISTS))
    words = ["data/text/train.input0", "--valid", "data/text/valid.input0", "--test", "data/text/test.input0"]
    assert main(["prepare", *words, "--tokenizer", "data", "--out", "again"]) == 0
    assert Path("again/label/train.bin").read_bytes() == Path("data/label/train.bin").read_bytes()
    assert json.loads(Path("again/preprocess.json").read_text())[KIND] == report()[KIND]


@pytest.mark.parametrize(
    ("labels", "words", "named"),
    [
        ([*NUMBERS, "many"], ("--task", "regression"), ("a.csv, line 62", "'many'")),
        ([*NUMBERS, "nan"], ("--task", "regression"), ("a.csv, line 62", "'nan'")),
        (["3"] * 30, ("--task", "regression"), ("a.csv", "3")),
        (NUMBERS, ("--merge-labels",), ("--merge-labels",)),
        (NUMBERS, ("--label-separator", "|", "--task", "regression"), ("--label-separator", "--task")),
        (NUMBERS, ("--label-separator", ""), ("--label-separator",)),
        (['["a", 1]', '[["b"]]'] * 20, (), ("a.csv, line 3", "['b']")),
        (['["a"]'] * 30, (), ("a.csv", "1 label")),
    ],
)
def test_contradictory_labels_are_one_error(workdir, capsys, labels, words, named):
    prepare(csv_of(labels), *words, expect=1)
    error = capsys.readouterr().err
    assert all(fact in error for fact in named)
    assert not Path("data").exists()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--label-column", "a", "b"), ("a.csv, line 3", "'b'", "'maybe'")),
        (("--label-column", "a", "c"), ("'c'",)),
        (("--label-column", "a", "a"), ("'a' twice",)),
        (("--label-column", "a", "b", "--task", "regression"), ("--task regression", "2 columns")),
        (("--label-column", "a", "b", "--label-separator", "|"), ("--label-separator",)),
    ],
)
def test_wrong_columns_of_labels_are_one_error(workdir, capsys, words, named):
    cells = [["1", "0"], ["0", "1"]] * 20
    if "maybe" in str(named):
        cells[1][1] = "maybe"
    prepare(csv_of(cells, ("text", "a", "b")), *words, expect=1)
    error = capsys.readouterr().err
    assert all(fact in error for fact in named)


def test_the_words_of_a_line_are_one_label(tmp_path):
    (tmp_path / "a.label").write_text("négatif\n très  positif \n", encoding="utf-8")
    assert label_lines(str(tmp_path / "a.label"), KINDS[SINGLE_LABEL]) == ["négatif", "très positif"]


@pytest.mark.parametrize("line", ["", " ", "<pad>", "madeupword0000", "a #fairseq:overwrite"])
def test_lines_that_are_no_labels_are_refused(tmp_path, line):
    (tmp_path / "a.label").write_text(f"1\n{line}\n")
    with pytest.raises(UserError, match=r"a\.label, line 2"):
        label_lines(str(tmp_path / "a.label"), KINDS[SINGLE_LABEL])
