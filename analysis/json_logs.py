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
from .scalars import Scalars, Tags, scalars

UPDATES = "num_updates"
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
                    continue
                try:
                    rows.extend(_line_scalars(json.loads(line[begin:]), tags))
                    damage[file].good += 1
                except (ValueError, AttributeError, OverflowError):
                    damage[file].spoil_line(number, whole=line.endswith(b"\n"))
        step, tag, value = zip(*rows, strict=True) if rows else ((), (), ())
        yield scalars([file] * len(rows), [float("nan")] * len(rows), step, tag, value)


def _line_scalars(stats: dict[str, object], tags: Tags) -> list[tuple[int, int, float]]:
    """(step, tag number, value) of a line; none where it has no step.

    Raises `ValueError` for what is no number.
    """
    name = next((key for key in stats if key.endswith(UPDATES)), None)
    if name is None:
        return []
    step, prefix = int(stats[name]), name.removesuffix(UPDATES)
    subset = prefix.removesuffix("_") or "train_inner"
    return [
        (step, tags[subset, key.removeprefix(prefix)], float(value))
        for key, value in stats.items()
        if key.removeprefix(prefix) not in NOT_METRICS and value is not None
    ]
