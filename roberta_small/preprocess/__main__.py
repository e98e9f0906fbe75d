"""From raw text to fairseq's binary data; `roberta-small COMMAND --help` describes a command."""

from __future__ import annotations

import roberta_small.common.startup  # noqa: F401  first
from roberta_small.common.cli import Parser
from roberta_small.common.errors import report_errors
from roberta_small.preprocess import dataset
from roberta_small.preprocess.download import command as download

COMMANDS = (dataset, download)


def build_parser() -> Parser:
    """The parser of all commands; each module adds its own."""
    parser = Parser(prog="roberta-small", description=__doc__)
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for module in COMMANDS:
        module.register(subparsers)
    return parser


@report_errors
def main(arguments: list[str] | None = None) -> int | None:
    """Run one command; its exit code is the program's."""
    args = build_parser().parse_args(arguments)
    return args.run(args)


if __name__ == "__main__":
    raise SystemExit(main())
