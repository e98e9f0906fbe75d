"""`python -m experiments COMMAND`: train runs; `./train.sh` and `./pretrain.sh` call it."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from roberta_small.common.cli import SettingsParser, nearest
from roberta_small.common.errors import UsageError, report_errors
from roberta_small.experiments import methods, suite
from roberta_small.experiments.launchers.slurm.settings import join_slurm_value
from roberta_small.experiments.methods.fairseq import TRAINER, Fairseq

USAGE = """\
usage: python -m experiments COMMAND [options]

commands:
  train          train runs of a method over seeds and initializations (./train.sh)
  pretrain       pre-train a language model (./pretrain.sh)
  parameters     count the parameters of a model
  ppmi-svd       compute initial weights for pre-training
  lora-causal    LoRA of a causal language model
  lora-sample    generate a small model and question-answer data to try lora-causal with
  task           one task of a SLURM job array (started by SLURM)

examples:
  python -m experiments train --data reviews.csv --dry-run
  python -m experiments train --method tfidf --text data/books/split --out runs
  python -m experiments pretrain --help
"""
COMMANDS = ("train", "pretrain", "parameters", "ppmi-svd", "lora-causal", "lora-sample", "task")
LORA = {
    "lora-causal": "roberta_small.experiments.methods.lora.causal.command",
    "lora-sample": "roberta_small.experiments.methods.lora.sample",
}
"""Commands of the LoRA method: each module has a `main(argv)`."""


@report_errors
def main(argv: Sequence[str] | None = None, trainer: Sequence[str] = TRAINER) -> int:
    """Run a command line; `trainer` replaces fairseq-train in tests."""
    command, *rest = (sys.argv[1:] if argv is None else argv) or [""]
    if command in ("-h", "--help"):
        print(USAGE, end="")
        return 0
    if command == "train":
        return _train(rest, trainer)
    if command == "pretrain":
        from roberta_small.experiments import pretrain as pretraining
        from roberta_small.experiments.settings import pretrain_settings

        return pretraining.pretrain(pretrain_settings(rest, os.environ), trainer)
    if command in ("parameters", "ppmi-svd"):
        from roberta_small.experiments import models

        return (models.parameters if command == "parameters" else models.ppmi_svd)(rest)
    if command == "task" and len(rest) == 1:
        from roberta_small.experiments.launchers.slurm.task import train_task

        return train_task(Path(rest[0]), os.environ)
    if command in LORA:
        return importlib.import_module(LORA[command]).main(rest)
    raise UsageError(
        f"{command!r} is not a command{nearest(command, COMMANDS)} (see python -m experiments --help)",
        usage=USAGE.partition("\n\n")[0] + "\n",
    )


def train() -> int:
    """`train.sh`, as a console script."""
    return main(["train", *sys.argv[1:]])


def pretrain() -> int:
    """`pretrain.sh`, as a console script."""
    return main(["pretrain", *sys.argv[1:]])


def _train(argv: Sequence[str], trainer: Sequence[str]) -> int:
    """Run `train`. --method is parsed first, because each method adds its own options."""
    name = _method_name(argv)
    method = Fairseq(trainer) if name == "fairseq" else methods.find(name)
    parser = SettingsParser(
        prog="train.sh",
        usage="train.sh [--method NAME] [options] [-- options of fairseq-train]",
        description=method.summary,
    )
    _add_method_option(parser)
    method.add_arguments(parser)
    listed = f"methods (--method NAME --help shows the options of each):\n{methods.summaries()}"
    parser.description = f"{parser.description}\n\n{listed}"
    options = parser.parse_settings(join_slurm_value(argv), os.environ)
    if data_sets := suite.data_sets(options):
        return suite.train(method, data_sets, Path(options.out))
    return method.train(options)


def _method_name(argv: Sequence[str]) -> str:
    """The value of the last --method before `--`, else of RS_METHOD, else the default."""
    words = list(argv[: argv.index("--")] if "--" in argv else argv)
    positions = [i for i, word in enumerate(words) if word == "--method" or word.startswith("--method=")]
    option: list[str] = []
    if positions:
        last = positions[-1]
        option = words[last : last + (1 if "=" in words[last] else 2)]
    parser = SettingsParser(prog="train.sh", add_help=False)
    _add_method_option(parser)
    return parser.parse_settings(option, os.environ).method


def _add_method_option(parser: SettingsParser) -> None:
    parser.add_setting(
        "method",
        methods.DEFAULT,
        f"{', '.join(methods.REGISTERED)} or package.module:OBJECT for a method outside the project",
    )


if __name__ == "__main__":
    sys.exit(main())
