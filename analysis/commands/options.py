"""Options shared by the commands of `python -m analysis`, the runs that they select, and their output."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Sequence

import pandas as pd

from common.cli import Parser, positive
from common.files import escaped
from common.metrics import DIRECTIONS
from common.tables import FORMATS, Table, render, write_tables

from ..figures.style import FORMATS as FIGURE_FORMATS
from ..figures.style import save_figure
from ..read.load import read_runs
from ..read.runs import Run, describe, find_runs, inferred, mixed_precision, select_finished
from ..stats.best import TIE_RULES, choose_subsets

logger = logging.getLogger(__name__)
DEFAULT_METRIC = "accuracy"


def add_command(
    commands: argparse._SubParsersAction,
    name: str,
    run: Callable[[argparse.Namespace], None],
    text: str,
    examples: str,
) -> Parser:
    """Add a command that reads the runs below a folder.

    `text` is its help and description; --help prints the lines of `examples` with this command.
    """
    own = [line for line in examples.splitlines() if f"python -m analysis {name} " in f"{line} "]
    parser = commands.add_parser(
        name,
        help=text,
        description=text[0].upper() + text[1:] + ".",
        examples="\n".join(["examples:", *own]),
    )
    parser.add_argument(
        "runs",
        metavar="RUNS",
        help="folder of runs (<method>/<init>/seed<N>/) or of other logs, or an archive (see `collect`)",
    )
    parser.add_argument(
        "--pattern", metavar="PATH",
        help="path layout of runs without manifest.json, for example '{init}/{seed}/{subset}'; also {arm}, * "
        "and ** (default: inferred from the paths, see `runs`)",
    )  # fmt: skip
    parser.set_defaults(command=run)
    return parser


def add_selection(parser: Parser) -> None:
    """Add --metric and --include-unfinished."""
    parser.add_argument(
        "--metric",
        type=escaped,
        help=f"metric to report on --split, and to select on --choose-on without --by ({DEFAULT_METRIC})",
    )
    parser.add_argument(
        "--include-unfinished", action="store_true", help="also use runs that are not finished"
    )


def add_ddof(parser: Parser) -> None:
    """Add --ddof."""
    parser.add_argument(
        "--ddof", type=int, choices=(0, 1), default=1,
        help="standard deviation: 1 sample, 0 population (%(default)s)",
    )  # fmt: skip


def add_choice(parser: Parser) -> None:
    """Add the options for selecting the best checkpoint of a run, and --split."""
    parser.add_argument(
        "--ties", choices=TIE_RULES, default="latest",
        help="how to break ties between checkpoints; fairseq keeps the latest (%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--by", type=escaped, metavar="METRIC",
        help="metric that selects the best checkpoint (default: --metric, or without it the one that "
        "selected the runs' checkpoint_best.pt)",
    )  # fmt: skip
    parser.add_argument(
        "--choose-on",
        type=escaped,
        metavar="SPLIT",
        help="split on which the best checkpoint is selected (default: valid, or the only evaluated one)",
    )
    parser.add_argument(
        "--direction", choices=DIRECTIONS, default="auto",
        help="whether high or low values are better; auto: defined by the metric (%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--split", type=escaped, help="split to report (default: test, or the only evaluated one)"
    )


def choice(options: argparse.Namespace) -> dict[str, str]:
    """The options of `add_choice` and `add_selection` as keyword arguments of `best_checkpoints`."""
    return {
        "by": options.by or options.metric,
        "subset": options.choose_on,
        "ties": options.ties,
        "direction": options.direction,
        "reported": options.split,
    }


def add_out(parser: Parser, text: str, *, metavar: str = "DIR", required: bool = False) -> None:
    """Add --out."""
    parser.add_argument("--out", metavar=metavar, required=required, help=text)
    for old in ("--output-dir", "--output"):
        parser.deprecated(old, "--out")


def add_pairs(parser: Parser) -> None:
    """Add --pair."""
    parser.add_argument(
        "--pair", nargs=2, type=escaped, action="append", metavar=("A", "B"),
        help="compare only these two groups, METHOD/INIT each; repeatable: the corrected p-values count all "
        "pairs given as one family (default: all pairs)",
    )  # fmt: skip


def pairs(options: argparse.Namespace) -> list[tuple[str, str]] | None:
    """The pairs of `add_pairs`; None for all pairs."""
    return None if options.pair is None else [(a, b) for a, b in options.pair]


def add_format(parser: Parser) -> None:
    """Add --format."""
    parser.add_argument(
        "--format", choices=FORMATS, default="markdown", help="format of the printed tables (%(default)s)"
    )


def add_common(parser: Parser) -> None:
    """Add the options for tables and figures of selected checkpoints."""
    add_selection(parser)
    add_choice(parser)
    add_ddof(parser)
    add_format(parser)
    add_out(parser, "folder for the tables (all formats) and figures")
    parser.add_argument(
        "--figure-format",
        nargs="+",
        choices=FIGURE_FORMATS,
        default=["png"],
        help="formats of the figures (png)",
    )
    parser.add_argument(
        "--test-size", type=positive, metavar="N",
        help="examples in the reported split (default: counted in the prediction files or the runs' data "
        "folder)",
    )  # fmt: skip
    parser.add_argument("--chance", type=float, help="draw a horizontal line at chance level, for example 50")


def found_runs(options: argparse.Namespace) -> list[Run]:
    """The runs below the given folder; prints a summary to stderr."""
    runs = find_runs(options.runs, options.pattern)
    print(describe(runs), *inferred(runs), *mixed_precision(runs), sep="\n", file=sys.stderr)
    return runs


def selected_runs(options: argparse.Namespace) -> list[Run]:
    """The finished runs among `found_runs`, or all of them with --include-unfinished.

    Completes the options as `choose_metrics`.
    """
    runs = select_finished(found_runs(options), options.include_unfinished)
    choose_metrics(options, runs)
    return runs


def selected_table(options: argparse.Namespace) -> tuple[list[Run], pd.DataFrame]:
    """The runs of `selected_runs` and their long table; completes the options as `choose_subsets`."""
    runs = selected_runs(options)
    table = read_runs(runs)
    options.choose_on, options.split = choose_subsets(table, options.choose_on, options.split)
    return runs, table


def choose_metrics(options: argparse.Namespace, runs: Sequence[Run]) -> None:
    """Set --metric and --by if they are not given, so that tables describe the runs' checkpoint_best.pt.

    Warns if they select by another metric than the runs, or if the runs selected by different metrics.
    """
    recorded = sorted({run.selected_by for run in runs if run.selected_by})
    free = options.metric is None and options.by is None
    options.metric = options.metric or DEFAULT_METRIC
    if free and len(recorded) == 1 and recorded[0] != options.metric:
        options.by = recorded[0]
    by = options.by or options.metric
    if recorded and recorded != [by]:
        logger.warning(
            "checkpoint_best.pt of the runs was selected by %s, the best checkpoint here by %s (--by)",
            " or ".join(recorded), by,
        )  # fmt: skip


def show(tables: Sequence[Table], figures: Sequence[tuple[str, object]], options: argparse.Namespace) -> None:
    """Print the tables; with --out also write them and the figures."""
    if options.out:
        paths = write_tables(tables, options.out)
        paths += [
            save_figure(figure, options.out, name, fmt)
            for name, figure in figures
            for fmt in options.figure_format
        ]
        for path in paths:
            print(f"wrote {path}", file=sys.stderr)
    print(render(tables, options.format), end="")
