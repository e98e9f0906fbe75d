"""What `python -m preprocess audit --output` found: which lines of a split stand in another one."""

from __future__ import annotations

import os
from dataclasses import dataclass

from .errors import UserError
from .files import read_json

NOTIONS = ("exact", "normalized")
REMEDY = "make it again: python -m preprocess audit --output"


@dataclass(frozen=True)
class Overlap:
    """The lines of `split` whose text stands in `other` too, under one notion of the same text."""

    split: str
    other: str
    notion: str
    size: int
    """Lines of the split."""
    lines: frozenset[int]
    """Counted from 0."""


def read_overlap(
    path: str | os.PathLike[str], split: str = "test", other: str = "train", notion: str = "exact"
) -> Overlap:
    """One overlap from an audit file; `notion` is "exact" or "normalized" (see `preprocess.audit`).

    Raises `UserError` where the file is no audit or has no such split.
    """
    content = read_json(path, REMEDY)
    try:
        size, lines = content["splits"][split]["lines"], content["duplicates"][notion][split][other]
    except (KeyError, TypeError):
        raise UserError(
            f"{path}: not an audit of {split} and {other} ({notion} duplicates); {REMEDY}"
        ) from None
    if type(size) is not int or not isinstance(lines, list) or not all(type(line) is int for line in lines):
        raise UserError(f"{path}: the lines of {split} that stand in {other} are no line numbers; {REMEDY}")
    if size < 1:
        raise UserError(f"{path}: {split} has {size:,} lines, and nothing can be said of it; {REMEDY}")
    if strange := [line for line in lines if not 0 <= line < size]:
        raise UserError(f"{path}: names line {strange[0]} of {split}, which has {size:,} lines; {REMEDY}")
    return Overlap(split, other, notion, size, frozenset(lines))
