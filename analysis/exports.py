"""What TensorBoard exports, `run-<run>-tag-<tag>.csv` with the columns Wall time, Step, Value -> scalars."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from common.errors import UserError

from .damage import Damage
from .discovery import EXPORT
from .scalars import Scalars, Tags, scalars

HEADER = "Wall time,Step,Value"


def read_csv_files(paths: Sequence[Path], tags: Tags, damage: Sequence[Damage]) -> Iterator[Scalars]:
    """The scalars of these files, one after the other; a file and its damage have the same position.

    The tag is that of the file's name, a new one gets a number in `tags`. Raises `UserError` for a file
    with other columns.
    """
    for file, path in enumerate(paths):
        tag = tags[None, EXPORT.fullmatch(path.name)["tag"]]
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        damage[file].empty = not lines
        if lines and lines[0].strip().lstrip("\ufeff") != HEADER:
            raise UserError(f"{path}, line 1: the columns are not {HEADER}; export it again from TensorBoard")
        rows: list[tuple[float, int, float]] = []
        for number, line in enumerate(lines[1:], start=2):
            try:
                wall_time, step, value = line.split(",")
                row = float(wall_time), int(float(step)), float(value)
            except (ValueError, OverflowError):
                damage[file].spoil_line(number, whole=line.endswith("\n"))
                continue
            if line.endswith("\n"):
                rows.append(row)
                damage[file].good += 1
            else:
                damage[file].spoil_line(number, whole=False)  # the value may have had more digits
        wall_time, step, value = zip(*rows, strict=True) if rows else ((), (), ())
        yield scalars([file] * len(rows), wall_time, step, [tag] * len(rows), value)
