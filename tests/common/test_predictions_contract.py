"""Prediction files: what is written is read again; what breaks the contract is named with its line."""

import json

import pytest

from common.errors import UserError
from common.predictions import Prediction, file_name, read, write

GOOD = {"index": 0, "gold": "1", "probabilities": {"0": 0.25, "1": 0.75}}


def lines(path, *records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


@pytest.fixture
def path(tmp_path):
    return tmp_path / file_name("test")


def test_the_line_of_the_contract(path):
    write(path, [Prediction(0, "é", {"à": 0.12, "é": 0.88})])
    assert path.name == "predictions-test.jsonl"
    text = path.read_text(encoding="utf-8")
    assert text == '{"index": 0, "gold": "é", "probabilities": {"à": 0.12, "é": 0.88}}\n'


def test_round_trip_comes_ordered_by_index(path):
    predictions = [
        Prediction(7, None, {"neg": 1 / 3, "pos": 2 / 3}),
        Prediction(2, "neg", {"neg": 0.1, "pos": 0.9}),
    ]
    write(path, iter(predictions))
    assert read(path) == predictions[::-1]


def test_the_most_probable_class():
    assert Prediction(0, "1", {"0": 0.2, "1": 0.8}).correct is True
    assert Prediction(0, "0", {"0": 0.2, "1": 0.8}).correct is False
    assert Prediction(0, None, {"0": 0.2, "1": 0.8}).correct is None
    assert Prediction(0, "1", {"1": 0.5, "0": 0.5}).predicted == "1"  # the first of equals


@pytest.mark.parametrize("total", [1 - 0.9e-4, 1 + 0.9e-4])
def test_sums_within_the_tolerance_pass(path, total):
    assert len(read(lines(path, {**GOOD, "probabilities": {"0": 0.25, "1": total - 0.25}}))) == 1


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ([1], "not a JSON object"),
        ({"index": 1, "gold": "1"}, "key 'probabilities' is missing"),
        ({**GOOD, "index": 0}, "index 0 stands on line 1 already"),
        ({**GOOD, "index": -1}, "index -1 is not a line number"),
        ({**GOOD, "index": True}, "index True is not a line number"),
        ({**GOOD, "index": 1, "gold": "2"}, "gold '2' is none of the classes 0, 1"),
        ({**GOOD, "index": 1, "gold": ["1"]}, "is none of the classes 0, 1"),
        ({**GOOD, "index": 1, "probabilities": {"0": 0.5, "2": 0.5}}, "classes 0, 2, but 0, 1 on the first"),
        ({**GOOD, "index": 1, "probabilities": {"1": 0.5, "0": 0.5}}, "classes 1, 0, but 0, 1 on the first"),
        ({**GOOD, "index": 1, "probabilities": {"0": -0.1, "1": 1.1}}, "the probability of '0' is -0.1"),
        ({**GOOD, "index": 1, "probabilities": {"0": float("nan"), "1": 1.0}}, "probability of '0' is nan"),
        ({**GOOD, "index": 1, "probabilities": {"0": "0.5", "1": 0.5}}, "the probability of '0' is '0.5'"),
        ({**GOOD, "index": 1, "probabilities": {"0": 0.5, "1": 0.4}}, "sum to 0.9, not to 1"),
        ({**GOOD, "index": 1, "probabilities": [0.5, 0.5]}, "probabilities are not an object"),
        ({**GOOD, "index": 1, "probabilities": {"1": 1.0}}, "two classes or more"),
    ],
)
def test_a_bad_line_is_named(path, record, message):
    lines(path, GOOD, record)
    with pytest.raises(
        UserError, match=r"predictions-test\.jsonl, line 2: .*; write the predictions again"
    ) as error:
        read(path)
    assert message in str(error.value)


def test_a_file_cut_short(path):
    text = json.dumps(GOOD) + "\n"
    path.write_text(text + text[:20], encoding="utf-8")
    with pytest.raises(UserError, match=r"line 2: not JSON .*cut short"):
        read(path)


@pytest.mark.parametrize("depth", [1000, 3000, 9000, 100_000])
@pytest.mark.parametrize("key", ["index", "gold", "probabilities"])
def test_a_value_nested_deeply_is_a_clear_error(path, key, depth):
    text = json.dumps(GOOD) + "\n"
    path.write_text(text + json.dumps({**GOOD, key: "@"}).replace('"@"', "[" * depth + "]" * depth) + "\n")
    with pytest.raises(UserError, match=r"predictions-test\.jsonl, line 2: "):
        read(path)


def test_an_empty_file(path):
    path.write_text("")
    with pytest.raises(UserError, match="no predictions"):
        read(path)


def test_nothing_bad_is_written_and_the_old_file_stays(path):
    write(path, [Prediction(0, "1", {"0": 0.0, "1": 1.0})])
    before = path.read_bytes()
    for bad in ([], [Prediction(0, "1", {"0": 0.5, "1": 0.6})]):
        with pytest.raises(UserError):
            write(path, bad)
        assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]
