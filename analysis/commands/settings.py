"""The command `best-settings`: all settings of each method, and the one that validation selects."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import pandas as pd

from common.cli import Parser, positive
from common.metrics import ACCURACIES, lower_is_better
from common.tables import Table, render, write_tables

from ..figures.style import FORMATS, save_figure
from ..long_table import GROUP
from ..read.load import read_runs
from ..read.runs import Run
from ..stats.best import best_checkpoints
from ..stats.compare import compare_groups
from ..stats.predictions import compare_all_predictions, find_size, read_predictions
from ..stats.settings import choose_settings, find_settings, number_tried
from ..stats.spread import BEST, scores, spread_over_seeds
from ..tables.checks import examples_table
from ..tables.runs import best_note
from ..tables.seeds import comparison_table
from ..tables.settings import chosen_table, settings_table
from .options import (
    add_choice,
    add_command,
    add_ddof,
    add_format,
    add_out,
    add_selection,
    choice,
    selected_runs,
)

EXAMPLES = """examples:
  python -m analysis best-settings runs
  python -m analysis best-settings runs --out results --chance 50
"""


def register(commands: argparse._SubParsersAction) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "best-settings",
        _best_settings,
        "select the best setting of each method on validation",
        EXAMPLES,
    )
    add_common(parser)


def add_common(parser: Parser) -> None:
    """Add the options for tables and figures of selected checkpoints."""
    add_selection(parser)
    add_choice(parser)
    add_ddof(parser)
    add_format(parser)
    add_out(parser, "folder for the tables (all formats) and figures")
    parser.add_argument(
        "--figure-format", nargs="+", choices=FORMATS, default=["png"], help="formats of the figures (png)"
    )
    parser.add_argument(
        "--test-size", type=positive, metavar="N",
        help="examples in test (default: counted in the prediction files or the runs' data folder)",
    )  # fmt: skip
    parser.add_argument("--chance", type=float, help="draw a horizontal line at chance level, for example 50")


def _best_settings(options: argparse.Namespace) -> None:
    runs = selected_runs(options)
    table = read_runs(runs)
    rule = choice(options)
    best = best_checkpoints(table, options.metric, **rule)
    lower = lower_is_better(rule["by"], options.direction)
    data = choose_settings(find_settings(runs), best, lower=lower, ddof=options.ddof)
    note = best_note(**rule)
    grid = set(data.loc[number_tried(data) > 1, GROUP].itertuples(index=False, name=None))
    size = find_size([run for run in runs if (run.arm, run.init) in grid], rule["subset"])
    tables = [
        settings_table(data, options.metric, rule["by"], rule["subset"], note, ddof=options.ddof, size=size),
        *_chosen_tables(runs, table, best, data, note, options),
    ]
    figures = _settings_figures(table, best, data, options) if options.out else []
    show(tables, figures, options)


def _chosen_tables(
    runs: Sequence[Run], table: pd.DataFrame, best: pd.DataFrame, data: pd.DataFrame, note: str,
    options: argparse.Namespace,
) -> list[Table]:  # fmt: skip
    """Tables of the chosen settings and the recipes, and pairwise comparisons of the chosen settings."""
    shown = data[data["chosen"] | (data["setting"] == "")]
    tried = number_tried(data)
    names = {
        (row.arm, row.init): f"chosen: {row.label}" if row.chosen and tried[row.Index] > 1 else row.label
        for row in shown.itertuples()
    }
    values = scores(table, best, options.metric)
    values = values[values["at"] == BEST].merge(shown[GROUP], on=GROUP)
    size = options.test_size or (find_size(runs) if options.metric in ACCURACIES else None)
    spread = spread_over_seeds(values, options.metric, ddof=options.ddof, test_size=size)
    tables = [chosen_table(spread, names, options.metric, note, ddof=options.ddof, test_size=size)]
    chosen = shown[shown["chosen"]]
    groups = [group for group in (chosen["arm"] + "/" + chosen["init"]) if group in set(values["group"])]
    if len(groups) < 2:
        return tables
    lower = lower_is_better(options.metric, "auto" if options.by else options.direction)
    tables.append(
        comparison_table(compare_groups(values, groups, at=[BEST], lower=lower), options.metric, "test", note)
    )
    examples = compare_all_predictions(read_predictions(runs), groups)
    return [*tables, examples_table(examples, "test")] if len(examples) else tables


def _settings_figures(
    table: pd.DataFrame, best: pd.DataFrame, data: pd.DataFrame, options: argparse.Namespace
) -> list[tuple[str, object]]:
    """(name, figure) pairs; empty if no method and init has more than one setting."""
    from ..figures.settings import draw_best_settings, draw_flag, flags_to_draw

    if number_tried(data).max() == 1:
        return []
    rule = choice(options)
    curves = draw_best_settings(table, data, options.metric, ddof=options.ddof, chance=options.chance)
    return [
        (f"{options.metric}_best_settings", curves),
        *(
            (
                f"{options.metric}_by_{flag}",
                draw_flag(best, data, flag, options.metric, rule["by"], subset=rule["subset"]),
            )
            for flag in flags_to_draw(data)
        ),
    ]


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
