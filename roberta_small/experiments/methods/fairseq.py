"""The method fairseq: fine-tunes classifiers with fairseq-train. Pre-training uses the same command.

A new run with an initial checkpoint gets `--restore-file` and resets everything but the weights. A resumed
run gets neither flag: fairseq then loads checkpoint_last.pt from --save-dir with the optimizer, the number of
updates and the position in the data, and computes the learning rate from the flags and that number.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from roberta_small.common.cli import SettingsParser
from roberta_small.common.data_folder import shards_of
from roberta_small.common.files import PACKAGE, shown_path
from roberta_small.common.label_kinds import KINDS, MULTI_LABEL
from roberta_small.common.run import TENSORBOARD
from roberta_small.experiments import plan
from roberta_small.experiments.inputs import files as inputs
from roberta_small.experiments.methods import Command, Method
from roberta_small.experiments.recipe import fairseq_flags
from roberta_small.experiments.settings import PASSTHROUGH, SweepSettings, add_sweep, sweep_settings
from roberta_small.experiments.sweep import Sweep, Training, classifiers

TRAINER = (sys.executable, "-P", "-m", "roberta_small.experiments.methods.fairseq_train")
PLUGIN = PACKAGE / "fairseq_plugin"
LOG_FLAGS = ("--log-format", "json", "--log-interval", "25")
RESETS = ("--reset-optimizer", "--reset-dataloader", "--reset-meters")

DESCRIPTION = """\
Fine-tune a sentence classifier with fairseq for each initialization and seed and, with --grid,
for each setting. Runs are written to OUT/ARM/INIT/seedN, or OUT/ARM,FLAG=VALUE/INIT/seedN if
their setting differs from the recipe. A file given as --data is prepared once, in data/. To resume,
run the same command again: finished runs are skipped, and interrupted runs resume from their last
checkpoint.

Several data sets, --data NAME=PATH NAME=PATH ..., are all checked before the first run starts. Each is
trained with the same settings, and its runs are written to OUT/NAME/ARM/INIT/seedN.

The same command on several machines with a shared folder divides the runs between them; --slurm submits
it as a job array.

Settings are options or environment variables, shown in brackets (the option takes precedence)."""

EXAMPLES = """\
examples:
  roberta-small train --data reviews.csv --seeds 1 2 3
  roberta-small train --data reviews.csv --text-column body --label-column stars --valid 0.1 --test test.csv
  roberta-small train --data data/books/bin --pretrained pretrained/fr/model.pt
  roberta-small train --data books=data/books/bin films=films.csv --seeds 1 2 3 --dry-run
  RS_DATA=data/books/bin RS_INITS=random RS_SEEDS="1 2 3 4 5" RS_JOBS=2 roberta-small train
  roberta-small train --data data/books/bin --inits random "small=ckpt/a.pt" --dry-run
  roberta-small train --data data/mine --pretrained camembert-base --seeds 1 2 3
  roberta-small train --data data/books/bin --inits random --grid lr=1e-5,3e-5,1e-4 --dry-run
  RS_GRID="lr=1e-5,1e-4 dropout=0.1,0.3" roberta-small train --data data/books/bin --inits random
  roberta-small train --data data/books/bin --inits random --out runs/lr1e-4 --lr 1e-4
  roberta-small train --data data/books/bin --seeds 1 2 3 4 5 --slurm "--partition=gpu --gres=gpu:1 --time=60"

Each run uses OMP_NUM_THREADS threads if this variable is set, else cores / JOBS."""


class FairseqTrain(Method):
    """What all runs of fairseq-train have in common; `trainer` replaces it in tests."""

    def __init__(self, trainer: Sequence[str] = TRAINER) -> None:
        self.trainer = tuple(trainer)

    @property
    def real(self) -> bool:
        """Whether the trainer is fairseq-train."""
        return self.trainer == TRAINER

    def command(self, sweep: Sweep, training: Training, *, resume: bool, cpu: bool) -> Command:
        """fairseq-train with the flags of the recipe."""
        run, flags = training.run, fairseq_flags.for_device(training.flags, cpu)

        def words(write: Callable[[Path], str]) -> tuple[str, ...]:
            restore: tuple[str, ...] = ()
            if run.checkpoint is not None and not resume:
                restore = ("--restore-file", write(run.checkpoint), *RESETS)
            return (
                os.pathsep.join(write(shard) for shard in shards_of(sweep.data)),
                *("--user-dir", write(PLUGIN)),
                *LOG_FLAGS,
                *flags,
                *fairseq_flags.loading(flags, cpu),
                # By default, fairseq starts a process per GPU, even with --cpu: batches would be larger.
                *(() if "--distributed-world-size" in flags else ("--distributed-world-size", "1")),
                *("--seed", str(run.seed)),
                *("--save-dir", write(run.folder)),
                *("--tensorboard-logdir", write(run.folder / TENSORBOARD)),
                *restore,
                *(("--cpu",) if cpu else ()),
            )

        argv = words(lambda path: str(path.absolute()))
        return Command((*self.trainer, *argv), ("fairseq-train", *words(shown_path)))

    def resumable(self, folder: Path) -> bool:
        """Whether there is an intact checkpoint."""
        return plan.newest_intact(folder) is not None

    def repair(self, folder: Path) -> None:
        """Replace a truncated checkpoint_last.pt."""
        plan.repair(folder)


class Fairseq(FairseqTrain):
    """fairseq-train over seeds, initializations and settings."""

    name = "fairseq"
    summary = "fairseq's trainer (default)"
    extends = True

    def add_arguments(self, parser: SettingsParser) -> None:
        """Add the options of `experiments.settings.add_sweep`."""
        parser.description, parser.epilog = DESCRIPTION, f"{EXAMPLES}\n\n{PASSTHROUGH}"
        add_sweep(parser, arm=self.name, own_data=True)

    def settings(self, options: argparse.Namespace) -> SweepSettings:
        """The settings of the sweep."""
        return sweep_settings(options)

    def sweep(self, settings: SweepSettings, data: Path) -> Sweep:
        """The runs; flags that the user added are checked by fairseq's own parser."""
        found = classifiers(settings, data, fit=self.real)
        if settings.passthrough and self.real:
            fairseq_flags.check(found.trainings[0].flags)
        return found

    def finish(self, sweep: Sweep, folder: Path) -> dict[str, Any]:
        """Choose the thresholds of multi-label runs on the first validation subset."""
        if self.real and inputs.label_kind(sweep.data) is KINDS[MULTI_LABEL]:
            from roberta_small.eval.evaluate.command import choose_thresholds

            choose_thresholds(folder, sweep.recipe.valid_subsets[0], data=sweep.data, device="cpu")
        return {}


METHOD = Fairseq()
