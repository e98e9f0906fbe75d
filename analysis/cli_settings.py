"""The commands `best-settings` and `pretraining`: the best of a grid, and what pre-training buys."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from itertools import combinations

import pandas as pd

from common.arguments import positive

from .answers import compare_answers, read_answers
from .best import best_checkpoints
from .cli_options import add_choice, add_command, add_ddof, add_format, add_selection, choice, selected_runs
from .compare import compare
from .figure_style import FORMATS, save_figure
from .load import read_runs
from .long_table import GROUP
from .metrics import IN_PERCENT, lower_is_better
from .pretraining import find_tokens, read_tokens
from .runs import Run
from .settings import FAMILY, choose_settings, find_settings, split_arm
from .sizes import find_size
from .spread import BEST, scores, spread
from .tables import Table, best_note
from .tables_checks import answers_table
from .tables_pretraining import pretraining_table
from .tables_seeds import comparison_table
from .tables_settings import chosen_table, settings_table
from .writers import render, write_tables

logger = logging.getLogger(__name__)

EXAMPLES = """examples:
  python -m analysis best-settings runs
  python -m analysis best-settings runs --output-dir results --chance 50
  python -m analysis pretraining runs --output-dir results
  python -m analysis pretraining runs --tokens tokens.csv --best-settings
