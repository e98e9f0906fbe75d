"""Prediction files, written by `eval` and the methods, read by `analysis` and `eval`.

`predictions-<split>.jsonl` in a run's folder, UTF-8, one JSON object per line:

    {"index": 0, "gold": "1", "probabilities": {"0": 0.12, "1": 0.88}}

    index           0-based line of the split's text file; unique, in any order, gaps allowed
    gold            name of the true class, or null if it is unknown
    probabilities   {class name: probability}, in the order of the label dictionary; at least two classes, the
                    same in the same order on every line; each from 0 to 1, their sum 1 within 1e-4
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from reprlib import repr as shorten  # limits the depth and length of a value in a message
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_small.common.errors import UserError
from roberta_small.common.files import atomic_open, json_fault, json_line, load_json, read_lines

TOLERANCE = 1e-4
REMEDY = "write the predictions again"


@dataclass(frozen=True)
class Prediction:
    """The prediction for one example."""

    index: int
    true_class: str | None
    """None if it is unknown."""
    probabilities: dict[str, float]

    @property
    def predicted(self) -> str:
        """The most probable class; on a tie the first in the label dictionary."""
        return max(self.probabilities, key=self.probabilities.__getitem__)

    @property
    def correct(self) -> bool | None:
        """Whether the most probable class is the true class; None if that is unknown."""
        return None if self.true_class is None else self.predicted == self.true_class


def from_probabilities(
    classes: Sequence[str],
    p_NK: NDArray[np.float64],
    labels_N: NDArray[np.int64] | None = None,
) -> Iterator[Prediction]:
    """Predictions for N examples of K classes, with indices from 0; `labels_N` are indices in `classes`."""
    for index, row_K in enumerate(p_NK.tolist()):
        true_class = None if labels_N is None else classes[labels_N[index]]
        yield Prediction(index, true_class, dict(zip(classes, row_K, strict=True)))


def file_name(split: str) -> str:
    """Name of the prediction file of a split: `predictions-test.jsonl`."""
    return f"predictions-{split}.jsonl"


def write(path: str | os.PathLike[str], predictions: Iterable[Prediction]) -> None:
    """Validate predictions and write them atomically, one per line, in the order given.

    Raises `UserError` for the same errors as `read`; `path` is then unchanged.
    """
    validator = _Validator(path)
    with atomic_open(path) as stream:
        for number, prediction in enumerate(predictions, start=1):
            record = {
                "index": prediction.index,
                "gold": prediction.true_class,
                "probabilities": prediction.probabilities,
            }
            validator.check(record, number)
            stream.write(json_line(record))
        validator.check_end()


def read(path: str | os.PathLike[str]) -> list[Prediction]:
    """Read all predictions, ordered by index; lone surrogates in class names are escaped.

    Raises `UserError` with file and line for invalid JSON, a missing key, a value of the wrong type, a
    repeated index, classes that differ from the first line, a true class that is none of them, and
    probabilities out of range or not summing to 1; also for an empty file.
    """
    validator = _Validator(path)
    predictions = []
    for number, line in enumerate(read_lines(path), start=1):
        try:
            record = load_json(line)
        except (ValueError, RecursionError) as error:
            raise validator.error(number, f"not JSON ({json_fault(error)}; truncated?)") from None
        predictions.append(validator.check(record, number))
    validator.check_end()
    return sorted(predictions, key=lambda prediction: prediction.index)


class _Validator:
    """Checks records line by line, including what must agree between lines."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path
        self.classes: list[str] = []
        self.line_of_index: dict[int, int] = {}

    def error(self, number: int, what: str) -> UserError:
        return UserError(f"{self.path}, line {number}: {what}; {REMEDY}")

    def check(self, record: object, number: int) -> Prediction:
        if not isinstance(record, dict):
            raise self.error(number, "not a JSON object")
        for key in ("index", "gold", "probabilities"):
            if key not in record:
                raise self.error(number, f"key '{key}' is missing")
        self._check_index(record["index"], number)
        self._check_probabilities(record["probabilities"], number)
        gold = record["gold"]
        if gold is not None and (not isinstance(gold, str) or gold not in record["probabilities"]):
            raise self.error(number, f"gold {shorten(gold)} is none of the classes {', '.join(self.classes)}")
        return Prediction(record["index"], gold, record["probabilities"])

    def check_end(self) -> None:
        if not self.classes:
            raise UserError(f"{self.path}: no predictions; {REMEDY}")

    def _check_index(self, index: Any, number: int) -> None:
        if type(index) is not int or index < 0:
            raise self.error(number, f"index {shorten(index)} is not a line number counted from 0")
        if index in self.line_of_index:
            raise self.error(number, f"index {index} is already on line {self.line_of_index[index]}")
        self.line_of_index[index] = number

    def _check_probabilities(self, probabilities: Any, number: int) -> None:
        if not isinstance(probabilities, dict) or len(probabilities) < 2:
            raise self.error(
                number, "probabilities are not an object with a number for each of at least two classes"
            )
        self.classes = self.classes or list(probabilities)
        if list(probabilities) != self.classes:
            raise self.error(
                number, f"classes {', '.join(probabilities)}, but {', '.join(self.classes)} on the first line"
            )
        for name, value in probabilities.items():
            # Not isinstance: True is an int. NaN fails every comparison.
            if type(value) not in (int, float) or not 0 <= value <= 1:
                raise self.error(
                    number, f"the probability of '{name}' is {shorten(value)}, not a number from 0 to 1"
                )
        if abs((total := sum(probabilities.values())) - 1) > TOLERANCE:
            raise self.error(number, f"the probabilities sum to {total:.6g}, not to 1")
