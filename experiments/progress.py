"""Where a run is, read from its log (fairseq's `--log-format json`), and shown as a line.

A log line of interest is `DATE TIME | INFO | <subset> | {"epoch": 1, ..., "loss": "0.69"}`:
fairseq writes one each --log-interval updates (subset train_inner), one for each validation
(valid, test) and one at the end of an epoch (train), with all numbers but the epoch as strings.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from .recipes import Recipe

RECORD = re.compile(r"^[\d-]+ [\d:]+ \| INFO \| (\w+) \| (\{.*\})$")
PRECISION = re.compile(r"\| precision: (\w+)")
SAVED = re.compile(r"Saved checkpoint .* \(epoch (\d+) @ (\d+) updates")


@dataclass
class Progress:
    """State of one run; values that are not in the log yet are None."""

    recipe: Recipe
    epoch: int = 0
    epochs_done: float = 0.0
    """With the fraction of the current one."""
    update: int = 0
    seconds: float = 0.0
    """Of training, on fairseq's clock."""
    loss: float | None = None
    """Training loss of the last interval, in bits as fairseq logs it."""
    words_per_second: float | None = None
    best: float | None = None
    best_epoch: int | None = None
    validations: int = 0
    last_valid: dict[str, float] = field(default_factory=dict)
    saved: tuple[int, int] | None = None
    """Epoch and update of the last checkpoint."""
    precision: str | None = None
    """Arithmetic of the matrix products, as the trainer chose it."""

    def read_line(self, line: str) -> None:
        """Read one line of the log; other lines are ignored."""
        if match := RECORD.match(line):
            try:
                self._read_record(match[1], json.loads(match[2]))
            except ValueError:
                return  # a printed dictionary that only looks like a record
        elif match := SAVED.search(line):
            self.saved = int(match[1]), int(match[2])
        elif match := PRECISION.search(line):
            self.precision = match[1]

    def fraction(self) -> float:
        """Part of the run that is done, between 0 and 1: whichever limit is nearer."""
        max_epoch, max_update = self.recipe.max_epoch, self.recipe.max_update
        by_epoch = self.epochs_done / max_epoch if max_epoch else 0.0
        by_update = self.update / max_update if max_update else 0.0
        by_time = self.seconds / (3600 * self.recipe.hours) if self.recipe.hours else 0.0
        return min(1.0, max(by_epoch, by_update, by_time))

    def _read_record(self, subset: str, record: dict[str, Any]) -> None:
        numbers = {key: number for key, value in record.items() if (number := _number(value)) is not None}
        self.epoch = int(numbers.get("epoch", self.epoch))
        if subset == "train_inner":
            self.epochs_done = numbers.get("update", self.epochs_done)
            self.update = int(numbers.get("num_updates", self.update))
            self.seconds = numbers.get("wall", self.seconds)
            self.loss = numbers.get("loss", self.loss)
            self.words_per_second = numbers.get("wps", self.words_per_second)
        elif subset == "train":
            self.epochs_done = float(self.epoch)
        elif subset == self.recipe.valid_subsets[0]:
            self._read_validation({key.removeprefix(f"{subset}_"): value for key, value in numbers.items()})

    def _read_validation(self, numbers: dict[str, float]) -> None:
        self.validations += 1
        self.update = int(numbers.get("num_updates", self.update))
        self.last_valid = numbers
        now = numbers.get(self.recipe.metric)
        self.best = numbers.get(f"best_{self.recipe.metric}", now)  # the first validation has no best
        if now == self.best:  # the later one on a tie, as the checkpoint
            self.best_epoch = self.epoch


class Follower:
    """Reads the new lines of a growing log; a missing log counts as empty."""

    def __init__(self, log: Path, recipe: Recipe) -> None:
        self._log = log
        self._offset = 0
        self.progress = Progress(recipe)

    def skip(self) -> None:
        """Read the existing lines."""
        for _ in self.poll():
            pass

    def poll(self) -> Iterator[Progress]:
        """Read the complete lines written since; yields `progress` after each validation."""
        if not self._log.is_file():
            return
        with open(self._log, "rb") as stream:
            stream.seek(self._offset)
            whole, newline, _ = stream.read().rpartition(b"\n")
        self._offset += len(whole + newline)
        for line in whole.decode("utf-8", errors="replace").splitlines():
            before = self.progress.validations
            self.progress.read_line(line)
            if self.progress.validations > before:
                yield self.progress


def read_log(log: Path, recipe: Recipe) -> Progress:
    """The progress recorded in a complete log."""
    follower = Follower(log, recipe)
    follower.skip()
    return follower.progress


class Line:
    """One run on the screen: redrawn in place on a terminal, else a line for each validation."""

    def __init__(self, name: str, position: int) -> None:
        self._name = name
        self._start: float | None = None
        """Fraction done before training resumes."""
        self._first: tuple[float, float] | None = None
        """Time and fraction when training was first seen to advance."""
        self._bar = tqdm(
            total=1.0,
            desc=name,
            position=position,
            leave=False,
            dynamic_ncols=True,
            disable=not sys.stderr.isatty(),
            bar_format="|{bar:12}| {desc}",
        )

    def show(self, follower: Follower) -> None:
        """Bring the screen up to date."""
        for progress in follower.poll():
            if self._bar.disable:
                print(f"{self._name}  {self._text(progress)}", flush=True)
        self._bar.n = follower.progress.fraction()
        self._bar.set_description_str(f"{self._name}  {self._text(follower.progress)}")  # redraws

    def close(self) -> None:
        """Remove the line from the terminal."""
        self._bar.close()

    def _text(self, progress: Progress) -> str:
        max_epoch, max_update = progress.recipe.max_epoch, progress.recipe.max_update
        parts = [
            f"epoch {progress.epoch}{f'/{max_epoch}' if max_epoch else ''}",
            f"update {progress.update}{f'/{max_update}' if max_update else ''}",
        ]
        if progress.loss is not None:
            parts.append(f"loss {progress.loss:.3f}")
        parts += validation_words(progress)
        if progress.words_per_second is not None:
            parts.append(f"{progress.words_per_second:,.0f} tokens/s")
        if (left := self._seconds_left(progress.fraction())) is not None:
            parts.append(f"left {duration(left)}")
        return "  ".join(parts)

    def _seconds_left(self, done: float) -> float | None:
        """Estimate from the speed since training was first seen to advance, which is after loading."""
        if self._first is None:
            self._start = done if self._start is None else self._start
            if done > self._start:
                self._first = time.monotonic(), done
            return None
        since, before = self._first
        return (time.monotonic() - since) * (1 - done) / (done - before) if done > before else None


def validation_words(progress: Progress) -> list[str]:
    """The last validation and the best one, in words."""
    words = []
    metric = progress.recipe.metric
    if (last := progress.last_valid.get(metric)) is not None:
        words.append(f"valid {metric} {last:.4g}")
    if (perplexity := progress.last_valid.get("ppl")) is not None and metric == "loss":
        words.append(f"perplexity {perplexity:.4g}")
    if progress.best is not None:
        words.append(f"best {progress.best:.4g}")
    return words


def say(line: str) -> None:
    """Print a line above the live ones."""
    tqdm.write(line, file=sys.stdout)
    sys.stdout.flush()


def duration(seconds: float) -> str:
    """`1:02:03`, or `2:03` under an hour."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _number(value: object) -> float | None:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
