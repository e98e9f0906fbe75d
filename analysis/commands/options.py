"""Options shared by the commands of `python -m analysis`, the runs that they select, and their output."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from roberta_small.analysis.figures.style import FORMATS as FIGURE_FORMATS
from roberta_small.analysis.figures.style import paper, save_figure, thin_lines
from roberta_small.analysis.read.load import read_runs
from roberta_small.analysis.read.runs import (
    Run,
    describe,
    find_runs,
    inferred,
    mixed_precision,
    select_finished,
)
from roberta_small.analysis.stats.best import TIE_RULES, Choice, choose_subsets
from roberta_small.analysis.stats.reference import OPTIONAL, REQUIRED, compare_reference, read_reference
from roberta_small.analysis.stats.spread import BEST
from roberta_small.analysis.study import MOST_DIGITS, WIDTHS, Study
from roberta_small.analysis.tables.presented import present
from roberta_small.analysis.tables.published import with_published
from roberta_small.common.cli import Collect, Parser, positive
from roberta_small.common.errors import UserError
from roberta_small.common.files import escaped
from roberta_small.common.metrics import DIRECTIONS, Direction, measures_quality
from roberta_small.common.tables import FORMATS, Table, render, write_tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure

logger = logging.getLogger(__name__)
DEFAULT_METRIC = "accuracy"


def add_command(
    commands: argparse._SubParsersAction,
    name: str,
    run: Callable[[argparse.Namespace], None],
    text: str,
    examples: str,
    *,
    several: str = "",
) -> Parser:
    """Add a command that reads the runs below a folder, or with `several` (their description) below folders.

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
        nargs="+" if several else None,
        help=several
        or "folder of runs (<method>/<init>/seed<N>/) or of other logs, or an archive (see `collect`)",
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
        help="metric to report on --split, and to select on --choose-on without --by, for example macro_f1, "
        f"mcc or loss ({DEFAULT_METRIC})",
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


def choice(options: argparse.Namespace) -> Choice:
    """The options of `add_choice` and `add_selection`, completed by `selected_table`."""
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


def add_pairs(parser: argparse._ActionsContainer, default: str = "all pairs") -> None:
    """Add --pair; `default` is what is compared without it."""
    parser.add_argument(
        "--pair", nargs=2, type=escaped, action="append", metavar=("A", "B"),
        help="compare only these two groups, METHOD/INIT each; repeatable: the corrected p-values count all "
        f"pairs given as one family (default: {default})",
    )  # fmt: skip


def add_at(parser: Parser, text: str = "epochs to compare, best or all (default: best)") -> None:
    """Add --at."""
    parser.add_argument("--at", nargs="+", metavar="EPOCH", help=text)


def compared_at(study: Study) -> list[str] | None:
    """Where a study compares: epochs and `best`; None for everywhere."""
    return None if "all" in study.at else list(study.at) or [BEST]


def add_study(parser: Parser) -> None:
    """Add --study and the options for names, order and selection of groups, see `analysis.study`."""
    parser.add_argument(
        "--study", dest="study_file", metavar="FILE",
        help="TOML file with names, order and selection of groups, captions, ...; the options below override "
        "it (docs/how-to/paper.md)",
    )  # fmt: skip
    parser.add_argument(
        "--groups", nargs="+", action=Collect, metavar="GROUP",
        help="only these groups, METHOD/INIT each, in this order (default: all); for `compare` also "
        "FOLDER:METHOD/INIT, of another folder",
    )  # fmt: skip
    for flag, text in (
        ("--exclude", "all groups except these"),
        ("--order", "groups to show first, in this order"),
    ):
        parser.add_argument(flag, nargs="+", action=Collect, metavar="GROUP", type=escaped, help=text)
    parser.add_argument(
        "--label", action="append", type=escaped, metavar="GROUP=TEXT",
        help="displayed name of a group, for example 'fairseq/random=Random'; repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--digits", type=_digits, metavar="N", help="decimals of all metrics (default: those of the metric)"
    )


def add_marks(parser: Parser) -> None:
    """Add --baseline and --bold, for tables of means."""
    add_baseline(parser, "mark the means that differ significantly from those of this group")
    add_bold(parser)


def add_baseline(parser: Parser, text: str) -> None:
    """Add --baseline."""
    parser.add_argument("--baseline", type=escaped, metavar="GROUP", help=text)


def add_bold(parser: Parser) -> None:
    """Add --bold."""
    parser.add_argument("--bold", action="store_true", help="the best means in bold")


def add_reference(parser: Parser, text: str) -> None:
    """Add --reference; `text` is what is done with the published results."""
    parser.add_argument(
        "--reference", metavar="FILE",
        help=f"{text}; .csv, .md or .json with the columns {', '.join(REQUIRED)} and optionally "
        f"{', '.join(OPTIONAL)}",
    )  # fmt: skip


def published_in(
    table: Table,
    long_table: pd.DataFrame,
    best: pd.DataFrame,
    options: argparse.Namespace,
    wide: Sequence[str],
) -> Table:
    """`with_published` with the results of --reference; without the option, the table itself."""
    if not options.reference:
        return table
    data = compare_reference(
        long_table, best, read_reference(options.reference), name=escaped(options.reference)
    )
    source = escaped(Path(options.reference).name)
    return with_published(table, data, source, options.metric, options.split, wide=wide)


def add_figure_options(parser: Parser) -> None:
    """Add --figure-format and --width."""
    parser.add_argument(
        "--figure-format",
        nargs="+",
        choices=FIGURE_FORMATS,
        default=["png"],
        help="formats of the figures (png)",
    )
    sizes = ", ".join(f"{name}: {inches:g} in" for name, inches in WIDTHS.items())
    parser.add_argument(
        "--width", choices=WIDTHS, help=f"width of the figures for a paper ({sizes}; default: for a screen)"
    )


