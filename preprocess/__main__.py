"""From raw text to the binary data fairseq trains on; `python -m preprocess COMMAND --help` tells more."""

from __future__ import annotations

import argparse

from common.errors import one_line_errors

from . import audit, binarize, corpus, download, split, vocabulary
from .sample import command

COMMANDS = (command, download, split, vocabulary, corpus, binarize, audit)


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands; each module adds its own."""
    parser = argparse.ArgumentParser(prog="python -m preprocess", description=__doc__)
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for module in COMMANDS:
        module.register(subparsers)
    return parser


@one_line_errors
def main(arguments: list[str] | None = None) -> int | None:
    """Run one command; its exit code is the program's."""
    args = build_parser().parse_args(arguments)
    return args.run(args)


if __name__ == "__main__":
    raise SystemExit(main())
