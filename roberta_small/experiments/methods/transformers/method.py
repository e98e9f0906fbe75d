"""The method `transformers`: the runs of `train`, trained with the Transformers Trainer.

It uses the same binarized data, recipes, seeds and initializations as the method fairseq, so that one table
compares both: with the same seed, both start from the same weights. Runs are written to
OUT/transformers/INIT/seedN, and those of a grid setting to OUT/transformers,FLAG=VALUE/INIT/seedN:
manifest.json, tensorboard/, train.log, predictions-*.jsonl of the best epoch, that epoch's model as a
from_pretrained folder (model/) and as a fairseq checkpoint (checkpoint_best.pt), which `predict` and
`evaluate` read. Finished runs are skipped; interrupted runs resume from their last epoch.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roberta_small.common.cli import SettingsParser
from roberta_small.common.files import shown_path
from roberta_small.experiments.methods import Command, Method
from roberta_small.experiments.methods.lora.settings import LoraSettings
from roberta_small.experiments.methods.transformers import CHECKPOINTS, MEASURED, last_checkpoint
from roberta_small.experiments.recipe.fairseq_flags import for_device
from roberta_small.experiments.settings import SweepSettings, add_sweep, sweep_settings
from roberta_small.experiments.sweep import Sweep, Training, classifiers

PACKAGES = ("transformers", "accelerate", "peft", "safetensors", "bitsandbytes")
"""Packages whose versions a manifest records in addition to those of fairseq runs."""
PRECISION = {"precision": "--precision"}
"""The option that the method adds -> its flag."""
EXAMPLES = """examples:
  roberta-small train --method transformers --data data/books --pretrained pretrained/fr/model.pt
  roberta-small train --method transformers --data data/books --inits random --precision auto
  roberta-small train --method transformers --data demo/reviews --recipe sample --epochs 2
  roberta-small train --method transformers --data data/books --grid lr=1e-5,1e-4
  roberta-small compare demo/runs --groups transformers/random fairseq/random
"""


@dataclass(frozen=True, kw_only=True)
class TransformersSettings(SweepSettings):
    """Settings of this method and of LoRA."""

    lora: LoraSettings | None = None
    """Adapters to train; None for full fine-tuning."""
    merge: bool = False
    """Whether a model without adapters is written, too."""

    @property
    def words(self) -> list[str]:
        """Command-line options of LoRA, for the user and for the process of a run."""
        return [] if self.lora is None else self.lora.words()


class Transformers(Method):
    """Full fine-tuning with the Transformers Trainer."""

    name = "transformers"
    summary = "the Transformers Trainer, on the same data and recipes"
    defaults: tuple[str, ...] = ()
    """Flags that replace those of the recipe, unless the user gives others."""
    inits: str | None = None
    lr: float | None = None
    """Defaults of the options --inits and --lr, as in `add_sweep`."""

    def add_arguments(self, parser: SettingsParser) -> None:
        """Add the options of a sweep and --precision."""
        parser.description, parser.epilog = __doc__, EXAMPLES
        add_sweep(parser, arm=self.name, inits=self.inits, lr=self.lr)
        parser.add_argument(
            "--precision",
            choices=("auto", "fp32", "bf16"),
            help="precision of the matrix products (default: as in the recipe)",
        )

    def settings(self, options: argparse.Namespace) -> TransformersSettings:
        """The settings of the sweep, with --precision added to the flags of the recipe."""
        return TransformersSettings(**vars(sweep_settings(options, PRECISION)))

    def sweep(self, settings: TransformersSettings, data: Path) -> Sweep:
        """The runs; each recipe and each initial model is built once to find what is wrong with them."""
        from roberta_small.experiments.methods.transformers.recipe import parse
        from roberta_small.experiments.methods.transformers.train_run import check

        sweep = classifiers(
            settings,
            data,
            defaults=self.defaults,
            # Prefixed, because recipes have a --dropout too.
            recorded=[
                word.replace("--", "--lora-", 1) if word[:2] == "--" else word for word in settings.words
            ],
            packages=PACKAGES,
            plugin=False,
        )
        different = {(each.run.arm, each.run.init): each for each in sweep.trainings}
        for training in different.values():
            check(parse(str(data), training.flags), training.run.checkpoint, settings.lora)
        return sweep

    def command(self, sweep: Sweep, training: Training, *, resume: bool, cpu: bool) -> Command:
        """The process that trains a run (train_run.py), and the command that trains only this run."""
        settings: TransformersSettings = sweep.settings
        run = training.run
        start = () if run.checkpoint is None else ("--restore-file", str(run.checkpoint.absolute()))
        argv = (
            # -P: the working directory is not searched for modules.
            *(sys.executable, "-P", "-m", "roberta_small.experiments.methods.transformers.train_run"),
            str(sweep.data.absolute()),
            *("--seed", str(run.seed), "--save-dir", str(run.folder.absolute())),
            *start,
            *(("--resume",) if resume else ()),
            *(("--cpu",) if cpu else ()),
            *(() if settings.lora is None else ("--lora", *settings.words)),
            *("--recipe", *for_device(training.flags, cpu)),
        )
        given = sweep.inits[run.init]
        init = [run.init] if given is None else [f"{run.init}={shown_path(given)}"]
        if run.init == "pretrained" and given is not None:
            init = ["pretrained", "--pretrained", shown_path(given)]
        # Without its checkpoint in the command, the architecture of random weights must be.
        passthrough = (*settings.passthrough, *(training.added if run.checkpoint is None else ()))
        shown = (
            *("roberta-small", "train", "--method", self.name),
            *("--data", shown_path(sweep.data), "--inits", *init, "--seeds", str(run.seed)),
            *("--out", shown_path(settings.out), "--arm", settings.arm, "--recipe", settings.recipe),
            *(("--grid", *run.setting.split(",")) if run.setting else ()),
            *settings.words,
            *(("--", *passthrough) if passthrough else ()),
        )
        return Command(argv, shown)

    def resumable(self, folder: Path) -> bool:
        """Whether the Trainer left a complete checkpoint."""
        return last_checkpoint(folder / CHECKPOINTS) is not None

    def finish(self, sweep: Sweep, folder: Path) -> dict[str, Any]:
        """What the run measured of itself."""
        path = folder / MEASURED
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


METHOD = Transformers()
