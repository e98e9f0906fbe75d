"""`roberta-small COMMAND`: the one command of the project."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from roberta_small.common.cli import nearest
from roberta_small.common.errors import UsageError, report_errors

GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "prepare data": {
        "prepare": ("preprocess", "a data folder from files of labelled text, or a corpus for pre-training"),
        "download": ("preprocess", "public data sets and models"),
    },
    "train": {
        "train": ("experiments", "train classifiers over seeds and initializations"),
        "pretrain": ("experiments", "pre-train a language model, masked or left to right"),
        "lora-causal": ("experiments", "LoRA of a causal language model on questions and answers"),
    },
    "use a trained model": {
        "predict": ("eval", "predict classes of texts, with explanations"),
        "evaluate": ("eval", "metrics of checkpoints with intervals, and of their ensemble"),
        "generate": ("eval", "text from a language model"),
        "serve": ("eval", "a page in the browser and a JSON API for trained models"),
        "export": ("export", "convert a checkpoint: export transformers, fairseq or onnx"),
    },
    "compare runs": {
        "runs": ("analysis", "list runs and their states"),
        "tables": ("analysis", "tables of results: best checkpoints, means per epoch, and more"),
        "compare": ("analysis", "significance tests between groups of runs"),
        "figures": ("analysis", "learning curves, seeds, confusion and more"),
        "report": ("analysis", "everything about a folder of runs in one HTML file"),
        "collect": ("analysis", "copy manifests, logs and predictions to a small archive"),
    },
    "other": {
        "parameters": ("experiments", "count the parameters of a model"),
        "install-fairseq": ("common.install_fairseq", "install fairseq for this interpreter"),
    },
}
"""What one wants to do -> command -> package with its parser, and summary."""
COMMANDS = {name: entry for group in GROUPS.values() for name, entry in group.items()}
PROGRAMS = ("export", "install-fairseq")
"""Commands that are a program of their own, not one of the commands of a package."""
USAGE = "usage: roberta-small COMMAND [options]\n"
EXAMPLES = """\
examples:
  roberta-small train --data reviews.csv --seeds 1 2 3
  roberta-small tables runs
  roberta-small predict --checkpoint runs/fairseq/random/seed1 "Un livre captivant."

roberta-small COMMAND --help describes a command.
"""


def usage() -> str:
    """The help text: all commands, by what one wants to do."""
    lines = [USAGE]
    for title, group in GROUPS.items():
        lines += [f"{title}:", *(f"  {name:<17}{summary}" for name, (_, summary) in group.items()), ""]
    return "\n".join([*lines, EXAMPLES])


@report_errors
def main(arguments: Sequence[str] | None = None) -> int | None:
    """Run one command; returns its exit code."""
    name, *rest = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if name in ("-h", "--help"):
        print(usage(), end="")
        return 0
    if name not in COMMANDS:
        hint = nearest(name, COMMANDS)
        raise UsageError(f"{name!r} is not a command{hint} (see roberta-small --help)", usage=USAGE)
    package, _ = COMMANDS[name]
    module = f"roberta_small.{package}" if "." in package else f"roberta_small.{package}.__main__"
    return importlib.import_module(module).main(rest if name in PROGRAMS else [name, *rest])


if __name__ == "__main__":
    sys.exit(main())
