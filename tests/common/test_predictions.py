"""Prediction files: round trip, and errors that name file and line."""

import hashlib
import json

import numpy as np
import pytest

from roberta_small.common.data_folder import keys_of
from roberta_small.common.errors import UserError
from roberta_small.common.label_kinds import Labels
from roberta_small.common.predictions import (
    Prediction,
    file_name,
    from_outputs,
    may_be_same,
    read,
    write,
)

GOOD = {"index": 0, "gold": "1", "probabilities": {"0": 0.25, "1": 0.75}}


def write_lines(path, *records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


@pytest.fixture
def path(tmp_path):
    return tmp_path / file_name("test")


def test_line_of_a_prediction_file(path):
    write(path, [Prediction(0, "é", {"à": 0.12, "é": 0.88})])
    assert path.name == "predictions-test.jsonl"
    text = path.read_text(encoding="utf-8")
    assert text == '{"index": 0, "gold": "é", "probabilities": {"à": 0.12, "é": 0.88}}\n'


def test_the_key_of_an_example_is_the_checksum_of_its_texts(path):
    found = [Prediction(index, None, {"à": 0.25, "é": 0.75}) for index in range(2)]
    write(path, found, keys_of([["été", "a"], ["un livre", "b"]]))
    keys = [hashlib.sha256(text).hexdigest()[:16] for text in ("été\tun livre".encode(), b"a\tb")]
    assert [one.key for one in read(path)] == keys
    assert may_be_same(keys, [None, keys[1]])
    assert not may_be_same(keys, keys[::-1])


def test_predictions_of_arrays():
    labels, p_NK = Labels.single(["neg", "pos"]), np.array([[0.25, 0.75], [1.0, 0.0]])
    assert list(from_outputs(labels, p_NK, np.array([0, 1]))) == [
        Prediction(0, "neg", {"neg": 0.25, "pos": 0.75}),
        Prediction(1, "pos", {"neg": 1.0, "pos": 0.0}),
    ]
    assert [one.true_class for one in from_outputs(labels, p_NK)] == [None, None]


def test_predictions_are_read_in_the_order_of_their_index(path):
    predictions = [
        Prediction(7, None, {"neg": 1 / 3, "pos": 2 / 3}),
        Prediction(2, "neg", {"neg": 0.1, "pos": 0.9}),
    ]
    write(path, iter(predictions))
    assert read(path) == predictions[::-1]


def test_predicted_class():
    assert Prediction(0, "1", {"1": 0.5, "0": 0.5}).predicted == "1"  # the first one on a tie


@pytest.mark.parametrize("total", [1 - 0.9e-4, 1 + 0.9e-4])
def test_sum_within_the_tolerance_is_valid(path, total):
    assert len(read(write_lines(path, {**GOOD, "probabilities": {"0": 0.25, "1": total - 0.25}}))) == 1


@pytest.mark.parametrize(
    ("record", "fact"),
    [
        ([1], "object"),
        ({"index": 1, "gold": "1"}, "'probabilities'.*missing"),
        ({**GOOD, "index": 0}, "index 0 .*line 1"),
        ({**GOOD, "index": -1}, "index -1 "),
        ({**GOOD, "index": 1, "key": "A" * 16}, "key 'AAAA"),
        ({**GOOD, "index": True}, "index True "),
        ({**GOOD, "index": 1, "gold": "2"}, "gold '2' .*0, 1"),
        ({**GOOD, "index": 1, "gold": ["1"]}, "gold .*0, 1"),
        ({**GOOD, "index": 1, "probabilities": {"0": 0.5, "2": 0.5}}, "classes 0, 2.* 0, 1 .*first"),
        ({**GOOD, "index": 1, "probabilities": {"1": 0.5, "0": 0.5}}, "classes 1, 0.* 0, 1 .*first"),
        ({**GOOD, "index": 1, "probabilities": {"0": -0.1, "1": 1.1}}, r"'0' .*-0\.1"),
        ({**GOOD, "index": 1, "probabilities": {"0": float("nan"), "1": 1.0}}, "'0' .*nan"),
        ({**GOOD, "index": 1, "probabilities": {"0": "0.5", "1": 0.5}}, r"'0' .*'0\.5'"),
        ({**GOOD, "index": 1, "probabilities": {"0": 0.5, "1": 0.4}}, r"sum .*0\.9"),
        ({**GOOD, "index": 1, "probabilities": [0.5, 0.5]}, "probabilities .*object"),
        ({**GOOD, "index": 1, "probabilities": {"1": 1.0}}, "two classes"),
    ],
)
def test_error_for_an_invalid_record_names_its_line(path, record, fact):
    write_lines(path, GOOD, record)
    with pytest.raises(UserError, match=rf"^{path}, line 2: .*{fact}"):
        read(path)


@pytest.mark.parametrize(("size", "place"), [(1.3, ", line 2: .*JSON"), (0, ": ")])
def test_truncated_or_empty_file_is_an_error(path, size, place):
    text = json.dumps(GOOD) + "\n"
    path.write_text((2 * text)[: int(size * len(text))], encoding="utf-8")
    with pytest.raises(UserError, match=f"^{path}{place}"):
        read(path)


@pytest.mark.parametrize("depth", [1000, 100_000])
@pytest.mark.parametrize("key", ["index", "gold", "probabilities"])
def test_deeply_nested_value_is_an_error(path, key, depth):
    text = json.dumps(GOOD) + "\n"
    path.write_text(text + json.dumps({**GOOD, key: "@"}).replace('"@"', "[" * depth + "]" * depth) + "\n")
    with pytest.raises(UserError, match=r"predictions-test\.jsonl, line 2: "):
        read(path)


def test_invalid_predictions_leave_the_old_file_unchanged(path):
    write(path, [Prediction(0, "1", {"0": 0.0, "1": 1.0})])
    before = path.read_bytes()
    for invalid in ([], [Prediction(0, "1", {"0": 0.5, "1": 0.6})]):
        with pytest.raises(UserError):
            write(path, invalid)
        assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]
