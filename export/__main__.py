"""RoBERTa classifiers on Transformers; `python -m hf COMMAND --help` tells more."""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from common.errors import UserError, one_line_errors

# Where the parser of each command is added; its default `run` is called.
REGISTERED = {
    "convert": ("export.commands", "register_convert"),
    "export": ("export.commands", "register_onnx"),
    "finetune": ("experiments.methods.transformers.command", "register"),
    "lora": ("experiments.methods.lora.command", "register"),
}
COMMANDS = {
    "convert": "a fairseq checkpoint to a from_pretrained folder, or back",
    "export": "a classifier to ONNX, in fp32 or int8",
    "finetune": "fine-tune with the Transformers Trainer, over seeds and initialisations",
    "lora": "LoRA of the classifier, or of a causal language model",
}
PACKAGES = (
    "transformers",
    "tokenizers",
    "safetensors",
    "accelerate",
    "peft",
    "onnx",
    "onnxscript",
    "onnxruntime",
)


@contextmanager
def missing_package_is_said() -> Iterator[None]:
    """Raise `UserError` that names the extra where one of its packages is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name not in PACKAGES:
            raise
        raise UserError(
            f"{name} is not installed; python -m hf needs the extra hf: make install, "
            "or pip install --editable '.[hf]' --constraint constraints.txt"
        ) from None


def build_parser(command: str | None) -> argparse.ArgumentParser:
    """The parser of all commands, with the options of `command` alone: the others are not imported."""
    parser = argparse.ArgumentParser(prog="python -m hf", description=__doc__)
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        if name == command:
            module, function = REGISTERED[name]
            getattr(importlib.import_module(module), function)(subparsers)
        else:
            subparsers.add_parser(name, help=summary)
    return parser


@one_line_errors
def main(arguments: list[str] | None = None) -> int | None:
    """Run one command; its exit code is the program's."""
    # Transformers' own bars, a moment each, and its remarks on tokenizers.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    arguments = sys.argv[1:] if arguments is None else arguments
    with missing_package_is_said():
        args = build_parser(arguments[0] if arguments else None).parse_args(arguments)
        return args.run(args)


if __name__ == "__main__":
    sys.exit(main())