def add_table_options(parser: Parser) -> None:
    """Add --format and the options for the contents of tables."""
    parser.add_argument(
        "--format", choices=FORMATS, default="markdown",
        help="format of the printed tables; csv prints a single one, see --table (%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--table", nargs="+", type=escaped, action=Collect, metavar="NAME",
        help="only these tables, for example table1 (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--wide", action="store_true", help="all columns in Markdown and LaTeX; CSV and JSON always have them"
    )
    parser.add_argument(
        "--caption", action="append", type=escaped, metavar="[TABLE=]TEXT",
        help="caption of a table, or of the only one; repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--latex-label", action="append", type=escaped, metavar="[TABLE=]LABEL",
        help="\\label of a table in LaTeX (tab:TABLE); repeatable",
    )  # fmt: skip


def _digits(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    if not 0 <= number <= MOST_DIGITS:
        raise argparse.ArgumentTypeError(f"{text} is not an integer from 0 to {MOST_DIGITS}")
    return number


def add_common(parser: Parser) -> None:
    """Add the options for tables and figures of selected checkpoints."""
    add_selection(parser)
    add_choice(parser)
    add_ddof(parser)
    add_study(parser)
    add_marks(parser)
    add_table_options(parser)
    add_out(parser, "folder for the tables (all formats) and figures")
    add_figure_options(parser)
    parser.add_argument(
        "--test-size", type=positive, metavar="N",
        help="examples in the reported split (default: counted in the prediction files or the runs' data "
        "folder)",
    )  # fmt: skip
    parser.add_argument("--chance", type=float, help="draw a horizontal line at chance level, for example 50")


def found_runs(options: argparse.Namespace, folder: str | os.PathLike[str] | None = None) -> list[Run]:
    """The runs below `folder` (default: the given one); prints a summary to stderr."""
    runs = find_runs(options.runs if folder is None else folder, options.pattern)
    print(describe(runs), *inferred(runs), *mixed_precision(runs), sep="\n", file=sys.stderr)
    return runs


def selected_runs(options: argparse.Namespace, *, folders: bool = False) -> tuple[list[Run], list[Run]]:
    """The runs of the selected groups that are finished (all with --include-unfinished), and all others.

    Resolves `options.study` (for `folders` see `Study.resolve`), and completes the options as
    `choose_metrics`.
    """
    found = found_runs(options)
    options.study = options.study.resolve((run.group for run in found), folders=folders)
    selected = options.study.select(found)
    runs = select_finished(selected, options.include_unfinished)
    baseline = options.study.baseline
    if baseline is not None and all(run.group != baseline for run in runs):
        raise UserError(f"--baseline: '{baseline}' has no finished run; finish one or choose another group")
    choose_metrics(options, runs)
    return runs, [run for run in selected if run not in runs]


def selected_table(options: argparse.Namespace, *, folders: bool = False) -> tuple[list[Run], pd.DataFrame]:
    """The runs of `selected_runs` and their long table; completes the options as `choose_subsets`."""
    runs, _ = selected_runs(options, folders=folders)
    table = read_runs(runs)
    options.choose_on, options.split = choose_subsets(table, options.choose_on, options.split)
    return runs, table


def choose_metrics(options: argparse.Namespace, runs: Sequence[Run]) -> None:
    """Set --metric and --by if they are not given, so that tables describe the runs' checkpoint_best.pt.

    Warns if they select by another metric than the runs, if the runs selected by different metrics, and about
    a metric of speed, sizes or the optimizer.
    """
    recorded = sorted({run.selected_by for run in runs if run.selected_by})
    free = options.metric is None and options.by is None
    options.metric = options.metric or DEFAULT_METRIC
    if free and len(recorded) == 1 and recorded[0] != options.metric:
        options.by = recorded[0]
    by = options.by or options.metric
    for metric in dict.fromkeys([options.metric, by]):
        if not measures_quality(metric):
            logger.warning("%s describes speed, sizes or the optimizer, not the quality of a model", metric)
    if recorded and recorded != [by]:
        logger.warning(
            "checkpoint_best.pt of the runs was selected by %s, the best checkpoint here by %s (--by)",
            " or ".join(recorded), by,
        )  # fmt: skip


def metric_direction(options: argparse.Namespace) -> Direction:
    """--direction, if it is that of --metric and not that of another metric in --by."""
    return "auto" if options.by not in (None, options.metric) else options.direction


def show(
    tables: Sequence[Table],
    options: argparse.Namespace,
    *,
    figures: Iterable[tuple[str, Figure]] = (),
    values: pd.DataFrame | None = None,
) -> None:
    """Print the tables as the study presents them; with --out also write them and the figures.

    `values` is the frame of `scores` from which significance marks are computed. Raises `UserError` as
    `present`, and for several tables as CSV on standard output.
    """
    tables = present(
        tables,
        options.study,
        values,
        only=options.table,
        directions={options.metric: metric_direction(options)},
    )
    text = (
        "" if options.format == "csv" and options.out and len(tables) > 1 else render(tables, options.format)
    )
    if options.out:
        for path in write_tables(tables, options.out):
            print(f"wrote {path}", file=sys.stderr)
        write_figures(figures, options)
    print(text, end="")


def write_figures(figures: Iterable[tuple[str, Figure]], options: argparse.Namespace) -> None:
    """Write the figures to --out in every format of --figure-format; they are drawn for --width."""
    with paper(options.study.width):
        for name, figure in figures:
            if options.study.width is not None:
                thin_lines(figure)
            for fmt in options.figure_format:
                print(f"wrote {save_figure(figure, options.out, name, fmt)}", file=sys.stderr)
