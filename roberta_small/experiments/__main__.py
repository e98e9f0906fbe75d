"""`python -m roberta_small.experiments COMMAND`: train runs; `./train.sh` and `./pretrain.sh` call it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence

from roberta_small.common.cli import nearest
from roberta_small.common.errors import UsageError, report_errors

COMMANDS = {
    "train": ("train runs of a method over seeds and initializations", "train:train"),
    "pretrain": ("pre-train a language model, masked or left to right", "train:pretrain"),
    "lora-causal": ("LoRA of a causal language model on questions and answers", "train:lora_causal"),
    "parameters": ("count the parameters of a model", "models:parameters"),
}
"""Name -> summary, and module:function below this package; the function takes the words of the command."""
USAGE = "usage: python -m roberta_small.experiments COMMAND [options]\n"


@report_errors
def main(argv: Sequence[str] | None = None, trainer: Sequence[str] = ()) -> int:
    """Run a command line; returns the exit code. `trainer` replaces fairseq-train in tests."""
    name, *rest = (sys.argv[1:] if argv is None else argv) or [""]
    if name in ("-h", "--help"):
        lines = [f"  {command:<12}{summary}" for command, (summary, _) in COMMANDS.items()]
        print(f"{USAGE}\ncommands:\n" + "\n".join(lines))
        return 0
    if name not in COMMANDS:
        raise UsageError(
            f"{name!r} is not a command{nearest(name, COMMANDS)} "
            "(see python -m roberta_small.experiments --help)",
            usage=USAGE,
        )
    module, _, function = COMMANDS[name][1].partition(":")
    command: Callable[..., int] = getattr(
        importlib.import_module(f"roberta_small.experiments.{module}"), function
    )
    return command(rest, trainer) if trainer else command(rest)


if __name__ == "__main__":
    sys.exit(main())
