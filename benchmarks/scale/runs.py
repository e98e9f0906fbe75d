"""Sweeps of many runs: planning, skipping, resuming and reading them, without any training."""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.log_tree import write_run
from benchmarks.scale.memory import watch
from roberta_small.common import manifest
from roberta_small.common.run import LOG, TENSORBOARD, Run
from roberta_small.experiments import provenance
from roberta_small.experiments import sweep as experiment
from roberta_small.experiments.methods import fairseq
from roberta_small.experiments.settings import train_settings
from roberta_small.experiments.sweep import Experiment

EPOCHS, UPDATES = 5, 225
RESUMED = 10
"""In the resumed sweep, one of this many runs was interrupted."""


def measure(runs: int, data: Path, folder: Path) -> dict[str, Any]:
    """Write finished runs, then time the sweep and the analysis on them."""
    out = folder / "runs"
    arguments = ["--data", str(data), "--inits", "random", "--device", "cpu", "--out", str(out)]
    arguments += ["--seeds", *map(str, range(1, runs + 1))]
    sweep = experiment.checked(train_settings(arguments, {}), fairseq.TRAINER)
    train = [sys.executable, "-m", "roberta_small.experiments", "train", *arguments]
    tables = [sys.executable, "-m", "roberta_small.analysis", "tables", str(out)]

    def seconds(name: str, line: list[str]) -> dict[str, float]:
        took = watch(line, folder / f"{name}.log")
        return {f"{name}_seconds": took.seconds, f"{name}_peak_bytes": took.peak_bytes}

    row: dict[str, Any] = {"runs": runs, **seconds("plan", [*train, "--dry-run"])}
    write_runs(sweep, lambda run: "finished")
    row |= seconds("skip", train) | seconds("tables", tables)
    write_runs(sweep, lambda run: "interrupted" if run.seed % RESUMED == 0 else "finished")
    return row | seconds("plan_resumption", [*train, "--dry-run"])


def write_runs(sweep: Experiment, status: Callable[[Run], str]) -> None:
    """The folders of all runs as a sweep writes them, with generated logs and empty checkpoints."""
    static = provenance.static(provenance.machine("cpu"))
    for job in [sweep.job(run, cpu=True) for run in sweep.runs]:
        run = job.planned.run
        if not run.folder.exists():
            write_run(run.folder / TENSORBOARD, run.seed, range(UPDATES, UPDATES * EPOCHS + 1, UPDATES))
            (run.folder / LOG).write_text("".join(log_lines()), encoding="utf-8")
            for name in ("checkpoint_best.pt", "checkpoint_last.pt"):
                with zipfile.ZipFile(run.folder / name, "w") as archive:
                    archive.writestr("empty", "")
        times = {"started": provenance.now(), "ended": provenance.now(), "seconds": 60.0}
        manifest.write(run.folder, {"status": status(run), **sweep.record(job), **static, **times})


def log_lines() -> list[str]:
    """The lines of the trainer's log that the sweep reads."""
    lines = []

    def say(subset: str, **values: Any) -> None:
        lines.append(f"2026-01-02 03:04:05 | INFO | {subset} | {json.dumps(values)}\n")

    for epoch in range(1, EPOCHS + 1):
        for update in range(25, UPDATES + 1, 25):
            number = UPDATES * (epoch - 1) + update
            say("train_inner", epoch=epoch, update=epoch - 1 + update / UPDATES, num_updates=str(number))
        say("valid", epoch=epoch, valid_accuracy="50.0", valid_num_updates=str(UPDATES * epoch))
        say("train", epoch=epoch, train_loss="0.6")
    return lines
