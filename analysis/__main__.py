"""`python -m analysis COMMAND RUNS`: what was run, what came out of it, and how surely."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence

from common.errors import one_line_errors
from common.tables import FORMATS, render, write_tables

from .commands import pretraining, settings, showing, statistics
from .commands.options import (
    EXAMPLES,
    add_choice,
    add_command,
    add_ddof,
    add_format,
    add_selection,
    choice,
    found_runs,
    selected_runs,
)
from .read.collect import collect
from .read.load import read_runs
from .read.runs import find_runs, select_finished
from .tables.runs import list_runs, table1, table2


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """The command line; the exit code is 0, or 1 after an error."""
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    logging.addLevelName(logging.WARNING, "warning")
    logging.addLevelName(logging.INFO, "note")
    logging.getLogger(__package__).setLevel(logging.INFO)
    options = _parser().parse_args(arguments)
    options.command(options)


def _runs(options: argparse.Namespace) -> None:
    runs = find_runs(options.runs, options.pattern)
    print(render([list_runs(runs, read_runs(runs))], options.format), end="")


def _tables(options: argparse.Namespace) -> None:
    table = read_runs(selected_runs(options))
    tables = [
        table1(table, options.metric, ddof=options.ddof, **choice(options)),
        table2(table, options.metric, ddof=options.ddof),
    ]
    if options.output_dir:
        for path in write_tables(tables, options.output_dir):
            print(f"wrote {path}", file=sys.stderr)
    print(render(tables, options.format), end="")


def _collect(options: argparse.Namespace) -> None:
    runs = select_finished(found_runs(options))
    for folder in collect(runs, options.runs, options.target):
        print(f"wrote {folder}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m analysis",
        description="Tables, figures and statistics from the logs of the runs below a folder.",
        epilog=f"{EXAMPLES}\nEach command has more: python -m analysis COMMAND --help",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    runs = add_command(commands, "runs", _runs, "list the runs that were found, finished or not")
    runs.add_argument("--format", choices=FORMATS, default="markdown", help="of the listing (%(default)s)")

    tables = add_command(commands, "tables", _tables, "best checkpoint of each run; mean and std per epoch")
    add_selection(tables)
    add_ddof(tables)
    add_choice(tables)
    add_format(tables)
    tables.add_argument("--output-dir", metavar="DIR", help="also write both tables here, in every format")

    collected = add_command(
        commands, "collect", _collect, "copy manifests, scalars and answers, which fit into a repository"
    )
    collected.add_argument("target", metavar="DIR", help="where the copies go, in the same folders")

    showing.register(commands)
    statistics.register(commands)
    settings.register(commands)
    pretraining.register(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
