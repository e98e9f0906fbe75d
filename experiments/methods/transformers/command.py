"""The method `transformers`: the runs of train.sh, trained with the Transformers Trainer.

It uses the same binarized data, recipes, seeds and initializations as the method fairseq, so that one table
compares both: at a seed both start from the same weights. Runs are written to OUT/hf/INIT/seedN, and those
of a grid setting to OUT/hf,FLAG=VALUE/INIT/seedN: manifest.json, tensorboard/, train.log,
predictions-*.jsonl of the best epoch, that epoch's model as a from_pretrained folder (model/) and as a
fairseq checkpoint (checkpoint_best.pt), which python -m eval reads. Finished runs are skipped; interrupted
runs resume from their last epoch.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from common.cli import SettingsParser, flags_of, positive_number, split_words
from common.errors import UserError

if TYPE_CHECKING:
    from ...settings import TrainSettings


COMMAND = ("./train.sh", "--method", "transformers")
EXAMPLES = """examples:
  ./train.sh --method transformers --data data/books/bin --pretrained pretrained/fr/model.pt
  ./train.sh --method transformers --data data/books/bin --inits random --seeds 1 2 3 4 5 --precision auto
  ./train.sh --method transformers --data demo/reviews --inits random --recipe sample -- --max-epoch 2
  ./train.sh --method transformers --data data/books/bin --grid lr=1e-5,1e-4
  python -m analysis compare demo/runs --groups hf/random fairseq/random
"""


class Transformers:
    """Full fine-tuning with the Transformers Trainer (see `experiments.methods.Method`)."""

    name = "transformers"
    summary = "the Transformers Trainer, on the same data and recipes"

    def add_arguments(self, parser: SettingsParser) -> None:
        """Add the options of a sweep, --precision and --lr."""
        parser.description, parser.epilog = __doc__, EXAMPLES
        add_arguments(parser, arm="hf")

    def train(self, options: argparse.Namespace) -> int:
        """Train the runs; the exit code."""
        from .sweep import Arm, train

        return train(settings_of(options), Arm(COMMAND))


METHOD = Transformers()


def add_arguments(
    parser: SettingsParser, *, arm: str, inits: str = "random pretrained", lr: float | None = None
) -> None:
    """Add the options of a sweep and those that stand for a flag of the recipe, with a method's defaults."""
    from ...settings import add_sweep

    add_sweep(parser, arm=arm, inits=inits)
    parser.deprecated("--init", "--inits")
    parser.add_argument(
        "--precision",
        choices=("auto", "fp32", "bf16"),
        help="of the matrix products (default: the recipe's)",
    )
    default = "the recipe's" if lr is None else f"{lr:g}"
    parser.add_argument("--lr", type=positive_number, help=f"learning rate (default: {default})")


def settings_of(options: argparse.Namespace) -> TrainSettings:
    """The settings of the sweep, with --precision and --lr among the flags of the recipe.

    Raises `UserError` for an option that is also in --grid or after `--`.
    """
    from ...settings import sweep_settings

    after = flags_of(options.passthrough)
    grid = split_words(options.grid or "")
    flags = []
    for name in ("precision", "lr"):
        value = getattr(options, name)
        if value is None:
            continue
        if f"--{name}" in after:
            raise UserError(f"--{name} {value} is given after -- as well; keep one of them")
        if any(word.partition("=")[0] in (name, f"--{name}") for word in grid):
            raise UserError(f"--{name} {value} is in --grid as well; keep one of them")
        flags += [f"--{name}", str(value)]
    settings = sweep_settings(options)
    return replace(settings, passthrough=(*settings.passthrough, *flags))
