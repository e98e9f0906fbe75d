"""`--soft-labels`: texts with class probabilities become training examples, and fairseq trains on them."""

from pathlib import Path

import numpy as np
import pytest
import torch

from roberta_small.common.errors import UserError
from roberta_small.experiments.inputs.files import classification_files
from roberta_small.fairseq_plugin.tasks.datasets import load_soft_labels
from roberta_small.preprocess import soft_labels
from roberta_small.preprocess.examples import Examples, Row
from roberta_small.preprocess.readers.records import Record
from roberta_small.preprocess.readers.tables import Columns, load
from tests.support.labelled_files import content, lines, prepare, texts, write_csv, write_json_lines

LABELS = ["bad", "good", "neither"]


@pytest.fixture
def reviews(workdir):
    return write_csv("reviews.csv", zip(texts(60), LABELS * 20, strict=True))


def predictions(path, rows):
    """The JSON lines of `roberta-small predict --with-text`."""
    found = [{"text": text, "probabilities": dict(zip(LABELS, values, strict=True))} for text, values in rows]
    return write_json_lines(path, found)


SOFT = [[0.7, 0.2, 0.1], [0.05, 0.15, 0.8], [0.25, 0.5, 0.25]]


def test_the_texts_are_the_last_training_examples(reviews, workdir, capsys):
    prepare(reviews)
    hard, labels = lines("train.input0"), lines("train.label")
    held_out = lines("test.input0")[0].upper()
    new = texts(3, seed=9)
    soft = predictions("soft.jsonl", [*zip(new, SOFT, strict=True), (held_out, SOFT[0]), (" ", SOFT[0])])
    capsys.readouterr()
    prepare(reviews, "--soft-labels", soft, "--overwrite")
    assert "3 further training examples" in (printed := capsys.readouterr().out)
    assert "left out, text with a soft label that is in test: 1 row (soft.jsonl:4)" in printed
    assert "left out, no text: 1 row (soft.jsonl:5)" in printed
    assert "repeat" not in printed
    assert lines("train.input0") == [*hard, *new]
    assert lines("train.label") == [*labels, "bad", "neither", "good"]
    classes = content("preprocess.json")["labels"]
    found_NK = np.load("data/label/train.soft.npy")
    assert found_NK.dtype == np.float32
    wanted = [[float(label == name) for name in classes] for label in labels]
    wanted += [[values[LABELS.index(name)] for name in classes] for values in SOFT]
    np.testing.assert_allclose(found_NK, wanted, atol=1e-6)
    places = content("split.json")["examples"]["train"]
    assert places[-3:] == [["soft.jsonl", 1], ["soft.jsonl", 2], ["soft.jsonl", 3]]
    assert "label/train.soft.npy" in content("preprocess.json")["files"]
    repeated = predictions("soft.jsonl", [(hard[0], SOFT[0]), (new[0], SOFT[0]), (new[0].upper(), SOFT[1])])
    prepare(reviews, "--soft-labels", repeated, "--overwrite")
    assert "2 of them repeat a text of train" in capsys.readouterr().out


def test_a_class_that_the_classifier_does_not_know_is_a_warning(reviews, workdir, capsys):
    rows = [{"text": text, "probabilities": {"bad": 0.4, "good": 0.6}} for text in texts(2, seed=9)]
    write_json_lines("soft.jsonl", rows)
    prepare(reviews, "--soft-labels", "soft.jsonl")
    assert "warning: soft.jsonl has no probability of 'neither'" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["regression", "multi-label"])
def test_numbers_and_sets_of_labels_have_no_soft_labels(workdir, capsys, kind):
    label = {"regression": "1.5", "multi-label": "bad;good"}[kind]
    write_csv("reviews.csv", [(text, label) for text in texts(30)])
    soft = predictions("soft.jsonl", [(texts(1, seed=9)[0], SOFT[0])])
    prepare("reviews.csv", "--task", kind, "--soft-labels", soft, expect=1)
    assert "--soft-labels: only for data with one class per text" in capsys.readouterr().err


def test_pairs_of_a_reader_without_columns_have_no_soft_labels(workdir):
    """The second texts of a file of predictions could not be found."""
    rows = [Row("pairs.toy", Record("un", 1, pair="deux"), "bad")]
    examples = Examples({"train": rows}, Columns())
    with pytest.raises(UserError, match="not for sentence pairs"):
        soft_labels.add(examples, predictions("soft.jsonl", [("trois", SOFT[0])]))


def test_probabilities_may_be_rounded_to_two_digits(workdir):
    """The error of their sum grows with the number of classes."""
    p = {"one": 0.92, **{f"other {i}": 0.0 for i in range(19)}}  # 0.924 and 19 times 0.004
    write_json_lines("soft.jsonl", [{"text": "un", "probabilities": p}])
    ((found,), _) = soft_labels.read(load("soft.jsonl"), Columns())
    assert found.probabilities["one"] == pytest.approx(1)


def test_tables_have_a_column_for_each_class(workdir):
    header = ("body", "note", "prediction", "p(bad)", "p( very  good )", "note_2")
    rows = [("Un livre", "5", "good", ".33", "0,66", ""), ("", "", "", "1", "0", "")]
    path = write_csv("soft.csv", rows, header)
    (found,), (empty,) = soft_labels.read(load(path), Columns(text="body"))
    assert (found.record.text, found.label) == ("Un livre", "very good")
    assert found.probabilities == pytest.approx({"bad": 1 / 3, "very good": 2 / 3})
    assert empty.record.line == 3
    (found,), _ = soft_labels.read(load(path), Columns(text="note"))
    assert found.record.text == "5"


