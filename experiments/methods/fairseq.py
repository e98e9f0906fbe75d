"""The method fairseq: the command line of fairseq-train for a run, as executed and as shown."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from common.cli import SettingsParser
from common.data_folder import shards_of
from common.files import shown_path
from common.run import TENSORBOARD, State

from .. import ROOT
from ..plan import Job, Planned

TRAINER = (sys.executable, "-P", "-m", "fairseq_cli.train")
PLUGIN = ROOT / "fairseq_plugin"
LOG_FLAGS = ("--log-format", "json", "--log-interval", "25")
RESETS = ("--reset-optimizer", "--reset-dataloader", "--reset-meters")

# A training step frees and asks again for the same hundreds of MB. By default glibc gives large
# blocks back to the kernel at once, and their pages are faulted in again: a third of a step.
# 32 MiB is the largest threshold that glibc honours; the trim threshold bounds what is kept. What
# is larger comes and goes in huge pages, with a twentieth of the faults (glibc 2.35 and later).
# Threads that wait for each other spin for some 50 microseconds, the gap between two operations, and
# then sleep: sleeping at once makes every small operation wait, and spinning for ever, as libgomp does
# by default, halves the speed of whatever else runs on the machine (or of a second run).
TUNING = {
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(512 << 20),
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    "GOMP_SPINCOUNT": "20000",
}


def build(
    planned: Planned, data: Path, flags: Sequence[str], *, cpu: bool, trainer: Sequence[str] = TRAINER
) -> Job:
    """The job of a run; `flags` are the recipe's words (and `--num-classes`)."""
    argv = _words(planned, data, flags, cpu, lambda path: str(path.absolute()))
    shown = _words(planned, data, flags, cpu, shown_path)
    return Job(planned, (*trainer, *argv), ("fairseq-train", *shown))


def environment(threads: int) -> dict[str, str]:
    """Variables for a trainer, on top of the user's own (which win over our tuning)."""
    tuning = {name: os.environ.get(name, value) for name, value in TUNING.items()}
    return tuning | {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}


def _words(
    planned: Planned, data: Path, flags: Sequence[str], cpu: bool, write: Callable[[Path], str]
) -> tuple[str, ...]:
    run = planned.run
    # A first start from a checkpoint restores it and resets all but the weights. To resume, neither
    # is said: fairseq then takes checkpoint_last.pt of --save-dir with its optimizer, schedule and
    # place in the data (fairseq/checkpoint_utils.py, load_checkpoint).
    restore: tuple[str, ...] = ()
    if run.checkpoint is not None and planned.state is State.NEW:
        restore = ("--restore-file", write(run.checkpoint), *RESETS)
    return (
        os.pathsep.join(write(shard) for shard in shards_of(data)),
        *("--user-dir", write(PLUGIN)),
        *LOG_FLAGS,
        *flags,
        # fairseq's default is as many processes as there are GPUs, with --cpu too: another batch.
        *(() if "--distributed-world-size" in flags else ("--distributed-world-size", "1")),
        *("--seed", str(run.seed)),
        *("--save-dir", write(run.folder)),
        *("--tensorboard-logdir", write(run.folder / TENSORBOARD)),
        *restore,
        *(("--cpu",) if cpu else ()),
    )


class Fairseq:
    """fairseq-train over seeds, initializations and settings; `trainer` replaces it in tests."""

    name = "fairseq"
    summary = "fairseq's trainer (default)"

    def __init__(self, trainer: Sequence[str] = TRAINER) -> None:
        self._trainer = trainer

    def add_arguments(self, parser: SettingsParser) -> None:
        """Those of `experiments.settings.add_train`."""
        from ..settings import add_train

        add_train(parser)

    def train(self, options: argparse.Namespace) -> int:
        """The sweep, from checks to summary; the exit code."""
        from ..settings import sweep_settings
        from ..train import train

        return train(sweep_settings(options), self._trainer)


METHOD = Fairseq()
