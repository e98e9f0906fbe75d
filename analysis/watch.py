"""A live table of a sweep in progress, on a terminal or line by line."""

from __future__ import annotations

import logging
import os
import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TextIO

from .metrics import number
from .runs import count
from .watch_runs import Row, Watcher, duration

HEADING = ("run", "status", "epoch", "update", "loss", "valid", "best", "left", "")


def watch(
    root: str | os.PathLike[str],
    metric: str = "accuracy",
    *,
    pattern: str | None = None,
    interval: float = 5.0,
    once: bool = False,
    inits: Sequence[str] = (),
    seeds: Sequence[int] = (),
    stream: TextIO | None = None,
    sleep: Callable[[float], object] = time.sleep,
) -> None:
    """Show the runs below `root` every `interval` seconds until Ctrl-C, or `once`.

    On a terminal the table is drawn anew in place. Elsewhere a line is written for each run that began, has
    validated or ended since the last look. Raises `UserError` as `find_runs`, except that a folder without
    a run is one that waits.
    """
    stream = stream or sys.stdout
    watcher = Watcher(root, metric, pattern=pattern, inits=inits, seeds=seeds)
    logger = logging.getLogger(__package__)
    level = logger.level
    logger.setLevel(logging.ERROR)  # a log that grows is no news here
    show = _Screen(stream, metric) if stream.isatty() and not once else _Lines(stream, metric)
    try:
        while True:
            show(watcher.look())
            if once:
                return
            sleep(interval)
    except KeyboardInterrupt:
        stream.write("\n" if stream.isatty() else "")
    finally:
        logger.setLevel(level)


class _Screen:
    """The whole table, over the one before."""

    def __init__(self, stream: TextIO, metric: str) -> None:
        self._stream, self._metric, self._height = stream, metric, 0

    def __call__(self, rows: Sequence[Row]) -> None:
        columns, lines = shutil.get_terminal_size()
        table = render(rows, self._metric)
        if len(table) > lines - 2:
            table = [*table[: lines - 3], f"... and {len(table) - lines + 3} more"]
        up = f"\x1b[{self._height}F\x1b[J" if self._height else ""
        text = [line[: columns - 1] for line in [f"{totals(rows)}  {time.strftime('%H:%M:%S')}", *table]]
        self._stream.write(up + "\n".join(text) + "\n")
        self._stream.flush()
        self._height = len(text)


class _Lines:
    """A line for each run that has news; all of them at first."""

    def __init__(self, stream: TextIO, metric: str) -> None:
        self._stream, self._metric = stream, metric
        self._before: dict[str, tuple[str, int]] | None = None

    def __call__(self, rows: Sequence[Row]) -> None:
        now = {row.name: (row.status, row.progress.epoch) for row in rows}
        if self._before is None:
            lines = [totals(rows), *render(rows, self._metric)]
        else:
            news = [row for row in rows if self._before.get(row.name) != now[row.name]]
            lines = render(news, self._metric)[1:]
        self._before = now
        self._stream.write("".join(f"{line}\n" for line in lines))
        self._stream.flush()


def totals(rows: Sequence[Row]) -> str:
    """`6 runs: 2 running, 4 finished`."""
    if not rows:
        return "no run yet"
    counts = Counter(row.status for row in rows)
    return f"{count(len(rows), 'run')}: " + ", ".join(f"{counts[status]} {status}" for status in counts)


def render(rows: Sequence[Row], metric: str) -> list[str]:
    """The lines of the table, its heading first; nothing without rows."""
    if not rows:
        return []
    cells = [HEADING, *(_cells(row, metric) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if index in (0, 1, len(HEADING) - 1) else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    ]


def _cells(row: Row, metric: str) -> tuple[str, ...]:
    done, left = row.progress, row.seconds_left
    return (
        _printable(row.name),
        row.status,
        _of(done.epoch, row.max_epoch),
        _of(done.update, row.max_update),
        "–" if done.loss is None else f"{done.loss:.4f}",
        "–" if done.valid is None else number(done.valid, metric),
        "–" if done.best is None else number(done.best, metric),
        "–" if left is None else duration(left),
        _printable(row.note),
    )


def _printable(text: str) -> str:
    """Without what a terminal would obey."""
    return re.sub(r"[^\S ]|[\x00-\x1f\x7f-\x9f]", " ", text)


def _of(done: int, limit: int | None) -> str:
    return f"{done}/{limit}" if limit else str(done)
