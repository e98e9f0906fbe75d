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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm

RECORD = re.compile(r"^[\d-]+ [\d:]+ \| INFO \| (\w+) \| (\{.*\})$")
SAVED = re.compile(r"Saved checkpoint .* \(epoch (\d+) @ (\d+) updates")
FAILURE_LINES = 15


@dataclass
class Progress:
    """State of one run; values that the log has not said yet are None."""

    metric: str = "loss"
    """The one that chooses the best checkpoint."""
    epoch: int = 0
    epochs_done: float = 0.0
    """With the fraction of the current one."""
    update: int = 0
    loss: float | None = None
    """Training loss of the last interval, in bits as fairseq logs it."""
    words_per_second: float | None = None
    best: float | None = None
    best_epoch: int | None = None
    validations: int = 0
    last_valid: dict[str, float] = field(default_factory=dict)
    saved: tuple[int, int] | None = None
    """Epoch and update of the last checkpoint."""

    def read_line(self, line: str) -> None:
        """Take in one line of the log; lines that say nothing of interest are passed over."""
        if match := RECORD.match(line):
            try:
                self._read_record(match[1], json.loads(match[2]))
            except ValueError:
                return  # a printed dictionary that only looks like a record
        elif match := SAVED.search(line):
            self.saved = int(match[1]), int(match[2])

    def fraction(self, max_epoch: int | None, max_update: int | None) -> float:
        """Part of the run that is done, between 0 and 1: whichever limit is nearer."""
        by_epoch = self.epochs_done / max_epoch if max_epoch else 0.0
        by_update = self.update / max_update if max_update else 0.0
        return min(1.0, max(by_epoch, by_update))

    def _read_record(self, subset: str, record: dict[str, Any]) -> None:
        numbers = {key: number for key, value in record.items() if (number := _number(value)) is not None}
        self.epoch = int(numbers.get("epoch", self.epoch))
        if subset == "train_inner":
            self.epochs_done = numbers.get("update", self.epochs_done)
            self.update = int(numbers.get("num_updates", self.update))
            self.loss = numbers.get("loss", self.loss)
            self.words_per_second = numbers.get("wps", self.words_per_second)
        elif subset == "train":
            self.epochs_done = float(self.epoch)
        elif (best := numbers.get(f"{subset}_best_{self.metric}")) is not None:
            # Only the first validation subset has a best value.
            self._read_validation(subset, numbers, best)

    def _read_validation(self, subset: str, numbers: dict[str, float], best: float) -> None:
        self.validations += 1
        self.update = int(numbers.get(f"{subset}_num_updates", self.update))
        self.last_valid = {key.removeprefix(f"{subset}_"): value for key, value in numbers.items()}
        if self.last_valid.get(self.metric) == best:  # the later one on a tie, as the checkpoint
            self.best_epoch = self.epoch
        self.best = best


class Follower:
    """Reads what a growing log has gained."""

    def __init__(self, log: Path, metric: str) -> None:
        self._log = log
        self._offset = 0
        self._rest = b""
        self.progress = Progress(metric=metric)

    def poll(self) -> Progress:
        """Progress after all complete lines written so far."""
        if self._log.is_file():
            with open(self._log, "rb") as stream:
                stream.seek(self._offset)
                new = stream.read()
            self._offset += len(new)
            *lines, self._rest = (self._rest + new).split(b"\n")
            for line in lines:
                self.progress.read_line(line.decode("utf-8", errors="replace"))
        return self.progress


def follow(log: Path, metric: str) -> Follower:
    """Follow a log from its beginning; a log that is not there yet is an empty one."""
    return Follower(log, metric)


class Line:
    """One run on the screen: redrawn in place on a terminal, else a line for each validation."""

    def __init__(self, name: str, max_epoch: int | None, max_update: int | None, position: int) -> None:
        self._name = name
        self._limits = max_epoch, max_update
        self._started = time.monotonic()
        self._first: float | None = None
        self._validations: int | None = None
        self._bar = tqdm(
            total=1.0,
            desc=name,
            position=position,
            leave=False,
            dynamic_ncols=True,
            disable=not sys.stderr.isatty(),
            bar_format="{desc} |{bar:12}| {postfix}",
        )

    def show(self, progress: Progress) -> None:
        """Bring the screen up to date."""
        done = progress.fraction(*self._limits)
        if self._first is None:
            self._first, self._validations = done, progress.validations
        text = self._text(progress, done)
        self._bar.n = done
        self._bar.set_postfix_str(text)  # redraws
        if self._bar.disable and progress.validations != self._validations:
            print(f"{self._name}  {text}", flush=True)
        self._validations = progress.validations

    def close(self) -> None:
        """Remove the line from the terminal."""
        self._bar.close()

    def _text(self, progress: Progress, done: float) -> str:
        max_epoch, max_update = self._limits
        parts = [
            f"epoch {progress.epoch}{f'/{max_epoch}' if max_epoch else ''}",
            f"update {progress.update}{f'/{max_update}' if max_update else ''}",
        ]
        if progress.loss is not None:
            parts.append(f"loss {progress.loss:.3f}")
        parts += validation_words(progress)
        if progress.words_per_second is not None:
            parts.append(f"{progress.words_per_second:,.0f} tokens/s")
        first = self._first or 0.0
        if done > first:
            left = (time.monotonic() - self._started) * (1 - done) / (done - first)
            parts.append(f"left {duration(left)}")
        return "  ".join(parts)


def validation_words(progress: Progress) -> list[str]:
    """The last validation and the best one, in words."""
    words = []
    if (last := progress.last_valid.get(progress.metric)) is not None:
        words.append(f"valid {progress.metric} {last:.4g}")
    if (perplexity := progress.last_valid.get("ppl")) is not None and progress.metric == "loss":
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


def tail(log: Path, lines: int = FAILURE_LINES) -> list[str]:
    """The last lines of a log, for the report of a failure."""
    if not log.is_file():
        return []
    return log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]


def table(header: list[str], rows: list[list[str]]) -> str:
    """Columns aligned with two spaces between them."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [header, *rows]
    )


def _number(value: object) -> float | None:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
