"""The command `pretraining`: scores after fine-tuning against the number of pre-training tokens."""

from __future__ import annotations

import argparse
import logging
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from roberta_small.analysis.commands.options import add_command, add_common, choice, selected_runs, show
from roberta_small.analysis.read.load import read_runs
from roberta_small.analysis.read.long_table import GROUP
from roberta_small.analysis.read.runs import Run
from roberta_small.analysis.stats.best import best_checkpoints, choose_subsets
from roberta_small.analysis.stats.best_settings import choose_settings, find_settings
from roberta_small.analysis.stats.predictions import find_size
from roberta_small.analysis.stats.pretraining import METRIC, find_perplexities, find_tokens, read_tokens
from roberta_small.analysis.stats.spread import BEST, scores, spread_over_seeds
from roberta_small.analysis.tables.best_settings import pretraining_table
from roberta_small.analysis.tables.runs import best_note
from roberta_small.common.errors import UserError
from roberta_small.common.metrics import ACCURACIES, lower_is_better
from roberta_small.common.run import split_arm

if TYPE_CHECKING:
    from matplotlib.figure import Figure

logger = logging.getLogger(__name__)

EXAMPLES = """examples:
  python -m analysis pretraining runs --out results
  python -m analysis pretraining runs --tokens tokens.csv --best-settings
"""


def register(commands: argparse._SubParsersAction) -> None:
    """Add the command."""
    parser = add_command(
        commands, "pretraining", _pretraining, "scores against the number of pre-training tokens", EXAMPLES
    )
    add_common(parser)
    parser.add_argument(
        "--tokens", metavar="FILE",
        help="CSV file with the columns init and tokens (default: the manifest beside each checkpoint)",
    )  # fmt: skip
    parser.add_argument(
        "--best-settings", action="store_true",
        help="only the setting that validation selects for each method and init",
    )  # fmt: skip


def _pretraining(options: argparse.Namespace) -> None:
    runs, _ = selected_runs(options)
    tokens = find_tokens(runs, read_tokens(options.tokens) if options.tokens else None)
    _warn_of_recipes(runs, tokens)
    values = _scores(runs, options)
    size = options.test_size or (find_size(runs, options.split) if options.metric in ACCURACIES else None)
    perplexities = find_perplexities(run for run in runs if tokens.get((run.arm, run.init)))
    counts = pd.DataFrame(
        [(*group, number, perplexities.get(group, math.nan)) for group, number in tokens.items()],
        columns=[*GROUP, "tokens", "perplexity"],
    )
    data = spread_over_seeds(values, options.metric, ddof=options.ddof, test_size=size).merge(
        counts, on=GROUP
    )
    if not (data["tokens"] > 0).any():
        raise UserError(
            f"no pre-trained run has a finite {options.metric} on {options.split}; "
            "check the train.log of the runs"
        )
    if options.best_settings:
        values, data = (
            frame.assign(
                group=frame["arm"] + "/" + frame["init"], arm=[split_arm(arm)[0] for arm in frame["arm"]]
            )
            for frame in (values, data)
        )
    note = best_note(**choice(options))
    tables = [
        pretraining_table(data, options.metric, note, ddof=options.ddof, test_size=size, subset=options.split)
    ]
    show(tables, options, figures=_figures(values, data, options), values=values)


def _figures(
    values: pd.DataFrame, data: pd.DataFrame, options: argparse.Namespace
) -> Iterator[tuple[str, Figure]]:
    from roberta_small.analysis.figures.pretraining import draw_perplexity, draw_pretraining

    figure = draw_pretraining(
        values, data, options.metric, chance=options.chance, subset=options.split, study=options.study
    )
    yield f"{options.metric}_by_tokens", figure
    if data["perplexity"].notna().any():
        yield f"{METRIC}_by_tokens", draw_perplexity(data, study=options.study)


def _scores(runs: Sequence[Run], options: argparse.Namespace) -> pd.DataFrame:
    """The frame of `spread.scores` at the best checkpoints; only selected settings if requested.

    Completes the options as `choose_subsets`.
    """
    table = read_runs(runs)
    options.choose_on, options.split = choose_subsets(table, options.choose_on, options.split)
    rule = choice(options)
    best = best_checkpoints(table, options.metric, **rule)
    values = scores(table, best, options.metric, options.split)
    values = values[values["at"] == BEST]
    if not options.best_settings:
        return values
    lower = lower_is_better(rule["by"], options.direction)
    chosen = choose_settings(find_settings(runs), best, lower=lower).query("chosen")
    return values.merge(chosen[GROUP], on=GROUP)


def _warn_of_recipes(runs: Sequence[Run], tokens: dict[tuple[str, str], int]) -> None:
    """Warn where runs of one method used different recipes, which also changes scores."""
    recipes: dict[str, set[str]] = {}
    for run in runs:
        if (run.arm, run.init) in tokens and run.recipe:
            recipes.setdefault(run.arm, set()).add(run.recipe)
    for arm, names in recipes.items():
        if len(names) > 1:
            logger.warning("%s: trained with several recipes (%s)", arm, ", ".join(sorted(names)))
