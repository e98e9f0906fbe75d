"""The command `watch`: a live table of runs in progress, on a terminal or line by line."""

from __future__ import annotations

import argparse
import logging
import os
import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TextIO

import pandas as pd

from roberta_small.analysis.options import add_command
from roberta_small.analysis.read.discovery import Log, discover
from roberta_small.analysis.read.layout import Pattern
from roberta_small.analysis.read.long_table import SELECTING, read_runs, usual_or_only
from roberta_small.analysis.read.runs import LoggedRun, find_runs
from roberta_small.common.cli import positive
from roberta_small.common.errors import UserError, count
from roberta_small.common.files import escaped
from roberta_small.common.metrics import lower_is_better, number
from roberta_small.common.tables import duration, text_table

EXAMPLES = """examples:
  roberta-small watch runs
  roberta-small watch runs --inits random pretrained --seeds 1 2 3 --once
"""
HEADING = ("run", "status", "epoch", "update", "loss", "valid", "best", "left", "")


def register(commands: argparse._SubParsersAction) -> None:
    """Add the command."""
    parser = add_command(
        commands, "watch", _watch, "show a live table of the runs, finished or not", EXAMPLES
    )
    parser.add_argument(
        "--metric", type=escaped, default="accuracy", help="validation metric to show (%(default)s)"
    )
    parser.add_argument(
        "--interval", type=positive, default=5, metavar="S", help="seconds between updates (%(default)s)"
    )
    parser.add_argument("--once", action="store_true", help="print the table once and exit")
    parser.add_argument(
        "--inits", nargs="+", default=[], metavar="INIT",
        help="initializations to list even before their runs start (default: those found)",
    )  # fmt: skip
    parser.add_argument(
        "--seeds", nargs="+", type=int, default=[], metavar="N",
        help="seeds to list even before their runs start (default: those found)",
    )  # fmt: skip


def _watch(options: argparse.Namespace) -> None:
    watch(
        options.runs, options.metric, pattern=options.pattern, interval=options.interval, once=options.once,
        inits=options.inits, seeds=options.seeds,
    )  # fmt: skip


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

    On a terminal the table is redrawn in place. Elsewhere a line is written for each run that has started,
    validated or ended since the last update. Raises `UserError` as `find_runs`, except for an existing folder
    without runs.
    """
    stream = stream or sys.stdout
    watcher = Watcher(root, metric, pattern=pattern, inits=inits, seeds=seeds)
    logger = logging.getLogger("roberta_small.analysis")
    level = logger.level
    logger.setLevel(logging.ERROR)  # incomplete records are expected here
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
    """Redraw the whole table over the previous one."""

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
    """Write a line for each run that has changed; at first for all."""

    def __init__(self, stream: TextIO, metric: str) -> None:
        self._stream, self._metric = stream, metric
        self._before: dict[str, tuple[str, int]] | None = None

    def __call__(self, rows: Sequence[Row]) -> None:
        now = {row.name: (row.status, row.progress.epoch) for row in rows}
        if self._before is None:
            lines = [totals(rows), *render(rows, self._metric)]
        else:
            changed = [row for row in rows if self._before.get(row.name) != now[row.name]]
            lines = render(changed, self._metric)[1:]
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
    """The lines of the table with its heading; empty without rows."""
    if not rows:
        return []
    return text_table([HEADING, *(_cells(row, metric) for row in rows)], "llrrrrrrl")


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
    """Replace control characters by spaces, and escape lone surrogates."""
    return re.sub(r"[^\S ]|[\x00-\x1f\x7f-\x9f]", " ", escaped(text))


def _of(done: int, limit: int | None) -> str:
    return f"{done}/{limit}" if limit else str(done)


TRAINER_LOG = "train.log"
WAITING = "waiting"
ORDER = ("running", "failed", "interrupted", WAITING)
"""Order of the rows by status; other statuses are last."""
SILENT_SECONDS = 600


@dataclass(frozen=True)
class Progress:
    """The state of a run according to its logs; None for values that are not logged yet."""

    epoch: int = 0
    """Validations so far."""
    update: int = 0
    loss: float | None = None
    """Training loss of the last interval."""
    valid: float | None = None
    best: float | None = None
    updates_per_second: float | None = None
    updates_per_epoch: int | None = None


@dataclass(frozen=True)
class Row:
    """A run on the screen; `note` is a reason or a warning."""

    name: str
    status: str
    progress: Progress = Progress()
    max_epoch: int | None = None
    max_update: int | None = None
    note: str = ""

    @property
    def seconds_left(self) -> float | None:
        """Estimated from the speed of the last interval, until the first of both limits; None if unknown."""
        done = self.progress
        limits = [self.max_update or 0]
        if self.max_epoch and done.updates_per_epoch:
            limits.append(self.max_epoch * done.updates_per_epoch)
        limits = [limit for limit in limits if limit]
        if self.status != "running" or not done.updates_per_second or not limits:
            return None
        return max(0, min(limits) - done.update) / done.updates_per_second


class Watcher:
    """Reads the runs of a folder repeatedly; unchanged logs are not read again."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        metric: str = "accuracy",
        *,
        pattern: str | None = None,
        inits: Sequence[str] = (),
        seeds: Sequence[int] = (),
    ) -> None:
        self._root, self._metric, self._pattern = Path(root), metric, pattern
        self._inits, self._seeds = inits, seeds
        self._known: dict[Path, tuple[tuple, Progress]] = {}

    def look(self) -> list[Row]:
        """All runs, running ones first. Raises `UserError` if there is no such folder."""
        runs = self._find()
        rows = [self._row(run) for run in runs] + self._waiting(runs)
        rank = {status: place for place, status in enumerate(ORDER)}
        return sorted(rows, key=lambda row: rank.get(row.status, len(ORDER)))

    def _find(self) -> list[LoggedRun]:
        try:
            return find_runs(self._root, self._pattern)
        except UserError:
            pattern = None if self._pattern is None else Pattern(self._pattern)
            if not self._root.is_dir() or discover(self._root, pattern):
                raise
            return []  # no run has started yet

    def _row(self, run: LoggedRun) -> Row:
        content = run.read_manifest() or {}
        flags = [str(word) for word in content.get("recipe_flags") or ()]
        logs = _live_logs(run)
        note, progress = "", Progress()
        try:
            progress = self._progress(run, logs)
        except UserError as error:
            note = "nothing logged yet" if run.status == "running" else str(error)
        if run.status == "failed":
            note = _last_line(run.folder / TRAINER_LOG)
        elif run.status == "running" and (silent := _silence(logs)) > SILENT_SECONDS:
            note = f"nothing logged for {duration(silent)}: still alive?"
        return Row(
            run.name,
            run.status,
            progress,
            _number(flags, "--max-epoch"),
            _number(flags, "--max-update"),
            note,
        )

    def _progress(self, run: LoggedRun, logs: Sequence[Log]) -> Progress:
        state = tuple((log.path, *_size_and_time(log.path)) for log in logs)
        if run.folder not in self._known or self._known[run.folder][0] != state:
            self._known[run.folder] = state, read_progress(run, logs, self._metric)
        return self._known[run.folder][1]

    def _waiting(self, runs: Sequence[LoggedRun]) -> list[Row]:
        """The runs of the grid of inits and seeds that are not in the folder.

        Empty if neither inits nor seeds are given and no run is in progress.
        """
        planned = self._inits or self._seeds
        if not planned and not any(run.status == "running" for run in runs):
            return []
        of_arms: dict[str, list[LoggedRun]] = {} if runs else {"": []}
        for run in runs:
            of_arms.setdefault(run.arm, []).append(run)
        seen = {(run.arm, run.init, run.seed) for run in runs}
        missing = []
        for arm, of_arm in of_arms.items():
            for init in self._inits or dict.fromkeys(run.init for run in of_arm):
                for seed in self._seeds or sorted({run.seed for run in of_arm}):
                    if (arm, init, seed) not in seen:
                        missing.append(Row(f"{arm}/{init}/seed{seed}".lstrip("/"), WAITING))
        return missing


