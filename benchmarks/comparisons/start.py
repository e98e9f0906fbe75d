"""Commands from start to end: help, predictions, the first update, tables, the whole sample.

The files of Python, its packages, the checkpoint and the data are in the page cache.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

from benchmarks import fairseq_commands
from benchmarks.comparisons.logs import write_tree
from benchmarks.measure import Contender, compare, execute, python
from benchmarks.settings import Settings
from roberta_small.common.files import ROOT, read_lines

ROUNDS = 5
TABLE_RUNS, LINES = 6, 10_000
PYTHON = {"PYTHON": sys.executable}
"""The interpreter of the scripts."""


def run(settings: Settings) -> dict[str, Any]:
    """Seconds of each command."""
    title = "Seconds from start to end"
    return compare("start", title, contenders(settings, settings.scratch / "start"), settings, rounds=ROUNDS)


def contenders(settings: Settings, work: Path) -> list[Contender]:
    """All commands, with the files that they read; those that write do so in a new folder each time."""
    write_tree(work / "logs", TABLE_RUNS)
    _run(settings, "train.sh", *_train(settings, work / "runs"))
    trained = work / "runs" / "fairseq" / "random" / "seed1"
    onnx, lines = work / "model.onnx", work / "lines.txt"
    _run(settings, "export", *python("roberta_small.export", "onnx", trained, "--out", onnx))
    sentences = itertools.cycle(read_lines(settings.sample / "text" / "test.input0"))
    text = "".join(f"{line}\n" for line in itertools.islice(sentences, LINES))
    lines.write_text(text, encoding="utf-8")
    predict = ("roberta_small.eval", "predict", "--checkpoint")
    sample = (str(ROOT / "roberta_small/experiments/sample.sh"), f"{work}/again/data", f"{work}/again/runs")
    commands = {
        "analysis tables --help": python("roberta_small.analysis", "tables", "--help"),
        f"analysis tables, {TABLE_RUNS} runs": python("roberta_small.analysis", "tables", work / "logs"),
        "eval predict, a sentence": python(*predict, trained, "Un livre captivant."),
        "eval predict, a sentence, ONNX": python(*predict, onnx, "Un livre captivant."),
        f"eval predict, {LINES:,} sentences": python(
            *predict, trained, "--input", lines, "--out", work / "predicted.csv"
        ),
        "train.sh, one update, validated on valid and saved": _fresh(work, _train(settings, work / "again")),
        "make sweep": _fresh(work, sample),
    }
    return [Contender(name, command, PYTHON, ours=True) for name, command in commands.items()]


def _train(settings: Settings, folder: Path) -> tuple[str, ...]:
    """`train.sh` for a single update."""
    sizes = fairseq_commands.flatten(settings.sizes.flags())
    command = [str(ROOT / "train.sh"), "--data", str(settings.data), "--inits", "random", "--seeds", "1"]
    command += ["--device", "cpu" if settings.machine.cpu else "cuda", "--out", str(folder)]
    return (*command, "--", "--max-update", "1", "--valid-subset", "valid", *sizes)


def _fresh(work: Path, command: tuple[str, ...]) -> tuple[str, ...]:
    """The command after removing the folder again/ that it writes."""
    return ("sh", "-c", 'rm -rf "$1" && shift && exec "$@"', "sh", str(work / "again"), *command)


def _run(settings: Settings, title: str, *command: str) -> None:
    execute(Contender(title, command, PYTHON), settings, f"start {title}")
