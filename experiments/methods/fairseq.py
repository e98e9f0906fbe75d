"""The method fairseq: builds the command line of fairseq-train for a run."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from roberta_small.common.cli import SettingsParser
from roberta_small.common.data_folder import shards_of
from roberta_small.common.files import shown_path
from roberta_small.common.run import TENSORBOARD, State
from roberta_small.experiments import ROOT
from roberta_small.experiments.plan import Job, Planned

TRAINER = (sys.executable, "-P", "-m", "roberta_small.experiments.methods.fairseq_train")
PLUGIN = ROOT / "fairseq_plugin"
LOG_FLAGS = ("--log-format", "json", "--log-interval", "25")
RESETS = ("--reset-optimizer", "--reset-dataloader", "--reset-meters")


def build(
    planned: Planned, data: Path, flags: Sequence[str], *, cpu: bool, trainer: Sequence[str] = TRAINER
) -> Job:
    """The job of a run; `flags` are the words of the recipe (and `--num-classes`).

    A new run with an initial checkpoint gets `--restore-file` and resets everything but the weights. A
    resumed run gets neither flag: fairseq then loads checkpoint_last.pt from --save-dir with the optimizer,
    the number of updates, the state of the learning-rate schedule and the position in the data
    (`fairseq.checkpoint_utils.load_checkpoint`, `fairseq.trainer.Trainer.load_checkpoint`), and the
    schedule computes the learning rate from the flags in `flags` and the number of updates.
    """
    argv = _words(planned, data, flags, cpu, lambda path: str(path.absolute()))
    shown = _words(planned, data, flags, cpu, shown_path)
    return Job(planned, (*trainer, *argv), ("fairseq-train", *shown))


def _words(
    planned: Planned, data: Path, flags: Sequence[str], cpu: bool, write: Callable[[Path], str]
) -> tuple[str, ...]:
    run = planned.run
    restore: tuple[str, ...] = ()
    if run.checkpoint is not None and planned.state is State.NEW:
        restore = ("--restore-file", write(run.checkpoint), *RESETS)
    return (
        os.pathsep.join(write(shard) for shard in shards_of(data)),
        *("--user-dir", write(PLUGIN)),
        *LOG_FLAGS,
        *flags,
        # fairseq starts a process per GPU by default, even with --cpu, which multiplies the batch size.
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
        from roberta_small.experiments.settings import add_train

        add_train(parser)

    def train(self, options: argparse.Namespace) -> int:
        """Train the runs (`experiments.train.train`); returns the exit code."""
        from roberta_small.experiments.settings import sweep_settings
        from roberta_small.experiments.train import train

        return train(sweep_settings(options), self._trainer)


METHOD = Fairseq()
