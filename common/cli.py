"""Types of command-line arguments that several rooms take, for argparse's `type=`."""

from __future__ import annotations

import argparse
import math
import re
import shlex
from typing import TYPE_CHECKING

from .errors import UserError

if TYPE_CHECKING:
    pass


from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass


def positive(text: str) -> int:
    """An integer of at least 1; raises `ArgumentTypeError`, or `ValueError` where it is no integer."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


# --- Texts that users give -> values; raises `UserError` that names the flag at fault.


def split_words(value: str | list[str]) -> list[str]:
    """Words of a variable (one string, quoted as in a shell) or of a flag (already split)."""
    if isinstance(value, list):
        if len(value) > 1:
            return value
        value = value[0]
    try:
        return shlex.split(value)
    except ValueError as error:
        raise UserError(f"{value!r}: {error}; close the quotes") from None


def integer(flag: str, text: str, minimum: int, maximum: int | None = None) -> int:
    """A whole number between limits."""
    limits = f"from {minimum}" + (f" to {maximum}" if maximum is not None else "")
    if (
        not re.fullmatch(r"[0-9]+", text)
        or int(text) < minimum
        or (maximum is not None and int(text) > maximum)
    ):
        raise UserError(f"{flag} {text!r}: not a whole number {limits}")
    return int(text)


def fraction(text: str) -> float:
    """A number from 0 up to 1, 1 excluded."""
    number = float(text)
    if not 0 <= number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 0 up to 1 (excluded)")
    return number


def positive_number(text: str) -> float:
    """A finite number above 0."""
    number = float(text)
    if not (0 < number < math.inf):
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
    return number
