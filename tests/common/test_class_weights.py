"""Class weights: against scikit-learn, files and their errors."""

import json

import numpy as np
import pytest
from sklearn.utils.class_weight import compute_class_weight

from roberta_small.common import class_weights
from roberta_small.common.errors import UserError
from tests.support.data_folders import FIRST_PIECE, write_data, write_split

CLASSES = ["very bad", "so, so", "good"]


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("sizes", [[30, 7, 1], [5, 5, 5], [1, 300, 40]])
def test_balanced_weights_equal_scikit_learn(tmp_path, sizes):
    labels = np.repeat(np.arange(3), sizes)
    np.random.default_rng(1).shuffle(labels)
    write_split(tmp_path / "label", "train", [[FIRST_PIECE + int(label)] for label in labels])
    expected = compute_class_weight("balanced", classes=np.arange(3), y=labels)
    weights = class_weights.resolve("balanced", tmp_path, CLASSES)
    assert list(weights) == CLASSES
    np.testing.assert_allclose(list(weights.values()), expected, rtol=1e-15)


def test_several_training_splits_are_counted_together(tmp_path):
    write_data(tmp_path, sizes={"train": 4, "train1": 8, "valid": 2})
    both = sum(class_weights.label_counts(tmp_path, split, 2) for split in ("train", "train1"))
    weights = class_weights.resolve("balanced", tmp_path, ["0", "1"], ["train", "train1"])
    assert list(weights.values()) == (12 / (2 * both)).tolist()


def test_a_class_without_training_examples_is_an_error(tmp_path):
    write_data(tmp_path, sizes={"train": 8})
    with pytest.raises(UserError, match=r"good.*train"):
        class_weights.resolve("balanced", tmp_path, ["0", "1", "good"])


def test_missing_or_corrupt_labels_are_an_error(tmp_path):
    with pytest.raises(UserError, match=r"label/train\.idx"):
        class_weights.resolve("balanced", tmp_path, CLASSES)
    write_data(tmp_path, sizes={"train": 8})
    content = (tmp_path / "label/train.bin").read_bytes()
    (tmp_path / "label/train.bin").write_bytes(content[:-2])
    with pytest.raises(UserError, match=r"label/train\.bin"):
        class_weights.resolve("balanced", tmp_path, ["0", "1"])


@pytest.mark.parametrize(
    "text",
    [
        "very bad\t2.5\nso, so\t1\ngood\t0.7\n",
        '\ufeffgood,0.7\r\n"so, so",1\r\n\r\nvery bad, 2.5\r\n',
        "so, so,1\ngood,7e-1\nvery bad,2.50",
    ],
)
def test_a_file_has_a_class_and_its_weight_on_each_line(tmp_path, text):
    path = write(tmp_path / "weights", text)
    assert class_weights.resolve(str(path), tmp_path, CLASSES) == dict(
        zip(CLASSES, [2.5, 1.0, 0.7], strict=True)
    )


@pytest.mark.parametrize(
    ("line", "facts"),
    [
        ("good", ["line 3", "'good'"]),
        ("goood\t1", ["line 3", "'goood'", "good"]),
        ("very bad\t1", ["line 3", "'very bad'"]),
        ("good\tone", ["line 3", "'one'"]),
        ("good\t0", ["line 3", "'0'"]),
        ("good\t-1", ["line 3", "'-1'"]),
        ("good\tinf", ["line 3", "'inf'"]),
        ("good\tnan", ["line 3", "'nan'"]),
        ("", ["good"]),
    ],
)
def test_errors_of_a_file_name_file_and_line(tmp_path, line, facts):
    path = write(tmp_path / "weights", f"very bad\t2.5\nso, so\t1\n{line}\n")
    with pytest.raises(UserError) as error:
        class_weights.resolve(str(path), tmp_path, CLASSES)
    assert all(fact in str(error.value) for fact in [str(path), *facts])


def test_a_missing_file_is_an_error_that_names_the_other_values(tmp_path):
    with pytest.raises(UserError) as error:
        class_weights.resolve("balance", tmp_path, CLASSES)
    assert "balance:" in str(error.value)
    assert "did you mean balanced" in str(error.value)


@pytest.mark.parametrize("value", ['{"a": 1', '{"a": 1, "a": 2}', '{"a": 1}', '{"a": 1, "b": true}'])
def test_wrong_json_is_an_error(tmp_path, value):
    with pytest.raises(UserError, match="--class-weights"):
        class_weights.resolve(value, tmp_path, ["a", "b"])


def test_the_recorded_weights_are_exact(tmp_path):
    weights = {"l'été": 1 / 3, 'a "b"': 0.1, "back\\slash": 1e-9, "${x}": 2.0, "so, so": 5.0}
    value = class_weights.as_value(weights)
    assert class_weights.resolve(value, tmp_path, list(weights)) == weights
    assert json.loads(value) == weights


def test_more_weights_than_a_command_line_allows_are_an_error():
    with pytest.raises(UserError, match="--class-weights"):
        class_weights.as_value({f"class {i}": 1 / 3 for i in range(5000)})
