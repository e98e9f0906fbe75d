"""Predictions for a growing number of lines: rate and memory."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

from benchmarks.scale.memory import watch
from roberta_small.common.files import read_lines


def measure(lines: int, checkpoint: Path, text: Path, folder: Path) -> dict[str, Any]:
    """Classify `lines` lines, those of `text` repeatedly; returns seconds and bytes of the whole process."""
    source, out = folder / "lines.txt", folder / "predicted.csv"
    grow(text, source, lines)
    command = [sys.executable, "-m", "roberta_small.eval", "predict", "--checkpoint", str(checkpoint)]
    took = watch([*command, "--input", str(source), "--out", str(out)], folder / "predict.log")
    return {
        "checkpoint": checkpoint.name,
        "lines": lines,
        "text_bytes": source.stat().st_size,
        "seconds": took.seconds,
        "peak_bytes": took.peak_bytes,
    }


def grow(text: Path, target: Path, lines: int) -> None:
    """Write the lines of `text` repeatedly, until the file has `lines` lines."""
    with target.open("w", encoding="utf-8", newline="\n") as stream:
        for line in itertools.islice(itertools.cycle(read_lines(text)), lines):
            stream.write(f"{line}\n")
