"""`python -m fairseq_plugin ppmi-svd|parameters`: commands on the plugin's models."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from common.cli import Parser, deprecation
from common.errors import UserError, report_errors

from .models import parameters


def ppmi_svd(words: Sequence[str]) -> int:
    """The command `ppmi-svd`."""
    parser = argparse.ArgumentParser(
        prog="python -m fairseq_plugin ppmi-svd",
        description="Compute initial weights for pre-training: token embeddings from PPMI and SVD, output\n"
        "biases from token frequencies, and a first layer that attends to the context.",
        epilog="Further flags (--encoder-layers, --encoder-embed-dim, --seed, ...) are fairseq-train's.\n\n"
        "example:\n  python -m fairseq_plugin ppmi-svd data/corpus --window 5 --out pretrained/start.pt",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("data", type=Path, metavar="BIN", help="folder with dict.txt, train.bin, train.idx")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="checkpoint to write")
    parser.add_argument(
        "--window", type=int, default=5, help="window size: tokens on each side (default: %(default)s)"
    )
    words = list(words)
    if "--output" in words:
        deprecation("--output is deprecated, use --out")
        words[words.index("--output")] = "--out"
    args, flags = parser.parse_known_args(words)
    if args.window < 1:
        raise UserError(f"--window {args.window}: must be at least 1")
    if not (args.data / "dict.txt").is_file():
        raise UserError(
            f"{args.data / 'dict.txt'}: no such file; write it with preprocess binarize --only-source"
        )
    from .checkpoints.ppmi_svd import write_checkpoint  # here, because --help does not need torch

    write_checkpoint(args.data, args.out, args.window, flags)
    print(f"written to {args.out}")
    return 0


COMMANDS: dict[str, tuple[Callable[[Sequence[str]], int], str]] = {
    "ppmi-svd": (ppmi_svd, "compute a PPMI-SVD initialization for pre-training"),
    "parameters": (parameters.main, "count a model's parameters, by formula and on the built model"),
}
"""Name -> function, help text."""


@report_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words and words[0] in COMMANDS:
        command, _ = COMMANDS[words[0]]
        return command(words[1:])
    parser = Parser(
        prog="python -m fairseq_plugin",
        description="Commands on the plugin's models. `python -m fairseq_plugin.compat` lists the functions\n"
        "of fairseq that the plugin replaces.",
        examples="examples:\n  python -m fairseq_plugin parameters --encoder-layers 12\n"
        "  python -m fairseq_plugin ppmi-svd data/corpus --out pretrained/start.pt",
    )
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, (_, summary) in COMMANDS.items():
        subparsers.add_parser(name, help=summary)
    parser.parse_args(words)
    return 0


if __name__ == "__main__":
    sys.exit(main())
