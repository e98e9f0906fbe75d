"""Read scalars from text logs: JSON logs of fairseq and CSV exports of TensorBoard.

A log of `fairseq-train --log-format json` contains lines of JSON, with or without the prefix of Python's
logging, among other lines:

    2026-11-21 07:43:53 | INFO | train_inner | {"epoch": 1, "update": 0.5, "loss": "0.7", "num_updates": "50"}
    {"epoch": 1, "valid_loss": "0.66", "valid_accuracy": "61", "valid_num_updates": "225"}

(`fairseq/logging/progress_bar.py`, `JsonProgressBar`.) At the end of an epoch all names begin with the
subset. Numbers are strings of six significant digits; there are no wall times.

A CSV export has the tag in its file name and the columns wall time, step and value.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from roberta_small.analysis.read.discovery import JSON_LINE, export_name
from roberta_small.analysis.read.scalars import LogCheck, Scalars, Tags, read_step, scalars
from roberta_small.common.errors import UserError, count, enumerate_some
from roberta_small.common.files import escaped

logger = logging.getLogger(__name__)

UPDATES = "num_updates"
UPDATES_KEY = b'num_updates": '
"""Only in lines of statistics; in the source code of a traceback no colon follows."""
NOT_METRICS = {"epoch", "update", UPDATES}
HEADER = "Wall time,Step,Value"
ENDS = (b"\n", b"\r")
NUMBER_ENDS = re.compile(rb"(\d|nan|inf|infinity)\s*$", re.IGNORECASE)


def read_json_files(paths: Sequence[Path], tags: Tags, checks: Sequence[LogCheck]) -> Iterator[Scalars]:
    """The scalars of these JSON logs; `checks` has one entry per file, which is updated.

    Tags are numbered in `tags` with the subset in the lines; wall times are NaN.
    """
    for file, path in enumerate(paths):
        rows: list[tuple[int, int, float]] = []
        with open(path, "rb") as stream:
            for number, line in enumerate(stream, start=1):
                begin = line.find(JSON_LINE)
                if begin < 0:
                    if UPDATES_KEY in line:  # the beginning of the statistics is corrupt
                        checks[file].add_corrupt_line(number, whole=line.endswith(b"\n"))
                    continue
                try:
                    rows.extend(_line_scalars(json.loads(line[begin:].decode("utf-8")), tags))
                    checks[file].valid += 1
                except (ValueError, TypeError, OverflowError, RecursionError):
                    checks[file].add_corrupt_line(number, whole=line.endswith(b"\n"))
        step, tag, value = zip(*rows, strict=True) if rows else ((), (), ())
        yield scalars([file] * len(rows), [float("nan")] * len(rows), step, tag, value)


def _line_scalars(stats: dict[str, object], tags: Tags) -> list[tuple[int, int, float]]:
    """(step, tag number, value) of each metric of a line; empty if it has no step.

    Raises `ValueError`, `TypeError` or `OverflowError` for invalid numbers and names.
    """
    name = next((key for key in stats if key.endswith(UPDATES)), None)
    if name is None:
        return []
    step, prefix = read_step(stats[name]), name.removesuffix(UPDATES)
    subset = prefix.removesuffix("_") or "train_inner"
    values = {}
    for key, value in stats.items():
        if (metric := key.removeprefix(prefix)) not in NOT_METRICS and value is not None:
            if not isinstance(value, str | int | float):
                raise TypeError(f"{value!r} is not a number")
            values[metric] = float(value)
    "".join([subset, *values]).encode("utf-8")  # JSON may contain lone surrogates
    return [(step, tags[subset, metric], value) for metric, value in values.items()]


def read_csv_files(paths: Sequence[Path], tags: Tags, checks: Sequence[LogCheck]) -> Iterator[Scalars]:
    """The scalars of these CSV exports; `checks` has one entry per file, which is updated.

    The tag in the file name is numbered in `tags`. Raises `UserError` for a file with other columns.
    """
    unended = []
    for file, path in enumerate(paths):
        tag = tags[None, escaped(export_name(path.name)[1])]
        lines = path.read_bytes().splitlines(keepends=True)
        checks[file].empty = not lines
        if lines and lines[0].decode("utf-8", errors="replace").strip().lstrip("\ufeff") != HEADER:
            raise UserError(f"{path}, line 1: columns other than {HEADER}; export it again from TensorBoard")
        rows: list[tuple[float, int, float]] = []
        for number, line in enumerate(lines[1:], start=2):
            whole = line.endswith(ENDS)
            try:
                wall_time, step, value = line.decode("utf-8").split(",")
                row = float(wall_time), read_step(step.strip()), float(value)
                # Editors and scripts omit the final newline. Such a number may also lack digits, in a
                # truncated copy (61.2 instead of 61.25), hence the warning.
                if not whole and not NUMBER_ENDS.search(line):
                    raise ValueError("incomplete")
            except (ValueError, OverflowError):
                checks[file].add_corrupt_line(number, whole=whole)
                continue
            rows.append(row)
            checks[file].valid += 1
            if not whole:
                unended.append(path)
        wall_times, steps, values = zip(*rows, strict=True) if rows else ((), (), ())
        yield scalars([file] * len(rows), wall_times, steps, [tag] * len(rows), values)
    if unended:
        logger.warning(
            "%s without a final newline; the last value may lack digits if the file is truncated: %s",
            count(len(unended), "export"), enumerate_some(map(str, unended)),
        )  # fmt: skip
