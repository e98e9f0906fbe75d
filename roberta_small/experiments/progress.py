"""The progress of a run, read from its log (fairseq's `--log-format json`), and its progress line.

A record in the log is `DATE TIME | INFO | <subset> | {"epoch": 1, ..., "loss": "0.69"}`. fairseq writes
one every --log-interval updates (subset train_inner), one for each validation (valid, test) and one at
the end of an epoch (train). All numbers except the epoch are strings.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

from roberta_small.common.tables import duration
from roberta_small.experiments.recipe.recipe import Recipe

LOG_FORMAT = "%(asctime)s | %(levelname)s | %(name)s | %(message)s"
LOG_TIME = "%Y-%m-%d %H:%M:%S"
"""Format of the lines of a log and of their time, as in fairseq-train."""
RECORD = re.compile(r"^[\d-]+ [\d:]+ \| INFO \| (\w+) \| (\{.*\})$")
PARAMETERS = re.compile(r"num\. (?:shared )?model params: ([\d,]+) \(num\. trained: ([\d,]+)\)")
PRECISION = re.compile(r"\| precision: (\w+)")
SAVED = re.compile(r"Saved checkpoint .* \(epoch (\d+) @ (\d+) updates")


@dataclass
class Progress:
    """The progress of a run; values that are not in the log yet are None."""

    recipe: Recipe
    epoch: int = 0
    epochs_done: float = 0.0
    """Including the fraction of the current epoch."""
    update: int = 0
    seconds: float = 0.0
    """Training time as logged by fairseq."""
    loss: float | None = None
    """Training loss of the last log interval, in bits."""
    words_per_second: float | None = None
    best: float | None = None
    best_epoch: int | None = None
    at_best: dict[str, float] = field(default_factory=dict)
    """The metric on the other validation subsets at the best validation."""
    validations: int = 0
    last_valid: dict[str, float] = field(default_factory=dict)
    saved: tuple[int, int] | None = None
    """Epoch and update of the last checkpoint."""
    _last_is_best: bool = False
    precision: str | None = None
    """Precision of the matrix products, as logged by the trainer."""
    parameters: tuple[int, int] | None = None
    """Parameters of the network, and those that are trained, as logged by the trainer."""

    def read_line(self, line: str) -> None:
        """Read one line of the log; other lines are ignored."""
        if match := RECORD.match(line):
            with contextlib.suppress(ValueError):  # a printed dictionary, not a record
                self._read_record(match[1], json.loads(match[2]))
        elif match := SAVED.search(line):
            self.saved = int(match[1]), int(match[2])
        elif match := PRECISION.search(line):
            self.precision = match[1]
        elif match := PARAMETERS.search(line):
            self.parameters = int(match[1].replace(",", "")), int(match[2].replace(",", ""))

    def fraction(self) -> float:
        """Fraction of the run that is done, from 0 to 1, by the limit that is reached first."""
        max_epoch, max_update = self.recipe.max_epoch, self.recipe.max_update
        by_epoch = self.epochs_done / max_epoch if max_epoch else 0.0
        by_update = self.update / max_update if max_update else 0.0
        by_time = self.seconds / (3600 * self.recipe.hours) if self.recipe.hours else 0.0
        return min(1.0, max(by_epoch, by_update, by_time))

    def _read_record(self, subset: str, record: dict[str, Any]) -> None:
        numbers: dict[str, float] = {}
        for key, value in record.items():
            with contextlib.suppress(TypeError, ValueError):
                numbers[key] = float(value)
        self.epoch = int(numbers.get("epoch", self.epoch))
        if subset == "train_inner":
            self.epochs_done = numbers.get("update", self.epochs_done)
            self.update = int(numbers.get("num_updates", self.update))
            self.seconds = numbers.get("wall", self.seconds)
            self.loss = numbers.get("loss", self.loss)
            self.words_per_second = numbers.get("wps", self.words_per_second)
        elif subset == "train":
            self.epochs_done = float(self.epoch)
        elif subset in self.recipe.valid_subsets:
            values = {key.removeprefix(f"{subset}_"): value for key, value in numbers.items()}
            value = values.get(self.recipe.metric)
            if subset != self.recipe.valid_subsets[0]:
                if self._last_is_best and value is not None:  # subsets are logged in their order
                    self.at_best[subset] = value
                return
            self.validations += 1
            self.update = int(values.get("num_updates", self.update))
            self.last_valid = values
            # fairseq logs no best value at the first validation.
            self.best = values.get(f"best_{self.recipe.metric}", value)
            self._last_is_best = value is not None and value == self.best
            if self._last_is_best:  # on a tie the later epoch, as for checkpoint_best.pt
                self.best_epoch = self.epoch
                self.at_best = {}


class Follower:
    """Reads the lines of a growing log, first those that it has; a missing log counts as empty."""

    def __init__(self, log: Path, recipe: Recipe) -> None:
        self._log = log
        self._offset = 0
        self.progress = Progress(recipe)
        for _ in self.poll():
            pass

    def poll(self) -> Iterator[Progress]:
        """Read the complete lines that are new; yields `progress` after each validation in them."""
        if not self._log.is_file():
            return
        with open(self._log, "rb") as stream:
            stream.seek(self._offset)
            complete, newline, _ = stream.read().rpartition(b"\n")
        self._offset += len(complete + newline)
        for line in complete.decode("utf-8", errors="replace").splitlines():
            before = self.progress.validations
            self.progress.read_line(line)
            if self.progress.validations > before:
                yield self.progress


def read_log(log: Path, recipe: Recipe) -> Progress:
    """The progress of a run from its whole log."""
    return Follower(log, recipe).progress


class ProgressLine:
    """The progress of a run on the screen: redrawn on a terminal, else one line for each validation."""

    def __init__(self, name: str, position: int) -> None:
        self._name = name
        self._start: float | None = None
        """Fraction that was done before this start."""
        self._first: tuple[float, float] | None = None
        """Time and fraction at the first observed update."""
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
        """Update the screen."""
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
        parts += validation_parts(progress)
        if progress.words_per_second is not None:
            parts.append(f"{progress.words_per_second:,.0f} tokens/s")
        # The time left is estimated from the speed since the first observed update, without loading.
        done = progress.fraction()
        if self._first is not None:
            since, before = self._first
            if done > before:
                left = (time.monotonic() - since) * (1 - done) / (done - before)
                parts.append(f"left {duration(left)}")
        elif self._start is None:
            self._start = done
        elif done > self._start:
            self._first = time.monotonic(), done
        return "  ".join(parts)


def validation_parts(progress: Progress) -> list[str]:
    """The last and the best validation: `["valid accuracy 62.5", "best 70"]`."""
    parts = []
    metric = progress.recipe.metric
    if (last := progress.last_valid.get(metric)) is not None:
        parts.append(f"valid {metric} {last:.4g}")
    if (perplexity := progress.last_valid.get("ppl")) is not None and metric == "loss":
        parts.append(f"perplexity {perplexity:.4g}")
    if progress.best is not None:
        parts.append(f"best {progress.best:.4g}")
    return parts


def print_above(line: str) -> None:
    """Print a line above the progress lines."""
    tqdm.write(line, file=sys.stdout)
    sys.stdout.flush()
