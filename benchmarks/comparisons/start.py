"""The time to a first result: commands from start to end, warm and cold.

Warm: the files of Python, its packages, the checkpoint and the data are in the page cache. Cold: the cache is
emptied before each repetition, as after a restart of the machine (root only, /proc/sys/vm/drop_caches).
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import command_line
from benchmarks.log_tree import write_tree
from benchmarks.measure import Contender, execute, python, say
from benchmarks.settings import Settings
from roberta_small.common.errors import UserError
from roberta_small.experiments import ROOT

REPETITIONS = 10
SWEEPS = 5
"""Repetitions of the whole experiment on the sample, which takes minutes."""
TABLE_RUNS = 6
CACHES = Path("/proc/sys/vm/drop_caches")
HELP = (
    "preprocess dataset", "preprocess binarize", "preprocess audit", "experiments train",
    "experiments pretrain", "eval predict", "eval evaluate", "eval errors", "eval generate", "eval demo",
    "analysis runs", "analysis tables", "analysis compare", "analysis figures", "analysis report",
    "analysis watch", "export transformers", "export onnx",
    "fairseq_plugin parameters", "fairseq_plugin ppmi-svd", "fairseq_plugin.compat",
    "benchmarks",
)  # fmt: skip
"""Commands whose `--help` is timed."""


def run(settings: Settings) -> dict[str, Any]:
    """Median seconds of each command, warm and, if the page cache can be emptied, cold."""
    work = settings.scratch / "start"
    write_tree(work / "logs", TABLE_RUNS)
    trained = work / "runs" / "fairseq" / "random" / "seed1"
    _time(_train(settings, work / "runs"), settings, "training a run")
    forms = {"fairseq checkpoint": trained / "checkpoint_last.pt"}
    for form, flags in (("ONNX fp32", ()), ("ONNX int8", ("--int8",))):
        forms[form] = work / f"{form.replace(' ', '-')}.onnx"
        _time(python("export", "onnx", trained, "--out", forms[form], *flags), settings, f"export, {form}")
    size = f"{settings.sizes.layers} x {settings.sizes.embed}"
    commands = {
        **{
            f"predict a sentence ({size}, {form})": python(
                "eval", "predict", "--checkpoint", path, "Un livre captivant."
            )
            for form, path in forms.items()
        },
        "train.sh, one update, validated on valid and saved": _train(settings, work / "again"),
        f"analysis tables, {TABLE_RUNS} runs": python("analysis", "tables", work / "logs"),
        **{f"{words} --help": python(*words.split(), "--help") for words in HELP},
    }
    states: dict[str, Callable[[], None]] = {"warm": lambda: None}
    if _can_empty_caches():
        states["cold"] = _empty_caches
    else:
        say("start: no cold starts (they need root)")
    times: dict[str, dict[str, list[float]]] = {name: {state: [] for state in states} for name in commands}
    for name, command in commands.items():
        _time(command, settings, name, work / "again")
    for state, prepare in states.items():  # all warm starts first: cold ones leave little in the cache
        for number in range(1, REPETITIONS + 1):
            say(f"start, {state}: repetition {number}/{REPETITIONS}")
            for name, command in commands.items():
                prepare()
                times[name][state].append(_time(command, settings, name, work / "again"))
    say(f"start: the whole experiment on the sample, {SWEEPS} times")
    name, folder = f"make sweep, median of {SWEEPS}", work / "again"
    times[name] = {"warm": [_time(_sweep(folder), settings, name, folder) for _ in range(SWEEPS)]}
    return {
        "name": "start",
        "title": f"Seconds from start to end, median of {REPETITIONS}",
        "seconds": times,
        "quantities": [
            {"quantity": f"{name}, {state}", "value": float(np.median(values)), "unit": "s"}
            for name, by_state in times.items()
            for state, values in by_state.items()
        ],
    }


def _train(settings: Settings, folder: Path) -> tuple[str, ...]:
    """`train.sh` for a single update."""
    sizes = command_line.flatten(settings.sizes.flags())
    command = [str(ROOT / "train.sh"), "--data", str(settings.data), "--inits", "random", "--seeds", "1"]
    command += ["--device", "cpu" if settings.machine.cpu else "cuda", "--out", str(folder)]
    return (*command, "--", "--max-update", "1", "--valid-subset", "valid", *sizes)


def _sweep(folder: Path) -> tuple[str, ...]:
    """`make sweep` with everything installed."""
    return (str(ROOT / "experiments" / "sample.sh"), str(folder / "data"), str(folder / "runs"))


def _time(command: tuple[str, ...], settings: Settings, name: str, folder: Path | None = None) -> float:
    """Wall seconds of a command that writes to an empty `folder`, if any."""
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
    log = settings.output / "logs" / "start.txt"
    return execute(Contender(name, command, {"PYTHON": sys.executable}), settings, log)["wall"]


def _can_empty_caches() -> bool:
    return os.access(CACHES, os.W_OK)


def _empty_caches() -> None:
    os.sync()
    try:
        CACHES.write_text("1\n", encoding="ascii")
    except OSError as error:
        raise UserError(f"{CACHES}: {error.strerror}; cold starts need root") from error