def test_pairs_are_read_from_the_columns_of_the_labelled_pairs(workdir):
    header = ("hypothesis", "premise", "id", "p(bad)", "p(good)")
    path = write_csv("soft.csv", [("deux", "un", "7", "0", "1"), ("deux", "", "8", "0", "1")], header)
    (found,), (empty,) = soft_labels.read(load(path), Columns(text="premise", pair="hypothesis"))
    assert (found.record.text, found.record.pair, empty.record.line) == ("un", "deux", 3)


@pytest.mark.parametrize(
    ("written", "named"),
    [
        ('{"text": "un", "label": "bad"}', "no column 'probabilities'"),
        ('{"probabilities": {"bad": 1}}', "no column 'text'"),
        ('{"id": "1", "probabilities": {"bad": 1}}', "no column 'text'"),
        ('{"text": "un", "probabilities": {"bad": 0.5, "good": 0.6}}', "line 1: {'bad': 0.5, 'good': 0.6}"),
        ('{"text": "un", "probabilities": {"bad": -1, "good": 2}}', "line 1: {'bad': -1, 'good': 2}"),
        ('{"text": "un", "probabilities": {"bad": "half"}}', "line 1: {'bad': 'half'}: not a number"),
        ('{"text": "un", "probabilities": {"bad": NaN, "good": 1}}', "sum 1"),
        ('{"text": "un", "probabilities": {"bad": 1' + 400 * "0" + "}}", "not a number"),
        ('{"text": "un", "probabilities": [0.5, 0.6]}', "line 1: [0.5, 0.6] is not an object"),
        ('{"text": "un", "probabilities": {}}', "not an object"),
        ('{"text": "un", "probabilities": {"bad": 0.5, "Good": 0.5}}', "class 'Good' is unknown"),
        ('{"text": "un", "probabilities": {"bad": 1}, "p(bad)": 1}', "both column"),
        ('{"text": "un", "probabilities": {"bad": 1}, "probabilities_2": {"good": 1}}', "two classifiers"),
        ('{"text": " ", "probabilities": {"bad": 1}}', "no text for training (0 in valid or test, 1 without"),
    ],
)
def test_what_are_no_soft_labels_is_refused(reviews, workdir, capsys, written, named):
    Path("soft.jsonl").write_text(written + "\n", encoding="utf-8")
    prepare(reviews, "--soft-labels", "soft.jsonl", expect=1)
    printed = capsys.readouterr().err
    assert named in printed
    assert "soft.jsonl" in printed
    assert not Path("data").exists()


def test_files_that_are_no_tables_are_refused(reviews, workdir, capsys):
    prepare(reviews, "--soft-labels", "missing.jsonl", expect=1)
    assert "--soft-labels missing.jsonl: no such file" in capsys.readouterr().err
    Path("soft.txt").write_text("Un livre.\n")
    prepare(reviews, "--soft-labels", "soft.txt", expect=1)
    assert "--soft-labels soft.txt: not a table" in capsys.readouterr().err


def test_soft_labels_that_are_recorded_must_exist(reviews, workdir):
    prepare(reviews, "--soft-labels", predictions("soft.jsonl", [(texts(1, seed=9)[0], SOFT[0])]))
    path = Path("data/label/train.soft.npy")
    count = len(lines("train.input0"))
    assert "label/train.soft.npy" in classification_files(Path("data"), ["train", "valid"])
    assert len(load_soft_labels("data", "train", count, 3, 3)) == count
    path.write_bytes(path.read_bytes()[:-4] + bytes(4))
    with pytest.raises(UserError, match=r"train\.soft\.npy: not the file that"):
        load_soft_labels("data", "train", count, 3, 3)
    path.unlink()
    for read in (
        lambda: load_soft_labels("data", "train", count, 3, 3),
        lambda: classification_files(Path("data"), ["train"]),
    ):
        with pytest.raises(UserError, match=r"train\.soft\.npy: no such file, but .* records it"):
            read()


def test_the_array_fits_the_examples(tmp_path):
    (tmp_path / "label").mkdir()
    path = tmp_path / "label/train.soft.npy"
    assert load_soft_labels(str(tmp_path), "train", 3, 2, 2) is None
    p_NK = np.array([[0.5, 0.5], [1, 0], [0.25, 0.75]], dtype=np.float32)
    np.save(path, p_NK)
    found = load_soft_labels(str(tmp_path), "train", 3, 2, 3)
    batch_BK = found.collater([found[2], found[0]])
    assert torch.equal(batch_BK, torch.tensor([[0.25, 0.75, 0], [0.5, 0.5, 0]]))
    for wrong, examples, named in [
        (p_NK, 4, "3, 2"),
        (p_NK[:, :1], 3, "3, 1"),
        (p_NK * 2, 3, "example 1: not probabilities"),
        (np.array([None, 1, 2]), 3, "not an array"),
    ]:
        np.save(path, wrong, allow_pickle=True)
        with pytest.raises(UserError, match=named):
            load_soft_labels(str(tmp_path), "train", examples, 2, 2)
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(UserError, match="not an array"):
        load_soft_labels(str(tmp_path), "train", 3, 2, 2)
