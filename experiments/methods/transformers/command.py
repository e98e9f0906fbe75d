"""`python -m hf finetune`: the sweep of train.sh with the Transformers Trainer.

Same binarized data, recipes, seeds and initialisations as ./train.sh, so that the two trainers can be
compared in one table: at a seed both begin with the same weights, those that fairseq-train draws, under the
encoder of a checkpoint where there is one. Runs are written to OUT/hf/INIT/seedN, those with another setting
of a grid than the recipe's to OUT/hf,FLAG=VALUE/INIT/seedN: manifest.json, tensorboard/, train.log,
predictions-*.jsonl of the best epoch, that epoch's model as a from_pretrained folder (model/) and as a
fairseq checkpoint (checkpoint_best.pt), which python -m eval reads like any other run's. Finished runs are
skipped and interrupted ones go on from their last epoch.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from common.cli import flags_of, positive_number
from common.errors import UserError

if TYPE_CHECKING:
    from ...settings import TrainSettings


COMMAND = ("python", "-m", "hf", "finetune")
EXAMPLES = """examples:
  python -m hf finetune --data data/books/bin --pretrained pretrained/fr/model.pt
  python -m hf finetune --data data/books/bin --inits random --seeds 1 2 3 4 5 --precision auto
  python -m hf finetune --data demo/reviews --inits random --recipe sample --out demo/runs -- --max-epoch 2
  python -m hf finetune --data data/books/bin --pretrained pretrained/fr/model.pt --grid lr=1e-5,1e-4
  python -m analysis compare demo/runs --groups hf/random fairseq/random
"""


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add the command `finetune`."""
    parser = subparsers.add_parser(
        "finetune",
        help="fine-tune with the Transformers Trainer, over seeds and initialisations",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_sweep(parser, arm="hf", inits=["random", "pretrained"])
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """The command."""
    from .sweep import Arm, train

    return train(sweep_settings(args), Arm(COMMAND))


def add_sweep(
    parser: argparse.ArgumentParser, *, arm: str, inits: list[str], lr: float | None = None
) -> None:
    """The flags of train.sh, with the defaults of an arm."""
    parser.add_argument(
        "--data", required=True, metavar="BIN", help="binarized data, with input0/ and label/"
    )
    parser.add_argument("--pretrained", metavar="FILE", help="checkpoint of the init 'pretrained'")
    parser.add_argument(
        "--inits", "--init", nargs="+", default=inits, metavar="INIT",
        help=f"random, pretrained or NAME=FILE ({' '.join(inits)})",
    )  # fmt: skip
    parser.add_argument(
        "--seeds", nargs="+", default=["1", "2", "3"], metavar="N", help="a run of each init for each (1 2 3)"
    )
    parser.add_argument(
        "--grid", nargs="+", default=[], metavar="FLAG=VALUE,VALUE",
        help="settings to try, as in train.sh: runs with another than the recipe's get an arm of their own",
    )  # fmt: skip
    parser.add_argument("--arm", default=arm, help="first folder below OUT (%(default)s)")
    parser.add_argument("--out", default="runs", help="folder of the runs (%(default)s)")
    parser.add_argument(
        "--recipe", default="reference", help="a name in recipes/ or a file of flags (%(default)s)"
    )
    parser.add_argument(
        "--precision", choices=("auto", "fp32", "bf16"), help="of the matrix products (default: the recipe's)"
    )
    parser.add_argument(
        "--lr",
        type=positive_number,
        help="learning rate (default: the recipe's)" if lr is None else f"({lr})",
    )
    parser.add_argument("--jobs", default="auto", help="runs at a time (%(default)s: one a core, or a GPU)")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="(%(default)s)")
    parser.add_argument("--dry-run", action="store_true", help="print plan and commands, start nothing")
    parser.add_argument(
        "flags", nargs="*", metavar="-- FLAGS", help="flags of the recipe to change; part of the experiment"
    )


def sweep_settings(args: argparse.Namespace) -> TrainSettings:
    """The settings of the sweep; raises `UserError` that names the flag at fault."""
    from ...settings import train_settings

    flags = list(args.flags)
    after = flags_of(flags)
    for name in ("precision", "lr"):
        value = getattr(args, name)
        if value is not None and f"--{name}" in after:
            raise UserError(f"--{name} {value}: it stands after -- too; keep one of them")
        if value is not None and any(word.partition("=")[0] in (name, f"--{name}") for word in args.grid):
            raise UserError(f"--{name} {value}: it is in --grid too; keep one of them")
        if value is not None:
            flags += [f"--{name}", str(value)]
    words = ["--inits", *args.inits, "--seeds", *args.seeds]
    for name in ("data", "out", "arm", "recipe", "jobs", "device"):
        words += [f"--{name}", getattr(args, name)]
    words += ["--grid", *args.grid] if args.grid else []
    words += ["--pretrained", args.pretrained] if args.pretrained else []
    words += ["--dry-run"] if args.dry_run else []
    # No environment: that is train.sh's.
    return train_settings([*words, "--", *flags], {})
