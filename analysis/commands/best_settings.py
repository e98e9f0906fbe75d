"""The command `best-settings`: all settings of each method, and the one that validation selects."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from roberta_small.analysis.commands.options import (
    add_at,
    add_command,
    add_common,
    add_pairs,
    choice,
    compared_at,
    selected_table,
    show,
)
from roberta_small.analysis.read.long_table import GROUP
from roberta_small.analysis.read.runs import Run
from roberta_small.analysis.stats.best import best_checkpoints
from roberta_small.analysis.stats.best_settings import choose_settings, find_settings, number_tried
from roberta_small.analysis.stats.compare import compare_groups
from roberta_small.analysis.stats.predictions import compare_all_predictions, find_size, read_predictions
from roberta_small.analysis.stats.spread import BEST, scores, spread_over_seeds
from roberta_small.analysis.tables.best_settings import chosen_table, settings_table
from roberta_small.analysis.tables.predictions import examples_table
from roberta_small.analysis.tables.runs import best_note
from roberta_small.analysis.tables.seeds import comparison_table
from roberta_small.common.metrics import ACCURACIES, lower_is_better
from roberta_small.common.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    add_pairs(parser)
    add_at(parser)


def _best_settings(options: argparse.Namespace) -> None:
    runs, table = selected_table(options)
    rule = choice(options)
    best = best_checkpoints(table, options.metric, **rule)
    values = scores(table, best, options.metric, options.split)
    lower = lower_is_better(rule["by"], options.direction)
    data = choose_settings(find_settings(runs), best, lower=lower, ddof=options.ddof)
    note = best_note(**rule)
    grid = set(data.loc[number_tried(data) > 1, GROUP].itertuples(index=False, name=None))
    size = find_size([run for run in runs if (run.arm, run.init) in grid], rule["subset"])
    tables = [
        settings_table(
            data,
            options.metric,
            rule["by"],
            rule["subset"],
            note,
            ddof=options.ddof,
            size=size,
            reported=options.split,
        ),
        *_chosen_tables(runs, values, data, note, options),
    ]
    show(tables, options, figures=_settings_figures(table, best, data, options), values=values)


def _chosen_tables(
    runs: Sequence[Run], all_values: pd.DataFrame, data: pd.DataFrame, note: str, options: argparse.Namespace
) -> list[Table]:
    """The chosen settings beside the recipes, and the comparisons of the study or of all chosen settings."""
    shown = data[data["chosen"] | (data["setting"] == "")]
    tried = number_tried(data)
    names = {
        (row.arm, row.init): f"chosen: {row.label}" if row.chosen and tried[row.Index] > 1 else row.label
        for row in shown.itertuples()
    }
    values = all_values[all_values["at"] == BEST].merge(shown[GROUP], on=GROUP)
    size = options.test_size or (find_size(runs, options.split) if options.metric in ACCURACIES else None)
    spread = spread_over_seeds(values, options.metric, ddof=options.ddof, test_size=size)
    tables = [
        chosen_table(
            spread, names, options.metric, note, ddof=options.ddof, test_size=size, subset=options.split
        )
    ]
    chosen = shown[shown["chosen"]]
    groups = [group for group in (chosen["arm"] + "/" + chosen["init"]) if group in set(values["group"])]
    groups = options.study.ordered(groups)
    compared = options.study.pairs or None
    if compared:
        groups = list(dict.fromkeys(group for pair in compared for group in pair))
    elif len(groups) < 2:
        return tables
    differences = compare_groups(
        all_values, groups, pairs=compared, at=compared_at(options.study),
        lower=lower_is_better(options.metric, "auto" if options.by else options.direction),
    )  # fmt: skip
    tables.append(comparison_table(differences, options.metric, options.split, note))
    examples = compare_all_predictions(read_predictions(runs, options.split), groups, compared)
    return [*tables, examples_table(examples, options.split)] if len(examples) else tables


def _settings_figures(
    table: pd.DataFrame, best: pd.DataFrame, data: pd.DataFrame, options: argparse.Namespace
) -> Iterator[tuple[str, Figure]]:
    """(name, figure) pairs; none if no method and init has more than one setting."""
    from roberta_small.analysis.figures.best_settings import draw_best_settings, draw_flag, flags_to_draw

    if number_tried(data).max() == 1:
        return
    rule, metric = choice(options), options.metric
    shared = {"reported": options.split, "study": options.study}
    yield (
        f"{metric}_best_settings",
        draw_best_settings(table, data, metric, ddof=options.ddof, chance=options.chance, **shared),
    )
    for flag in flags_to_draw(data):
        figure = draw_flag(best, data, flag, metric, rule["by"], subset=rule["subset"], **shared)
        yield f"{metric}_by_{flag}", figure
