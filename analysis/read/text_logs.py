"""Logs of `fairseq-train --log-format json` -> scalars.

Such a log has lines of JSON among others, with or without the prefix of Python's logging:

    2026-11-21 07:43:53 | INFO | train_inner | {"epoch": 1, "update": 0.5, "loss": "0.7", "num_updates": "50"}
    {"epoch": 1, "valid_loss": "0.66", "valid_accuracy": "61", "valid_num_updates": "225"}

(`fairseq/logging/progress_bar.py`, `JsonProgressBar`.) At the end of an epoch all names begin with the
subset. Numbers are strings of six significant digits; there are no times.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from common.errors import UserError, count, enumerate_some

from .discovery import EXPORT, JSON_LINE
from .scalars import Damage, Scalars, Tags, read_step, scalars

UPDATES = "num_updates"
UPDATES_KEY = b'num_updates": '
"""Lines of statistics hold it and others do not; in the source that a traceback shows, no colon follows."""
NOT_METRICS = {"epoch", "update", UPDATES}


def read_json_files(paths: Sequence[Path], tags: Tags, damage: Sequence[Damage]) -> Iterator[Scalars]:
    """The scalars of these files, one after the other; a file and its damage have the same position.

    New tags get a number in `tags`, under the subset that the lines name; wall times are NaN.
    """
    for file, path in enumerate(paths):
        rows: list[tuple[int, int, float]] = []
        with open(path, "rb") as stream:
            for number, line in enumerate(stream, start=1):
                begin = line.find(JSON_LINE)
                if begin < 0:
                    if UPDATES_KEY in line:  # the damage is where the statistics begin
                        damage[file].spoil_line(number, whole=line.endswith(b"\n"))
                    continue
                try:
                    rows.extend(_line_scalars(json.loads(line[begin:].decode("utf-8")), tags))
                    damage[file].good += 1
                except (ValueError, TypeError, OverflowError, RecursionError):
                    damage[file].spoil_line(number, whole=line.endswith(b"\n"))
        step, tag, value = zip(*rows, strict=True) if rows else ((), (), ())
        yield scalars([file] * len(rows), [float("nan")] * len(rows), step, tag, value)


def _line_scalars(stats: dict[str, object], tags: Tags) -> list[tuple[int, int, float]]:
    """(step, tag number, value) of a line; none where it has no step.

    Raises `ValueError`, `TypeError` or `OverflowError` for what is no number, and for names that are no text.
    """
    name = next((key for key in stats if key.endswith(UPDATES)), None)
    if name is None:
        return []
    step, prefix = read_step(stats[name]), name.removesuffix(UPDATES)
    subset = prefix.removesuffix("_") or "train_inner"
    values = {
        key.removeprefix(prefix): float(value)
        for key, value in stats.items()
        if key.removeprefix(prefix) not in NOT_METRICS and value is not None
    }
    "".join([subset, *values]).encode("utf-8")  # JSON can spell half of a character, which cannot be printed
    return [(step, tags[subset, metric], value) for metric, value in values.items()]


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