def read_progress(run: LoggedRun, logs: Sequence[Log], metric: str) -> Progress:
    """The progress of a run from these logs. Raises `UserError` if they contain no scalars."""
    # The run is read as unfinished, because its last record may be incomplete.
    table = read_runs([replace(run, logs=tuple(logs), status="running")])

    def series(subset: str, name: str) -> pd.Series:
        rows = table[(table["subset"] == subset) & (table["metric"] == name)]
        return rows.sort_values("step").set_index("step")["value"]

    subset = usual_or_only(SELECTING, table["subset"].unique())
    validations = table.loc[table["subset"] == subset, "step"].drop_duplicates().sort_values()
    valid = series(subset, metric).dropna()
    return Progress(
        epoch=len(validations),
        update=int(table["step"].max()),
        loss=_last(series("train_inner", "loss")),
        valid=_last(valid),
        best=None if valid.empty else float(valid.min() if lower_is_better(metric) else valid.max()),
        updates_per_second=_last(series("train_inner", "ups")),
        updates_per_epoch=int(validations.iloc[0]) if len(validations) else None,
    )


def _live_logs(run: LoggedRun) -> tuple[Log, ...]:
    """The trainer's own log, if it exists: event files are written minutes later."""
    path = run.folder / TRAINER_LOG
    return (Log(path, "json"),) if path.is_file() else run.logs


def _size_and_time(path: Path) -> tuple[int, float]:
    try:
        state = path.stat()
    except FileNotFoundError:
        return 0, 0.0
    return state.st_size, state.st_mtime


def _silence(logs: Iterable[Log]) -> float:
    """Seconds since the last change of a log; 0 without logs."""
    return time.time() - max((_size_and_time(log.path)[1] for log in logs), default=time.time())


def _last_line(path: Path, length: int = 120) -> str:
    """The last non-empty line of a file; "" if it does not exist."""
    if not path.is_file():
        return ""
    with open(path, "rb") as stream:
        stream.seek(max(0, path.stat().st_size - 10_000))
        lines = stream.read().decode("utf-8", errors="replace").split("\n")
    return next((line.strip()[-length:] for line in reversed(lines) if line.strip()), "")


def _last(values: pd.Series) -> float | None:
    return None if values.empty else float(values.iloc[-1])


def _number(words: Sequence[str], flag: str) -> int | None:
    """The last value of a flag if it is a positive integer."""
    found = None
    for word, following in pairwise([*words, ""]):
        name, _, value = word.partition("=")
        if name == flag and re.fullmatch("[1-9][0-9]*", value or following):
            found = int(value or following)
    return found
