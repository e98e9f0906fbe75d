"""From raw text to fairseq's binary data; `roberta-small COMMAND --help` describes a command."""

from __future__ import annotations

import importlib
import sys

import roberta_small.common.startup  # noqa: F401  first
from roberta_small.common.cli import Parser
from roberta_small.common.errors import report_errors

COMMANDS = {"prepare": "dataset", "download": "download.command"}
"""Command -> its module, which is imported only for this command."""


@report_errors
def main(arguments: list[str] | None = None) -> int | None:
    """Run one command; its exit code is the program's."""
    words = sys.argv[1:] if arguments is None else arguments
    parser = Parser(prog="roberta-small", description=__doc__)
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for name in [words[0]] if words and words[0] in COMMANDS else COMMANDS:
        importlib.import_module(f"roberta_small.preprocess.{COMMANDS[name]}").register(subparsers)
    args = parser.parse_args(words)
    return args.run(args)


if __name__ == "__main__":
    raise SystemExit(main())
