"""What every kind of log file becomes before the runs are put together: columns of numbers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from common.errors import UserError, count, enumerate_some

from .tfrecord import Records


class Scalars(NamedTuple):
    """N logged numbers, those of a file together and in its order; arrays of shape (N,)."""

    file: np.ndarray
    """int32: the position of the file in the list that was read."""
    wall_time: np.ndarray
    """float64: seconds since 1970; NaN where the log has no times."""
    step: np.ndarray
    """int64: updates."""
    tag: np.ndarray
    """int32: the number of the tag in `Tags`."""
    value: np.ndarray
    """float64"""


STEP_RANGE = np.iinfo(np.int64)
DTYPES = Scalars(np.int32, np.float64, np.int64, np.int32, np.float64)


def read_step(value: object) -> int:
    """A step from what a text file says: a whole number, or a text of one such as "50" or "1.5e+06".

    Raises `ValueError` for anything else, and for what int64 cannot hold.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{value!r} is no step")
    try:
        step = value if isinstance(value, int) else int(str(value))  # not by way of float: 2^53 + 1 has none
    except ValueError:  # fairseq writes six significant digits: 1.23457e+06
        if not float(value).is_integer():
            raise ValueError(f"{value!r} is no step") from None
        step = int(float(value))
    if not STEP_RANGE.min <= step <= STEP_RANGE.max:
        raise ValueError(f"{value!r} is no step")
    return step


def scalars(*columns: object) -> Scalars:
    """Columns from anything that numpy takes, in the order and with the types of `Scalars`."""
    return Scalars(*(np.asarray(column, dtype) for column, dtype in zip(columns, DTYPES, strict=True)))


def concatenate(parts: list[Scalars]) -> Scalars:
    """All of them, one after the other."""
    if not parts:
        return scalars([], [], [], [], [])
    return Scalars(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


class Tags(dict[tuple[str | None, str], int]):
    """Numbers for (subset, tag), given out as they appear; the subset is None where a log names none."""

    def __missing__(self, key: tuple[str | None, str]) -> int:
        self[key] = number = len(self)
        return number


logger = logging.getLogger(__name__)


@dataclass
class Damage:
    """What was found in one log file."""

    path: Path
    good: int = 0
    """Records without fault."""
    damaged: int = 0
    first: int | None = None
    """Where the first damaged record is, an offset or a line number as `unit` has it."""
    cut: int | None = None
    """Where a last record begins that the end of the file cuts."""
    unit: str = "byte"
    may_grow: bool = False
    """The run is not known to be finished, and a cut record no surprise."""
    empty: bool = False

    def add(self, records: Records, offset: int) -> None:
        """Count the records of a chunk that begins at `offset`."""
        self.good += len(records.begins)
        for place in records.damaged:
            self.spoil(offset + place)
        if records.cut is not None:
            self.cut = offset + records.cut

    def spoil(self, place: int) -> None:
        """Count a damaged record."""
        self.damaged += 1
        self.first = place if self.first is None else min(self.first, place)

    def refuse(self, offset: int) -> None:
        """Count a record as damaged after all: its checksums are right, its content is not."""
        self.good -= 1
        self.spoil(offset)

    def spoil_line(self, number: int, *, whole: bool) -> None:
        """Count a damaged line, or one that the end of the file cuts."""
        self.unit = "line"
        if whole:
            self.spoil(number)
        else:
            self.cut = number

    def __str__(self) -> str:
        """One line: what is damaged and what is kept."""
        places = []
        if self.damaged:
            places.append(f"damaged at {self.unit} {self.first:,} ({self.damaged:,} in all)")
        if self.cut is not None:
            places.append(f"cut at {self.unit} {self.cut:,}")
        return f"{self.path}: {' and '.join(places)}; the {self.good:,} good records are kept"


def report(found: Sequence[Damage]) -> None:
    """Say in one line for each damaged file where it breaks, and in one for all that are still written.

    Raises `UserError` for a file that holds records, but not a good one.
    """
    for damage in found:
        if damage.damaged and not damage.good:
            raise UserError(
                f"{damage.path}: not one good record (damaged from {damage.unit} {damage.first:,} on); "
                "move it out of the run"
            )
        if damage.empty:
            logger.warning("%s: empty log (the run stopped before its first record)", damage.path)
        elif damage.damaged or (damage.cut is not None and not damage.may_grow):
            logger.warning("%s", damage)
    growing = [damage for damage in found if damage.cut is not None and damage.may_grow]
    if growing:
        names = enumerate_some(f"{damage.path} at {damage.unit} {damage.cut:,}" for damage in growing)
        logger.info(
            "%s with a last record that is not whole, as while it is being written: %s",
            count(len(growing), "log"), names,
        )  # fmt: skip
