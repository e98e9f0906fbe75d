"""`python -m preprocess <command>`: one module a command."""

from __future__ import annotations

import argparse
import importlib
import importlib.util

from common.errors import one_line_errors

COMMANDS = ("sample", "download", "split", "vocabulary", "binarize", "audit")


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands; each module adds its own."""
    parser = argparse.ArgumentParser(prog="python -m preprocess", description=__doc__)
    subparsers = parser.add_subparsers(metavar="command", required=True)
    for name in COMMANDS:
        if importlib.util.find_spec(f"preprocess.{name}"):
            importlib.import_module(f"preprocess.{name}").register(subparsers)
    return parser


@one_line_errors
def main(arguments: list[str] | None = None) -> int | None:
    """Run one command; its exit code is the program's."""
    args = build_parser().parse_args(arguments)
    return args.run(args)


if __name__ == "__main__":
    raise SystemExit(main())
