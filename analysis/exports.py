"""What TensorBoard exports, `run-<run>-tag-<tag>.csv` with the columns Wall time, Step, Value -> scalars."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from common.errors import UserError

from .damage import Damage
from .discovery import EXPORT
from .runs import count, enumerate_some
from .scalars import Scalars, Tags, read_step, scalars

logger = logging.getLogger(__name__)

HEADER = "Wall time,Step,Value"
ENDS = (b"\n", b"\r")
NUMBER_ENDS = re.compile(rb"(\d|nan|inf|infinity)\s*$", re.IGNORECASE)
Row = tuple[float, int, float]
"""Wall time, step, value."""


def read_csv_files(paths: Sequence[Path], tags: Tags, damage: Sequence[Damage]) -> Iterator[Scalars]:
    """The scalars of these files, one after the other; a file and its damage have the same position.

    The tag is that of the file's name, a new one gets a number in `tags`. Raises `UserError` for a file
    with other columns.
    """
    unended = []
    for file, path in enumerate(paths):
        tag = tags[None, EXPORT.fullmatch(path.name)["tag"]]
        lines = path.read_bytes().splitlines(keepends=True)
        damage[file].empty = not lines
        if lines and lines[0].decode("utf-8", errors="replace").strip().lstrip("\ufeff") != HEADER:
            raise UserError(f"{path}, line 1: the columns are not {HEADER}; export it again from TensorBoard")
        rows: list[Row] = []
        for number, line in enumerate(lines[1:], start=2):
            if (row := _read_row(line)) is None:
                damage[file].spoil_line(number, whole=line.endswith(ENDS))
                continue
            rows.append(row)
            damage[file].good += 1
            if not line.endswith(ENDS):
                unended.append(path)
        wall_time, step, value = zip(*rows, strict=True) if rows else ((), (), ())
        yield scalars([file] * len(rows), wall_time, step, [tag] * len(rows), value)
    if unended:
        logger.warning(
            "%s without a newline at the end; the last value is kept, but a cut copy may lack digits: %s",
            count(len(unended), "export"), enumerate_some(map(str, unended)),
        )  # fmt: skip


def _read_row(line: bytes) -> Row | None:
    """The numbers of a line, None where they are not whole.

    A last line without newline counts where its value ends as a number does: editors and scripts leave that
    newline out of whole files, and TensorBoard writes an export in one piece. In a copy that was cut, or is
    still at work, such a number may lack digits (61.2 of 61.25). The bytes cannot tell the two apart, which
    is why the caller says that it kept one.
    """
    try:
        wall_time, step, value = line.decode("utf-8").split(",")
        row = float(wall_time), read_step(step.strip()), float(value)
    except (ValueError, OverflowError):
        return None
    return row if line.endswith(ENDS) or NUMBER_ENDS.search(line) else None
