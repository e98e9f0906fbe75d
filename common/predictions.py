"""Prediction files, written by `eval` and by methods, read by `analysis` and `eval`.

`predictions-<split>.jsonl` in a run's folder, UTF-8, one JSON object per line:

    {"index": 0, "gold": "1", "probabilities": {"0": 0.12, "1": 0.88}}

    index           0-based line of the split's text file; unique, in any order, gaps allowed
    gold            name of the true class, or null if it is unknown
    probabilities   {class name: probability}, in the order of the label dictionary; two classes or more, the
                    same ones in the same order on every line; each from 0 to 1, their sum 1 within 1e-4
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from reprlib import repr as shown  # short, however deep and long a value is
from typing import Any

from .errors import UserError
from .files import atomic_open, json_fault, read_lines

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
        """The most probable class; of equally probable ones the first in the label dictionary."""
        return max(self.probabilities, key=self.probabilities.__getitem__)

    @property
    def correct(self) -> bool | None:
        """Whether the most probable class is the true one; None if that is unknown."""
        return None if self.true_class is None else self.predicted == self.true_class


def file_name(split: str) -> str:
    """`predictions-test.jsonl` for the split `test`."""
    return f"predictions-{split}.jsonl"


def write(path: str | os.PathLike[str], predictions: Iterable[Prediction]) -> None:
    """Validate and write atomically, one line each in the order given.

    Raises `UserError` as `read` does, before `path` exists.
    """
    border = _Border(path)
    with atomic_open(path) as stream:
        for number, prediction in enumerate(predictions, start=1):
            record = {
                "index": prediction.index,
                "gold": prediction.true_class,
                "probabilities": prediction.probabilities,
            }
            border.check(record, number)
            stream.write(json.dumps(record, ensure_ascii=False) + "\n")
        border.check_end()


def read(path: str | os.PathLike[str]) -> list[Prediction]:
    """All predictions, ordered by index.

    Raises `UserError` naming file and line: no JSON, a key missing or of the wrong type, an index twice,
    other classes than on the first line, a true class that is none of them, probabilities out of range or not
    summing to 1, or an empty file.
    """
    border = _Border(path)
    predictions = []
    for number, line in enumerate(read_lines(path), start=1):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise border.error(number, f"not JSON ({json_fault(error)}; cut short?)") from None
        predictions.append(border.check(record, number))
    border.check_end()
    return sorted(predictions, key=lambda prediction: prediction.index)


class _Border:
    """Checks one line after the other, remembering what must hold for all of them."""

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
            raise self.error(number, f"gold {shown(gold)} is none of the classes {', '.join(self.classes)}")
        return Prediction(record["index"], gold, record["probabilities"])

    def check_end(self) -> None:
        if not self.classes:
            raise UserError(f"{self.path}: no predictions; {REMEDY}")

    def _check_index(self, index: Any, number: int) -> None:
        if type(index) is not int or index < 0:
            raise self.error(number, f"index {shown(index)} is not a line number counted from 0")
        if index in self.line_of_index:
            raise self.error(number, f"index {index} stands on line {self.line_of_index[index]} already")
        self.line_of_index[index] = number

    def _check_probabilities(self, probabilities: Any, number: int) -> None:
        if not isinstance(probabilities, dict) or len(probabilities) < 2:
            raise self.error(
                number, "probabilities are not an object with a number for each of two classes or more"
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
                    number, f"the probability of '{name}' is {shown(value)}, not a number from 0 to 1"
                )
        if abs((total := sum(probabilities.values())) - 1) > TOLERANCE:
            raise self.error(number, f"the probabilities sum to {total:.6g}, not to 1")
