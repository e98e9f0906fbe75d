"""`python -m analysis runs|tables|figures RUNS`: what was run, and what came out of it."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Sequence

from common.errors import one_line_errors

from .best import TIE_RULES
from .figures import FORMATS as FIGURE_FORMATS
from .figures import draw_curves, save_figure
from .load import read_runs
from .runs import Run, describe, find_runs, select_finished
from .tables import list_runs, table1, table2
from .writers import FORMATS, render, write_tables

EXAMPLES = """examples:
  python -m analysis runs runs
  python -m analysis tables runs --ddof 0 --ties earliest
  python -m analysis tables runs --format latex > tables.tex
  python -m analysis tables runs --metric macro_f1 --output-dir results
  python -m analysis figures runs --output-dir results --format png svg --chance 50
"""


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """The command line; the exit code is 0, or 1 after an error."""
    logging.basicConfig(format="warning: %(message)s", level=logging.WARNING)
    options = _parser().parse_args(arguments)
    options.command(options)


def _runs(options: argparse.Namespace) -> None:
    runs = find_runs(options.runs)
    print(render([list_runs(runs, read_runs(runs))], options.format), end="")


def _tables(options: argparse.Namespace) -> None:
    table = read_runs(_selected_runs(options))
    tables = [
        table1(table, options.metric, ties=options.ties, ddof=options.ddof),
        table2(table, options.metric, ddof=options.ddof),
    ]
    if options.output_dir:
        for path in write_tables(tables, options.output_dir):
            print(f"wrote {path}", file=sys.stderr)
    print(render(tables, options.format), end="")


def _figures(options: argparse.Namespace) -> None:
    table = read_runs(_selected_runs(options))
    figure = draw_curves(table, options.metric, ddof=options.ddof, chance=options.chance)
    for fmt in options.format:
        path = save_figure(figure, options.output_dir, f"{options.metric}_per_epoch", fmt)
        print(f"wrote {path}", file=sys.stderr)


def _selected_runs(options: argparse.Namespace) -> list[Run]:
    runs = find_runs(options.runs)
    print(describe(runs), file=sys.stderr)
    return select_finished(runs, options.include_unfinished)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m analysis",
        description="Tables and figures from the TensorBoard logs of the runs below a folder.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    runs = _command(commands, "runs", _runs, "list the runs that were found, finished or not")
    runs.add_argument("--format", choices=FORMATS, default="markdown", help="of the listing (%(default)s)")

    tables = _command(commands, "tables", _tables, "best checkpoint of each run; mean and std per epoch")
    _add_selection(tables)
    tables.add_argument(
        "--ties", choices=TIE_RULES, default="latest",
        help="which of equally good validations counts; fairseq keeps the latest (%(default)s)",
    )  # fmt: skip
    tables.add_argument("--format", choices=FORMATS, default="markdown", help="printed (%(default)s)")
    tables.add_argument("--output-dir", metavar="DIR", help="also write both tables here, in every format")

    figures = _command(commands, "figures", _figures, "valid and test per epoch, every run and the mean")
    _add_selection(figures)
    figures.add_argument("--output-dir", metavar="DIR", required=True, help="folder for the figures")
    figures.add_argument(
        "--format", nargs="+", choices=FIGURE_FORMATS, default=["png"], help="of the files (png)"
    )
    figures.add_argument("--chance", type=float, help="draw a line at the score of guessing")
    return parser


def _command(
    commands: argparse._SubParsersAction, name: str, run: Callable[[argparse.Namespace], None], text: str
) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name, help=text, description=text[0].upper() + text[1:] + ".",
        epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("runs", metavar="RUNS", help="folder with <arm>/<init>/seed<N>/ below it")
    parser.set_defaults(command=run)
    return parser


def _add_selection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--metric", default="accuracy", help="what valid chooses and test reports (%(default)s)"
    )
    parser.add_argument(
        "--ddof", type=int, choices=(0, 1), default=1,
        help="standard deviation: 1 sample, 0 population (%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--include-unfinished", action="store_true", help="use runs that are not finished as well"
    )


if __name__ == "__main__":
    sys.exit(main())
