"""`python -m analysis COMMAND RUNS`: tables, statistics, figures and a report from the logs of runs."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence

import roberta_small.common.startup  # noqa: F401  first
from roberta_small.analysis import study
from roberta_small.analysis.commands import (
    best_settings,
    collect,
    export,
    pretraining,
    report,
    statistics,
    suite,
    watch,
)
from roberta_small.analysis.commands.options import (
    add_choice,
    add_command,
    add_ddof,
    add_marks,
    add_out,
    add_reference,
    add_selection,
    add_study,
    add_table_options,
    choice,
    published_in,
    selected_table,
    show,
)
from roberta_small.analysis.read.load import read_runs
from roberta_small.analysis.read.long_table import RUN
from roberta_small.analysis.read.runs import find_runs
from roberta_small.analysis.stats.best import best_checkpoints
from roberta_small.analysis.stats.spread import scores
from roberta_small.analysis.tables.runs import list_runs, table1, table2
from roberta_small.common.cli import Parser
from roberta_small.common.errors import report_errors
from roberta_small.common.metrics import decimals
from roberta_small.common.tables import FORMATS, render

EXAMPLES = """examples:
  python -m analysis runs runs
  python -m analysis runs tensorboard-logs --pattern '{init}/{seed}/{subset}'
  python -m analysis tables runs --ddof 0 --ties earliest
  python -m analysis tables runs --format latex > tables.tex
  python -m analysis tables runs --metric macro_f1 --out results
  python -m analysis tables runs --metric accuracy --by loss
  python -m analysis tables runs --label 'fairseq/random=Random' --baseline fairseq/random --digits 1 --bold
  python -m analysis tables runs --study study.toml --table table1 --format csv
"""


@report_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `python -m analysis`; exits with 0, or 1 after an error."""
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    logging.addLevelName(logging.WARNING, "warning")
    logging.addLevelName(logging.INFO, "note")
    logging.getLogger(__package__).setLevel(logging.INFO)
    options = _parser().parse_args(arguments)
    options.study = study.from_options(options)
    with decimals(options.study.digits):
        options.command(options)


def _runs(options: argparse.Namespace) -> None:
    runs = find_runs(options.runs, options.pattern)
    print(render([list_runs(runs, read_runs(runs))], options.format), end="")


def _tables(options: argparse.Namespace) -> None:
    _, table = selected_table(options)
    first = table1(table, options.metric, ddof=options.ddof, **choice(options))
    second = table2(table, options.metric, subset=options.split, ddof=options.ddof)
    values = None
    if options.study.baseline is not None or options.reference:
        best = best_checkpoints(table, options.metric, **choice(options))
        kept = {*RUN, *(mean.column for mean in first.means if mean.tested)}
        wide = [column for column in first.shown if column not in kept]
        first = published_in(first, table, best, options, wide)
        values = scores(table, best, options.metric, options.split)
    show([first, second], options, values=values)


def _parser() -> Parser:
    parser = Parser(
        prog="python -m analysis",
        description="Tables, figures and statistics from the logs of the runs below a folder.",
        examples=f"{EXAMPLES}\nMore examples: python -m analysis COMMAND --help",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    runs = add_command(commands, "runs", _runs, "list all runs, finished or not", EXAMPLES)
    runs.add_argument(
        "--format", choices=FORMATS, default="markdown", help="format of the list (%(default)s)"
    )

    tables = add_command(
        commands,
        "tables",
        _tables,
        "table 1: best checkpoint of each run; table 2: mean and standard deviation per epoch",
        EXAMPLES,
    )
    add_selection(tables)
    add_ddof(tables)
    add_choice(tables)
    add_study(tables)
    add_marks(tables)
    add_reference(tables, "add published results to table 1")
    add_table_options(tables)
    add_out(tables, "folder for both tables (all formats)")

    for module in (collect, export, report, watch, statistics, best_settings, pretraining, suite):
        module.register(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
