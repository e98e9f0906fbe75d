"""The method fairseq: the fairseq-train command of a run, as executed and as shown."""

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

# A training step frees and allocates the same hundreds of MB again. By default glibc returns large blocks to
# the kernel immediately, and page faults on the next allocation take a third of a step. 32 MiB is the largest
# mmap threshold that glibc accepts; the trim threshold limits the memory that is kept. Larger blocks use huge
# pages, with a twentieth of the page faults (glibc 2.35 and later). Waiting OpenMP threads spin for about 50
# microseconds, the gap between two operations, and then sleep. Without spinning, every small operation would
# wait for threads to wake up. Unlimited spinning, the default of libgomp, halves the speed of other processes
# on the machine, such as a second run.
TUNING = {
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(512 << 20),
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    "GOMP_SPINCOUNT": "20000",
}


def build(
    planned: Planned, data: Path, flags: Sequence[str], *, cpu: bool, trainer: Sequence[str] = TRAINER
) -> Job:
    """The job of a run; `flags` are the flags of the recipe and `--num-classes`."""
    argv = _words(planned, data, flags, cpu, lambda path: str(path.absolute()))
    shown = _words(planned, data, flags, cpu, shown_path)
    return Job(planned, (*trainer, *argv), ("fairseq-train", *shown))


def environment(threads: int) -> dict[str, str]:
    """Environment variables for a trainer; the user's own values take precedence over `TUNING`."""
    tuning = {name: os.environ.get(name, value) for name, value in TUNING.items()}
    return tuning | {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}


def _words(
    planned: Planned, data: Path, flags: Sequence[str], cpu: bool, write: Callable[[Path], str]
) -> tuple[str, ...]:
    run = planned.run
    # A new run from a checkpoint restores only its weights. A resumed run needs no flags: fairseq loads
    # checkpoint_last.pt of --save-dir with optimizer, schedule and position in the data
    # (fairseq/checkpoint_utils.py, load_checkpoint).
    restore: tuple[str, ...] = ()
    if run.checkpoint is not None and planned.state is State.NEW:
        restore = ("--restore-file", write(run.checkpoint), *RESETS)
    return (
        os.pathsep.join(write(shard) for shard in shards_of(data)),
        *("--user-dir", write(PLUGIN)),
        *LOG_FLAGS,
        *flags,
        # fairseq's default is one process per GPU, even with --cpu, which would change the batch size.
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
        """Add the options of `experiments.settings.add_train`."""
        from ..settings import add_train

        add_train(parser)

    def train(self, options: argparse.Namespace) -> int:
        """Train the runs and return the exit code."""
        from ..settings import sweep_settings
        from ..train import train

        return train(sweep_settings(options), self._trainer)


METHOD = Fairseq()
