"""What every kind of log file becomes before the runs are put together: columns of numbers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


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


DTYPES = Scalars(np.int32, np.float64, np.int64, np.int32, np.float64)


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