"""


def register(commands: argparse._SubParsersAction) -> None:
    """Add the two commands."""
    parser = add_command(
        commands, "best-settings", _best_settings, "the setting of each arm that validation chooses", EXAMPLES
    )
    _add_common(parser)

    parser = add_command(
        commands, "pretraining", _pretraining, "scores against the tokens of pre-training", EXAMPLES
    )
    _add_common(parser)
    parser.add_argument(
        "--tokens", metavar="FILE",
        help="CSV file with the columns init and tokens (default: the manifest beside each checkpoint)",
    )  # fmt: skip
    parser.add_argument(
        "--best-settings",
        action="store_true",
        help="of each arm and init only the setting that valid chooses",
    )


def _add_common(parser: argparse.ArgumentParser) -> None:
    add_selection(parser)
    add_choice(parser)
    add_ddof(parser)
    add_format(parser)
    parser.add_argument(
        "--output-dir", metavar="DIR", help="also write the tables here, in every format, and the figures"
    )
    parser.add_argument(
        "--figure-format", nargs="+", choices=FORMATS, default=["png"], help="of the figures (png)"
    )
    parser.add_argument(
        "--test-size", type=positive, metavar="N",
        help="examples of test (default: those of the prediction files or of the runs' data folder)",
    )  # fmt: skip
    parser.add_argument("--chance", type=float, help="draw a line at the score of guessing")


def _best_settings(options: argparse.Namespace) -> None:
    runs = selected_runs(options)
    table = read_runs(runs)
    rule = choice(options)
    best = best_checkpoints(table, options.metric, **rule)
    lower = lower_is_better(rule["by"], options.direction)
    data = choose_settings(find_settings(runs), best, lower=lower, ddof=options.ddof)
    note = best_note(**rule)
    alone = data.groupby(FAMILY)["arm"].transform("size") == 1
    grid = set(data.loc[~alone, GROUP].itertuples(index=False, name=None))
    size = find_size([run for run in runs if (run.arm, run.init) in grid], rule["subset"])
    tables = [
        settings_table(data, options.metric, rule["by"], rule["subset"], note, ddof=options.ddof, size=size),
        *_chosen_tables(runs, table, best, data, note, options),
    ]
    figures = _settings_figures(table, best, data, options) if options.output_dir else []
    _show(tables, figures, options)


def _pretraining(options: argparse.Namespace) -> None:
    runs = selected_runs(options)
    tokens = find_tokens(runs, read_tokens(options.tokens) if options.tokens else None)
    table = read_runs(runs)
    rule = choice(options)
    best = best_checkpoints(table, options.metric, **rule)
    values = scores(table, best, options.metric)
    values = values[values["at"] == BEST]
    if options.best_settings:
        lower = lower_is_better(rule["by"], options.direction)
        data = choose_settings(find_settings(runs), best, lower=lower)
        values = values.merge(data.loc[data["chosen"], GROUP], on=GROUP)
    _warn_of_recipes(runs, tokens)
    counts = pd.DataFrame([(*group, number) for group, number in tokens.items()], columns=[*GROUP, "tokens"])
    size = options.test_size or (find_size(runs) if options.metric in IN_PERCENT else None)
    data = spread(values, options.metric, ddof=options.ddof, test_size=size).merge(counts, on=GROUP)
    if options.best_settings:
        values, data = (
            frame.assign(arm=[split_arm(arm)[0] for arm in frame["arm"]]) for frame in (values, data)
        )
    note = best_note(**rule)
    tables = [pretraining_table(data, options.metric, note, ddof=options.ddof, test_size=size)]
    figures = []
    if options.output_dir:
        from .figure_pretraining import draw_pretraining

        figure = draw_pretraining(values, data, options.metric, chance=options.chance)
        figures.append((f"{options.metric}_by_tokens", figure))
    _show(tables, figures, options)


def _warn_of_recipes(runs: Sequence[Run], tokens: dict[tuple[str, str], int]) -> None:
    """Another recipe is another reason for another score."""
    recipes: dict[str, set[str]] = {}
    for run in runs:
        if (run.arm, run.init) in tokens and run.recipe:
            recipes.setdefault(run.arm, set()).add(run.recipe)
    for arm, names in recipes.items():
        if len(names) > 1:
            logger.warning("%s: trained with several recipes (%s)", arm, ", ".join(sorted(names)))


def _chosen_tables(
    runs: Sequence[Run], table: pd.DataFrame, best: pd.DataFrame, data: pd.DataFrame, note: str,
    options: argparse.Namespace,
) -> list[Table]:  # fmt: skip
    """The chosen settings beside the recipes, and the chosen ones compared in pairs."""
    shown = data[data["chosen"] | (data["setting"] == "")]
    alone = data.groupby(FAMILY)["arm"].transform("size") == 1
    names = {
        (row.arm, row.init): f"chosen: {row.label}" if row.chosen and not alone[row.Index] else row.label
        for row in shown.itertuples()
    }
    values = scores(table, best, options.metric)
    values = values[values["at"] == BEST].merge(shown[GROUP], on=GROUP)
    size = options.test_size or (find_size(runs) if options.metric in IN_PERCENT else None)
    data_spread = spread(values, options.metric, ddof=options.ddof, test_size=size)
    tables = [chosen_table(data_spread, names, options.metric, note, ddof=options.ddof, test_size=size)]
    chosen = shown[shown["chosen"]]
    groups = [group for group in (chosen["arm"] + "/" + chosen["init"]) if group in set(values["group"])]
    if len(groups) < 2:
        return tables
    lower = lower_is_better(options.metric, "auto" if options.by else options.direction)
    tables.append(
        comparison_table(compare(values, groups, at=[BEST], lower=lower), options.metric, "test", note)
    )
    answers = read_answers(runs)
    pairs = [compare_answers(answers, a, b) for a, b in combinations(groups, 2)]
    pairs = [pair for pair in pairs if len(pair)]
    return [*tables, answers_table(pd.concat(pairs, ignore_index=True), "test")] if pairs else tables


def _settings_figures(
    table: pd.DataFrame, best: pd.DataFrame, data: pd.DataFrame, options: argparse.Namespace
) -> list[tuple[str, object]]:
    """None where no arm and init has more than one setting."""
    from .figure_settings import draw_best_settings, draw_flag, flags_to_draw

    if data.groupby(FAMILY)["arm"].size().max() == 1:
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


def _show(
    tables: Sequence[Table], figures: Sequence[tuple[str, object]], options: argparse.Namespace
) -> None:
    if options.output_dir:
        paths = write_tables(tables, options.output_dir)
        paths += [
            save_figure(figure, options.output_dir, name, fmt)
            for name, figure in figures
            for fmt in options.figure_format
        ]
        for path in paths:
            print(f"wrote {path}", file=sys.stderr)
    print(render(tables, options.format), end="")
