"""Texts that users give -> values; raises `UserError` that names the flag at fault."""

from __future__ import annotations

import re
import shlex

from common.errors import UserError


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
