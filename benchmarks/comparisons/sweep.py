"""Six runs with validation and saving (long): a loop of stock fairseq-train, and train.sh.

On a CPU, each with one run at a time, which has all cores, and with two, which share them. On a GPU, the loop
has one or two at a time, in fp16, and train.sh one, or as many as it chooses.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from typing import Any

from benchmarks import fairseq_commands
from benchmarks.measure import Contender, compare, python
from benchmarks.settings import Settings
from roberta_small.common.cpu import THREADS
from roberta_small.common.files import ROOT
from roberta_small.experiments.methods.fairseq import RESETS

SEEDS = (1, 2, 3)


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
    first, second = (
        shlex.join(python("fairseq_cli.train", *_stock(settings, init))) for init in ("random", "pretrained")
    )
    share = dict.fromkeys(THREADS, str(max(1, settings.machine.threads // 2)))
    parts: dict[str, Any] = {"scale": len(SEEDS), "note": f"2 of 6 runs, times {len(SEEDS)}"}
    trust, shell = fairseq_commands.TRUST, ("sh", "-ec")
    both = f"{first} &\nfirst=$!\n{second}\nwait $first"
    stock = f"stock fairseq, {fairseq_commands.stock_precision(settings)[0]}"
    found = [
        Contender(f"{stock}, one run after another", (*shell, f"{first}\n{second}"), trust, **parts),
        Contender(f"{stock}, two runs at a time", (*shell, both), trust | share, quick=True, **parts),
    ]
    for name, precision in (("ours, fp32", "fp32"), ("ours", "auto")):
        for jobs in ("1", "2" if settings.machine.cpu else "auto"):
            command = _ours(settings, f"{precision}-{jobs}", precision, jobs)
            environment, quick = {"PYTHON": sys.executable}, precision == "auto"
            found.append(Contender(f"{name}, --jobs {jobs}", command, environment, ours=True, quick=quick))
    return found


def _ours(settings: Settings, folder: str, precision: str, jobs: str) -> tuple[str, ...]:
    words = [str(ROOT / "train.sh"), "--data", str(settings.data)]
    words += ["--pretrained", str(fairseq_commands.checkpoint("ours", settings))]
    words += ["--seeds", *map(str, SEEDS), "--device", "cpu" if settings.machine.cpu else "cuda"]
    words += ["--out", str(settings.scratch / "sweep" / folder), "--jobs", jobs]
    sizes = fairseq_commands.flatten(settings.sizes.flags())
    return (*words, "--", "--max-epoch", str(settings.epochs), *sizes, "--precision", precision)


def _stock(settings: Settings, init: str) -> list[str]:
    folder = settings.scratch / "sweep" / "stock" / init
    changes = {
        "--num-classes": str(fairseq_commands.classes(settings)),
        "--max-epoch": str(settings.epochs),
        "--save-dir": str(folder),
        "--tensorboard-logdir": str(folder / "tensorboard"),
    }
    changes |= fairseq_commands.stock_precision(settings)[1]
    flags = fairseq_commands.command("stock", settings, "reference", settings.data, changes)
    start = ["--restore-file", str(fairseq_commands.checkpoint("stock", settings)), *RESETS]
    return [*flags, *(start if init == "pretrained" else [])]
