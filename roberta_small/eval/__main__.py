"""Use trained models: predict, evaluate, generate text."""

from __future__ import annotations

import logging
import sys

from roberta_small.common.cli import Parser
from roberta_small.common.errors import report_errors
from roberta_small.eval import generate, serve
from roberta_small.eval.evaluate import command as evaluate
from roberta_small.eval.predict import command as predict

COMMANDS = (predict, evaluate, serve, generate)
EXAMPLES = """examples:
  roberta-small predict --checkpoint runs/fairseq/pretrained/seed1 "Un livre captivant."
  roberta-small evaluate --checkpoint runs --split test
"""


def build_parser() -> Parser:
    """The parser of all commands; each module registers its own."""
    parser = Parser(prog="roberta-small", description=__doc__, examples=EXAMPLES)
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for module in COMMANDS:
        module.register(subparsers)
    return parser


@report_errors
def main(arguments: list[str] | None = None) -> int | None:
    """Run one command and return its exit code."""
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    args = build_parser().parse_args(arguments)
    return args.run(args)


if __name__ == "__main__":
    sys.exit(main())
