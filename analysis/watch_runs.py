"""How far each run below a folder is, from its manifest and its logs; it only reads."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import pandas as pd

from common import manifest
from common.errors import UserError

from .discovery import Log, discover
from .load import read_runs
from .metrics import lower_is_better
from .pattern import Pattern
from .runs import Run, find_runs

TRAINER_LOG = "train.log"
WAITING = "waiting"
ORDER = ("running", "failed", "interrupted", WAITING)
"""Which runs come first: others follow."""
SILENT_SECONDS = 600


@dataclass(frozen=True)
class Progress:
    """What the logs of a run say so far; None where they have not said it yet."""

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
        """By the speed of the last interval, to the nearer of both limits."""
        done = self.progress
        limits = [self.max_update]
        if self.max_epoch and done.updates_per_epoch:
            limits.append(self.max_epoch * done.updates_per_epoch)
        limits = [limit for limit in limits if limit]
        if self.status != "running" or not done.updates_per_second or not limits:
            return None
        return max(0, min(limits) - done.update) / done.updates_per_second


class Watcher:
    """Looks at a folder again and again; logs that have not changed are not read again."""

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
        """All runs, those at work first; raises `UserError` where there is no such folder."""
        runs = self._find()
        rows = [self._row(run) for run in runs] + self._waiting(runs)
        rank = {status: place for place, status in enumerate(ORDER)}
        return sorted(rows, key=lambda row: rank.get(row.status, len(ORDER)))

    def _find(self) -> list[Run]:
        try:
            return find_runs(self._root, self._pattern)
        except UserError:
            pattern = None if self._pattern is None else Pattern(self._pattern)
            if not self._root.is_dir() or discover(self._root, pattern):
                raise
            return []  # nothing has begun yet

    def _row(self, run: Run) -> Row:
        content = manifest.read(run.path) or {}
        flags = [str(word) for word in content.get("recipe_flags") or ()]
        logs = _live_logs(run)
        note, progress = "", Progress()
        try:
            progress = self._progress(run, logs)
        except UserError as error:
            note = "nothing logged yet" if run.status == "running" else str(error)
        if run.status == "failed":
            note = _last_line(run.path / TRAINER_LOG)
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

    def _progress(self, run: Run, logs: Sequence[Log]) -> Progress:
        state = tuple((log.path, *_size_and_time(log.path)) for log in logs)
        if run.path not in self._known or self._known[run.path][0] != state:
            self._known[run.path] = state, read_progress(run, logs, self._metric)
        return self._known[run.path][1]

    def _waiting(self, runs: Sequence[Run]) -> list[Row]:
        """The runs that the grid of inits and seeds has and the folder has not.

        Where no plan is given and nothing is running, nobody says that there will be any.
        """
        planned = self._inits or self._seeds
        if not planned and not any(run.status == "running" for run in runs):
            return []
        of_arms: dict[str, list[Run]] = {} if runs else {"": []}
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


def read_progress(run: Run, logs: Sequence[Log], metric: str) -> Progress:
    """What these logs of a run say; raises `UserError` where that is nothing."""
    # As one that is not finished: its last record may be cut.
    table = read_runs([replace(run, logs=tuple(logs), status="running")])

    def series(subset: str, name: str) -> pd.Series:
        rows = table[(table["subset"] == subset) & (table["metric"] == name)]
        return rows.sort_values("step").set_index("step")["value"]

    validations = table.loc[table["subset"] == "valid", "step"].drop_duplicates().sort_values()
    valid = series("valid", metric).dropna()
    return Progress(
        epoch=len(validations),
        update=int(table["step"].max()),
        loss=_last(series("train_inner", "loss")),
        valid=_last(valid),
        best=None if valid.empty else float(valid.min() if lower_is_better(metric) else valid.max()),
        updates_per_second=_last(series("train_inner", "ups")),
        updates_per_epoch=int(validations.iloc[0]) if len(validations) else None,
    )


def duration(seconds: float) -> str:
    """`1:02:03`, or `2:03` under an hour."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _live_logs(run: Run) -> tuple[Log, ...]:
    """The trainer's own log where there is one: event files are written minutes later."""
    path = run.path / TRAINER_LOG
    return (Log(path, "json"),) if path.is_file() else run.logs


def _size_and_time(path: Path) -> tuple[int, float]:
    try:
        state = path.stat()
    except FileNotFoundError:
        return 0, 0.0
    return state.st_size, state.st_mtime


def _silence(logs: Iterable[Log]) -> float:
    """Seconds since one of the logs has grown; 0 without logs."""
    return time.time() - max((_size_and_time(log.path)[1] for log in logs), default=time.time())


def _last_line(path: Path, length: int = 120) -> str:
    """The last line that is not empty; "" without a file."""
    if not path.is_file():
        return ""
    with open(path, "rb") as stream:
        stream.seek(max(0, path.stat().st_size - 10_000))
        lines = stream.read().decode("utf-8", errors="replace").split("\n")
    return next((line.strip()[-length:] for line in reversed(lines) if line.strip()), "")


def _last(values: pd.Series) -> float | None:
    return None if values.empty else float(values.iloc[-1])


def _number(words: Sequence[str], flag: str) -> int | None:
    """The last value of a flag that is a whole number above 0."""
    found = None
    for word, following in pairwise([*words, ""]):
        name, _, value = word.partition("=")
        if name == flag and re.fullmatch("[1-9][0-9]*", value or following):
            found = int(value or following)
    return found
