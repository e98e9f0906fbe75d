"""Use trained models: predict, evaluate, inspect errors, generate text."""

from __future__ import annotations

import logging
import sys

from common import startup  # noqa: F401
from common.cli import Parser, deprecation
from common.errors import report_errors

from . import error_analysis, evaluate, generate
from .demo import command as demo
from .predict import command as predict

COMMANDS = (predict, evaluate, error_analysis, demo, generate)
EXAMPLES = """examples:
  python -m eval predict --checkpoint runs/fairseq/pretrained/seed1 "Un livre captivant."
  python -m eval evaluate --checkpoint runs --split test
"""


def build_parser() -> Parser:
    """The parser of all commands; each module registers its own."""
    parser = Parser(prog="python -m eval", description=__doc__, examples=EXAMPLES)
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for module in COMMANDS:
        module.register(subparsers)
    return parser


@report_errors
def main(arguments: list[str] | None = None) -> int | None:
    """Run one command and return its exit code."""
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["complete"]:
        deprecation("complete is deprecated, use generate")
        words[0] = "generate"
    args = build_parser().parse_args(words)
    return args.run(args)


if __name__ == "__main__":
    sys.exit(main())
