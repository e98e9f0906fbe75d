"""The six runs of the reference sweep, validation and saving included: stock fairseq-train and train.sh."""

from __future__ import annotations

import shlex
import shutil
import sys
from typing import Any

from experiments import ROOT
from experiments.methods.fairseq import RESETS

from .. import command_line
from ..measure import Contender, compare, python
from ..settings import Settings

SEEDS = (1, 2, 3)
JOBS = (1, 2)


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
    """A loop of fairseq-train, and train.sh with one and with two runs at a time."""
    out = settings.scratch / "sweep"
    commands = [
        shlex.join(python("fairseq_cli.train", *_stock(settings, init))) for init in ("random", "pretrained")
    ]
    loop = Contender(
        "stock fairseq, fp32, one run after another",
        ("sh", "-ec", "\n".join(commands)),
        command_line.TRUST,
        scale=len(SEEDS),
        note="2 of 6 runs, times 3",
    )
    pretrained = command_line.our_checkpoint(settings)
    own = [str(ROOT / "train.sh"), "--data", str(settings.data), "--pretrained", str(pretrained)]
    own += ["--seeds", *(str(seed) for seed in SEEDS), "--device", "cpu" if settings.machine.cpu else "cuda"]
    sizes = command_line.flatten(settings.sizes.flags())
    extra = ["--", "--max-epoch", str(settings.epochs), *sizes]
    found = [loop]
    for name, flags in (("ours, fp32", ["--precision", "fp32"]), ("ours", ["--precision", "auto"])):
        for jobs in JOBS:
            folder = str(out / f"{name}-{jobs}".replace(", ", "-"))
            command = (*own, "--out", folder, "--jobs", str(jobs), *extra, *flags)
            python_used = {"PYTHON": sys.executable}
            found.append(Contender(f"{name}, --jobs {jobs}", command, python_used, ours=True))
    return found


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
