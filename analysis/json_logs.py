"""Logs of `fairseq-train --log-format json` -> scalars.

Such a log has lines of JSON among others, with or without the prefix of Python's logging:

    2026-11-21 07:43:53 | INFO | train_inner | {"epoch": 1, "update": 0.5, "loss": "0.7", "num_updates": "50"}
    {"epoch": 1, "valid_loss": "0.66", "valid_accuracy": "61", "valid_num_updates": "225"}

(`fairseq/logging/progress_bar.py`, `JsonProgressBar`.) At the end of an epoch all names begin with the
subset. Numbers are strings of six significant digits; there are no times.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from .damage import Damage
from .discovery import JSON_LINE
from .scalars import Scalars, Tags, read_step, scalars

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
