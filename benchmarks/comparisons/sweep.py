"""The six runs of the reference sweep, validation and saving included: stock fairseq-train and train.sh.

Each with one run at a time, which has all cores, and with two, which share them.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from typing import Any

from benchmarks import command_line
from benchmarks.measure import Contender, compare, python
from benchmarks.settings import Settings
from roberta_small.common.cpu import THREADS
from roberta_small.common.files import ROOT
from roberta_small.experiments.methods.fairseq import RESETS

SEEDS = (1, 2, 3)
JOBS = (1, 2)
STOCK = "stock fairseq, fp32"


def run(settings: Settings) -> dict[str, Any]:
    """Wall seconds of all six runs, one round: it takes long and is an average in itself."""
    return compare(
        "sweep",
        f"Six runs of the reference sweep, {settings.epochs} epoch(s)",
        contenders(settings),
        settings,
        rounds=1,
        after_round=lambda: shutil.rmtree(settings.scratch / "sweep", ignore_errors=True),
        epochs=settings.epochs,
        about=(
            "three seeds from random and from pretrained weights, validation on valid and test and saving "
            "included; stock runs one seed of each, times three"
        ),
    )


def contenders(settings: Settings) -> list[Contender]:
    """A loop of fairseq-train, the same with two runs at a time, and train.sh with one and two at a time."""
    commands = [
        shlex.join(python("fairseq_cli.train", *_stock(settings, init))) for init in ("random", "pretrained")
    ]
    both = f"{commands[0]} &\nfirst=$!\n{commands[1]}\nwait $first"
    threads = str(max(1, settings.machine.threads // max(JOBS)))
    share = dict.fromkeys(THREADS, threads)
    parts: dict[str, Any] = {"scale": len(SEEDS), "note": f"2 of 6 runs, times {len(SEEDS)}"}
    trust = command_line.TRUST
    found = [
        Contender(f"{STOCK}, one run after another", _shell("\n".join(commands)), trust, **parts),
        Contender(f"{STOCK}, two runs at a time", _shell(both), trust | share, quick=True, **parts),
    ]
    for name, precision in (("ours, fp32", "fp32"), ("ours", "auto")):
        for jobs in JOBS:
            command = _ours(settings, f"{name}-{jobs}".replace(", ", "-"), precision, jobs)
            environment = {"PYTHON": sys.executable}
            quick = precision == "auto"
            found.append(Contender(f"{name}, --jobs {jobs}", command, environment, ours=True, quick=quick))
    return found


def _shell(script: str) -> tuple[str, ...]:
    return ("sh", "-ec", script)


def _ours(settings: Settings, folder: str, precision: str, jobs: int) -> tuple[str, ...]:
    words = [str(ROOT / "train.sh"), "--data", str(settings.data)]
    words += ["--pretrained", str(command_line.our_checkpoint(settings))]
    words += ["--seeds", *(str(seed) for seed in SEEDS)]
    words += ["--device", "cpu" if settings.machine.cpu else "cuda"]
    words += ["--out", str(settings.scratch / "sweep" / folder), "--jobs", str(jobs)]
    sizes = command_line.flatten(settings.sizes.flags())
    return (*words, "--", "--max-epoch", str(settings.epochs), *sizes, "--precision", precision)


def _stock(settings: Settings, init: str) -> list[str]:
    folder = settings.scratch / "sweep" / "stock" / init
    changes = {
        "--num-classes": str(command_line.classes(settings)),
        "--max-epoch": str(settings.epochs),
        "--save-dir": str(folder),
        "--tensorboard-logdir": str(folder / "tensorboard"),
    }
    flags = command_line.stock(settings, "reference", settings.data, changes)
    return (
        flags
        if init == "random"
        else [*flags, "--restore-file", str(command_line.stock_checkpoint(settings)), *RESETS]
    )
