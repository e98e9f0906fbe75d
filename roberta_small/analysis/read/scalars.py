"""The common result of all log readers: scalars as columns of numbers, and the corrupt records of a file."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from roberta_small.analysis.read.tfrecord import Records
from roberta_small.common.errors import UserError, count, enumerate_some

logger = logging.getLogger(__name__)


class Scalars(NamedTuple):
    """N logged numbers, grouped by file and in the order of the file; arrays of shape (N,)."""

    file: np.ndarray
    """int32: position in the list of files."""
    wall_time: np.ndarray
    """float64: seconds since 1970; NaN if the log has no times."""
    step: np.ndarray
    """int64: updates."""
    tag: np.ndarray
    """int32: number of the tag in `Tags`."""
    value: np.ndarray
    """float64"""


STEP_RANGE = np.iinfo(np.int64)
START = "\0session start"
"""The tag of TensorBoard's mark of a restart, `SessionLog.START`; its value is NaN."""
DTYPES = (np.int32, np.float64, np.int64, np.int32, np.float64)
"""Of the fields of `Scalars`."""


def read_step(value: object) -> int:
    """A step in a text log: an integer, or a string of one such as "50" or "1.5e+06".

    Raises `ValueError` for other values and outside the range of int64.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{value!r} is not a step")
    try:
        step = value if isinstance(value, int) else int(str(value))  # float has no 2^53 + 1
    except ValueError:  # fairseq writes six significant digits: 1.23457e+06
        if not float(value).is_integer():
            raise ValueError(f"{value!r} is not a step") from None
        step = int(float(value))
    if not STEP_RANGE.min <= step <= STEP_RANGE.max:
        raise ValueError(f"{value!r} is not a step")
    return step


def scalars(*columns: object) -> Scalars:
    """`Scalars` from array-likes in the order of its fields."""
    return Scalars(*(np.asarray(column, dtype) for column, dtype in zip(columns, DTYPES, strict=True)))


def concatenate(parts: list[Scalars]) -> Scalars:
    """The concatenation of `parts`."""
    if not parts:
        return scalars([], [], [], [], [])
    return Scalars(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


class Tags(dict[tuple[str | None, str], int]):
    """(subset, tag) -> consecutive number, assigned on first use; the subset is None if the log has none."""

    def __missing__(self, key: tuple[str | None, str]) -> int:
        self[key] = number = len(self)
        return number


@dataclass
class LogCheck:
    """The numbers of valid and corrupt records in a log file."""

    path: Path
    valid: int = 0
    """Number of valid records."""
    corrupt: int = 0
    first: int | None = None
    """Position of the first corrupt record: byte offset or line number, see `unit`."""
    truncated: int | None = None
    """Position of a last record that is truncated by the end of the file."""
    unit: str = "byte"
    may_grow: bool = False
    """Whether the run may still be writing, so that a truncated record is expected."""
    empty: bool = False

    def add(self, records: Records, offset: int) -> None:
        """Add the records of a chunk that begins at `offset`."""
        self.valid += len(records.begins)
        for place in records.corrupt:
            self.add_corrupt(offset + place)
        if records.truncated is not None:
            self.truncated = offset + records.truncated

    def add_corrupt(self, place: int) -> None:
        """Add a corrupt record."""
        self.corrupt += 1
        self.first = place if self.first is None else min(self.first, place)

    def add_corrupt_line(self, number: int, *, whole: bool) -> None:
        """Add a corrupt line, or one that is truncated by the end of the file."""
        self.unit = "line"
        if whole:
            self.add_corrupt(number)
        else:
            self.truncated = number

    def __str__(self) -> str:
        """A message with the corrupt positions and the number of valid records."""
        places = []
        if self.corrupt:
            places.append(f"corrupt at {self.unit} {self.first:,} ({self.corrupt:,} in all)")
        if self.truncated is not None:
            places.append(f"truncated at {self.unit} {self.truncated:,}")
        return f"{self.path}: {' and '.join(places)}; using the {self.valid:,} valid records"


def report(found: Sequence[LogCheck]) -> None:
    """Warn about each file with corrupt records, and log all files that are still being written.

    Raises `UserError` for a file whose records are all corrupt.
    """
    for check in found:
        if check.corrupt and not check.valid:
            raise UserError(
                f"{check.path}: no valid record (corrupt from {check.unit} {check.first:,}); "
                "remove it from the run folder"
            )
        if check.empty:
            logger.warning("%s: empty log (the run stopped before its first record)", check.path)
        elif check.corrupt or (check.truncated is not None and not check.may_grow):
            logger.warning("%s", check)
    growing = [check for check in found if check.truncated is not None and check.may_grow]
    if growing:
        names = enumerate_some(f"{check.path} at {check.unit} {check.truncated:,}" for check in growing)
        logger.info(
            "%s with an incomplete last record, probably still being written: %s",
            count(len(growing), "log"), names,
        )  # fmt: skip
