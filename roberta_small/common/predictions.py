"""Prediction files, written by `eval` and the methods, read by `analysis` and `eval`.

`predictions-<split>.jsonl` in a run's folder, UTF-8, one JSON object per line. The keys depend on the kind of
labels (`common.label_kinds`), which is the same on every line:

    {"index": 0, "gold": "1", "probabilities": {"0": 0.12, "1": 0.88}}
    {"index": 0, "gold": ["a"], "probabilities": {"a": 0.7, "b": 0.4}, "thresholds": {"a": 0.5, "b": 0.3}}
    {"index": 0, "gold": 3.5, "value": 3.27}

    index           0-based line of the split's text file; unique, in any order, gaps allowed
    key             optional: the first 16 hexadecimal digits of the SHA-256 of the text (UTF-8; a pair: both,
                    with a tab between). Runs are compared example by example if their keys agree; without
                    keys in one of the files, examples are paired by their index
    gold            name of the true class, names of the true classes, or number; null if it is unknown
    probabilities   {class name: probability}, in the order of the label dictionary; at least two classes, the
                    same in the same order on every line; each from 0 to 1, their sum 1 within 1e-4 (several
                    classes per text: any sum)
    thresholds      multi-label only: {class name: least probability with which it is predicted}, the same on
                    every line
    value           regression only: the predicted number, in the unit of the labels
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from reprlib import repr as shorten  # limits the depth and length of a value in a message
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_small.common.errors import UserError
from roberta_small.common.files import atomic_open, json_fault, json_line, load_json, read_lines
from roberta_small.common.label_kinds import KINDS, MULTI_LABEL, REGRESSION, Labels, Targets

TOLERANCE = 1e-4
KEY = re.compile("[0-9a-f]{16}")
REMEDY = "write the predictions again"


@dataclass(frozen=True)
class Prediction:
    """The prediction for one example with one class."""

    index: int
    true_class: str | None
    """None if it is unknown."""
    probabilities: dict[str, float]
    key: str | None = None

    @property
    def predicted(self) -> str:
        """The most probable class; on a tie the first in the label dictionary."""
        return max(self.probabilities, key=self.probabilities.__getitem__)

    def record(self) -> dict[str, Any]:
        """The JSON object of the file."""
        return {"index": self.index, "gold": self.true_class, "probabilities": self.probabilities}


@dataclass(frozen=True)
class LabelsPrediction:
    """The prediction for one example of multi-label data."""

    index: int
    true_classes: tuple[str, ...] | None
    """None if they are unknown."""
    probabilities: dict[str, float]
    thresholds: dict[str, float]
    """Of the same classes in the same order."""
    key: str | None = None

    @property
    def predicted(self) -> tuple[str, ...]:
        """The classes whose probability is at least their threshold."""
        return tuple(name for name, p in self.probabilities.items() if p >= self.thresholds[name])

    def record(self) -> dict[str, Any]:
        """The JSON object of the file."""
        gold = None if self.true_classes is None else list(self.true_classes)
        own = {"probabilities": self.probabilities, "thresholds": self.thresholds}
        return {"index": self.index, "gold": gold, **own}


@dataclass(frozen=True)
class ValuePrediction:
    """The prediction for one example of a regression."""

    index: int
    true_value: float | None
    """None if it is unknown."""
    predicted: float
    key: str | None = None

    def record(self) -> dict[str, Any]:
        """The JSON object of the file."""
        return {"index": self.index, "gold": self.true_value, "value": self.predicted}


AnyPrediction = Prediction | LabelsPrediction | ValuePrediction


@dataclass(frozen=True)
class PredictionArrays:
    """The predictions for N examples, in the order of their index."""

    labels: Labels
    targets: Targets
    """As in `common.label_kinds`."""
    outputs: NDArray[np.float64]
    """(N, K), as `Labels.outputs`."""


def may_be_same(keys: Iterable[str | None] | None, others: Iterable[str | None] | None) -> bool:
    """Whether examples in this order can be the same: nowhere do two known keys differ."""
    both = zip([] if keys is None else keys, [] if others is None else others, strict=False)
    return not any(one and other and one != other for one, other in both)


def from_outputs(
    labels: Labels, outputs_NK: NDArray[np.float64], targets: Targets | None = None
) -> Iterator[AnyPrediction]:
    """Predictions for N examples of any kind, with indices from 0.

    `outputs_NK` are those of `Labels.outputs`, `targets` as in `common.label_kinds`.
    """
    if labels.kind.name == REGRESSION:
        for index, value in enumerate(outputs_NK[:, 0].tolist()):
            yield ValuePrediction(index, None if targets is None else float(targets[index]), value)
    elif labels.kind.name == MULTI_LABEL:
        thresholds = dict(zip(labels.classes, labels.thresholds, strict=True))
        for index, row_K in enumerate(outputs_NK.tolist()):
            true = None if targets is None else tuple(np.array(labels.classes)[targets[index]].tolist())
            yield LabelsPrediction(index, true, dict(zip(labels.classes, row_K, strict=True)), thresholds)
    else:
        for index, row_K in enumerate(outputs_NK.tolist()):
            name = None if targets is None else labels.classes[targets[index]]
            yield Prediction(index, name, dict(zip(labels.classes, row_K, strict=True)))


def to_arrays(found: Sequence[AnyPrediction]) -> PredictionArrays:
    """The arrays of predictions of one kind whose labels are all known, in the order given."""
    first = found[0]
    if isinstance(first, ValuePrediction):
        values = [one for one in found if isinstance(one, ValuePrediction)]
        targets = np.array([one.true_value for one in values], dtype=np.float64)
        outputs_N1 = np.array([[one.predicted] for one in values])
        return PredictionArrays(Labels(KINDS[REGRESSION]), targets, outputs_N1)
    classes = list(first.probabilities)
    rows = [list(one.probabilities.values()) for one in found if not isinstance(one, ValuePrediction)]
    p_NK = np.array(rows, dtype=np.float64)
    if isinstance(first, LabelsPrediction):
        labels = Labels(KINDS[MULTI_LABEL], tuple(classes), thresholds=tuple(first.thresholds.values()))
        truth = [set(one.true_classes or ()) for one in found if isinstance(one, LabelsPrediction)]
        targets_NK = np.array([[name in names for name in classes] for names in truth], dtype=bool)
        return PredictionArrays(labels, targets_NK, p_NK)
    of_class = {name: k for k, name in enumerate(classes)}
    known = [one.true_class for one in found if isinstance(one, Prediction) and one.true_class is not None]
    targets_N = np.array([of_class[name] for name in known], dtype=np.int64)
    return PredictionArrays(Labels.single(classes), targets_N, p_NK)


def file_name(split: str) -> str:
    """Name of the prediction file of a split: `predictions-test.jsonl`."""
    return f"predictions-{split}.jsonl"


def write(
    path: str | os.PathLike[str], predictions: Iterable[AnyPrediction], keys: Sequence[str] | None = None
) -> None:
    """Validate predictions and write them atomically, one per line, in the order given, with these keys.

    Raises `UserError` for the same errors as `read`; `path` is then unchanged.
    """
    validator = _Validator(path)
    with atomic_open(path) as stream:
        for number, prediction in enumerate(predictions, start=1):
            record = prediction.record() | ({"key": keys[number - 1]} if keys else {})
            validator.check(record, number)
            stream.write(json_line(record))
        validator.check_end()


def read(path: str | os.PathLike[str]) -> list[AnyPrediction]:
    """Read all predictions, ordered by index; lone surrogates in class names are escaped.

    Raises `UserError` with file and line for invalid JSON, a missing key, a value of the wrong type, a
    repeated index, another kind or other classes than on the first line, a true class that is none of them,
    and probabilities out of range or not summing to 1; also for an empty file.
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
        self.keys: tuple[str, ...] = ()
        """Those of the kind of labels on the first line."""
        self.classes: list[str] = []
        self.thresholds: dict[str, float] = {}
        self.line_of_index: dict[int, int] = {}

    def error(self, number: int, what: str) -> UserError:
        return UserError(f"{self.path}, line {number}: {what}; {REMEDY}")

    def check(self, record: object, number: int) -> AnyPrediction:
        if not isinstance(record, dict):
            raise self.error(number, "not a JSON object")
        kind_keys: tuple[str, ...] = ("value",) if "value" in record else ("probabilities",)
        kind_keys += ("thresholds",) if "thresholds" in record else ()
        self.keys = self.keys or kind_keys
        for name in ("index", "gold", *self.keys):
            if name not in record:
                raise self.error(number, f"key '{name}' is missing")
        if kind_keys != self.keys:
            raise self.error(number, f"{' and '.join(kind_keys)}, but {' and '.join(self.keys)} on line 1")
        index = record["index"]
        if type(index) is not int or index < 0:
            raise self.error(number, f"index {shorten(index)} is not a line number counted from 0")
        if index in self.line_of_index:
            raise self.error(number, f"index {index} is already on line {self.line_of_index[index]}")
        self.line_of_index[index] = number
        key = record.get("key")
        if key is not None and not (isinstance(key, str) and KEY.fullmatch(key)):
            raise self.error(number, f"key {shorten(key)} is not 16 hexadecimal digits in lower case")
        if "value" in record:
            for name in ("gold", "value"):
                if not (_is_number(record[name]) or (name == "gold" and record[name] is None)):
                    raise self.error(number, f"{name} {shorten(record[name])} is not a finite number")
            return ValuePrediction(index, record["gold"], record["value"], key)
        self._check_probabilities(record["probabilities"], number, exclusive="thresholds" not in record)
        if "thresholds" in record:
            return self._labels(record, number)
        gold = record["gold"]
        if gold is not None and (not isinstance(gold, str) or gold not in record["probabilities"]):
            raise self.error(number, f"gold {shorten(gold)} is none of the classes {', '.join(self.classes)}")
        return Prediction(index, gold, record["probabilities"], key)

    def check_end(self) -> None:
        if not self.line_of_index:
            raise UserError(f"{self.path}: no predictions; {REMEDY}")

    def _labels(self, record: dict[str, Any], number: int) -> LabelsPrediction:
        index, key = record["index"], record.get("key")
        gold, thresholds = record["gold"], record["thresholds"]
        if not (
            isinstance(thresholds, dict)
            and list(thresholds) == self.classes
            and all(map(_is_number, thresholds.values()))
        ):
            raise self.error(number, "thresholds are not an object with a number for each class")
        self.thresholds = self.thresholds or thresholds
        if thresholds != self.thresholds:
            raise self.error(number, "other thresholds than on the first line")
        if gold is None:
            return LabelsPrediction(index, None, record["probabilities"], thresholds, key)
        if not isinstance(gold, list):
            raise self.error(number, f"gold {shorten(gold)} is not a list of classes")
        if unknown := [name for name in gold if not isinstance(name, str) or name not in thresholds]:
            what = f"gold {shorten(unknown[0])} is none of the classes {', '.join(self.classes)}"
            raise self.error(number, what)
        return LabelsPrediction(index, tuple(gold), record["probabilities"], thresholds, key)

    def _check_probabilities(self, probabilities: Any, number: int, *, exclusive: bool) -> None:
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
        if exclusive and abs((total := sum(probabilities.values())) - 1) > TOLERANCE:
            raise self.error(number, f"the probabilities sum to {total:.6g}, not to 1")


def _is_number(value: object) -> bool:
    """Whether a JSON value is a finite number; True is an int."""
    return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]  # checked before
