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
