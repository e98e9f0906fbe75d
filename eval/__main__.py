"""A trained model at work; `python -m eval COMMAND --help` tells more."""

from __future__ import annotations

import argparse
import logging
import sys

from common.errors import one_line_errors

from . import complete, errors, evaluate, predict

COMMANDS = (predict, evaluate, errors, complete)


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands; each module adds its own."""
    parser = argparse.ArgumentParser(prog="python -m eval", description=__doc__)
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for module in COMMANDS:
        module.register(subparsers)
    return parser


@one_line_errors
def main(arguments: list[str] | None = None) -> int | None:
    """Run one command; its exit code is the program's."""
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    args = build_parser().parse_args(arguments)
    return args.run(args)


if __name__ == "__main__":
    sys.exit(main())
