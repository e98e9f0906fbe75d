"""The command `suite`: methods compared over several data sets."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pandas as pd

from roberta_small.analysis.commands.options import (
    add_bold,
    add_choice,
    add_command,
    add_ddof,
    add_figure_options,
    add_out,
    add_pairs,
    add_selection,
    add_study,
    add_table_options,
    choice,
    choose_metrics,
    metric_direction,
    show,
)
from roberta_small.analysis.read.load import read_runs
from roberta_small.analysis.read.long_table import GROUP
from roberta_small.analysis.read.runs import (
    Run,
    describe,
    find_runs,
    inferred,
    mixed_precision,
    select_finished,
)
from roberta_small.analysis.read.suite import find_data_sets
from roberta_small.analysis.stats.best import best_checkpoints, choose_subsets
from roberta_small.analysis.stats.best_settings import (
    choose_settings,
    find_settings,
    number_tried,
    recipe_values,
)
from roberta_small.analysis.stats.predictions import find_predictions
from roberta_small.analysis.stats.spread import BEST, diverged, scores, summarize
from roberta_small.analysis.stats.suite import (
    Balanced,
    aggregate,
    balance,
    compare_pairs,
    normalized,
    profiles,
)
from roberta_small.analysis.study import names_of
from roberta_small.analysis.tables.presented import present
from roberta_small.analysis.tables.runs import best_note
from roberta_small.analysis.tables.suite import (
    NORMALIZED,
    aggregates_table,
    exclusions,
    improvement_table,
    suite_table,
)
from roberta_small.common import metrics
from roberta_small.common import predictions as prediction_files
from roberta_small.common.cli import Collect
from roberta_small.common.errors import UserError, enumerate_some
from roberta_small.common.metrics import label, lower_is_better, number
from roberta_small.common.run import split_arm
from roberta_small.common.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

T = TypeVar("T")

EXAMPLES = """examples:
  python -m analysis suite runs
  python -m analysis suite runs --groups fairseq/pretrained fairseq/random --out results/suite
  python -m analysis suite books=results/cls-books/runs films=films.tar.xz --best-settings --normalize
"""
SOURCES = (
    "folder of a suite (<data set>/<method>/<init>/seed<N>/), or data sets as NAME=FOLDER; folders can be "
    "archives (see `collect`)"
)


def register(commands: argparse._SubParsersAction) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "suite",
        _suite,
        "compare methods over several data sets: scores, ranks, interquartile mean, profiles, P(A > B)",
        EXAMPLES,
        several=SOURCES,
    )
    parser.add_argument(
        "--best-settings",
        action="store_true",
        help="only the setting that validation selects for each method and init, for each data set",
    )
    parser.add_argument(
        "--normalize",
        action="store_true",
        help="average (value - chance) / (best value - chance): 0 is chance level, 1 the best possible value",
    )
    parser.add_argument(
        "--chance", nargs="+", action=Collect, default=[], metavar="NAME=VALUE",
        help="chance level of a data set, in the unit of the metric (default: 1 / number of classes; MCC: 0)",
    )  # fmt: skip
    add_selection(parser)
    add_choice(parser)
    add_ddof(parser)
    add_study(parser)
    add_bold(parser)
    add_pairs(parser)
    add_table_options(parser)
    add_out(parser, "folder for the tables (all formats), the figures and report.html")
    add_figure_options(parser)


def _suite(options: argparse.Namespace) -> None:
    paths = find_data_sets(options.runs)
    given = _given_chance(options.chance, paths)
    runs = _selected_runs(paths, options)
    choose_metrics(options, [run for found in runs.values() for run in found])
    tables = {name: _in_data_set(name, read_runs, found) for name, found in runs.items()}
    _choose_subsets(tables, options)
    read = {
        name: _in_data_set(name, _read_scores, runs[name], table, options) for name, table in tables.items()
    }
    values = pd.concat([found.values.assign(data_set=name) for name, found in read.items()])
    values = options.study.sorted(values.reset_index(drop=True))
    place = {name: index for index, name in enumerate(paths)}
    values = _by_data_set(values, place)
    chance = {
        name: given.get(name, _in_data_set(name, _chance, found, options)) for name, found in runs.items()
    }
    balanced, averaged = _averaged(values, chance, options)
    summary = _by_data_set(summarize(values, ["data_set", *GROUP], "value", ddof=options.ddof), place)
    scored = suite_table(
        summary,
        options.metric,
        options.split,
        best_note(**choice(options)),
        ddof=options.ddof,
        chance=chance,
        left_out=[f"{name}: {run}" for name, found in read.items() for run in found.diverged],
        notes=[
            *_setting_notes(read, options),
            *([] if balanced.groups else ["Nothing is averaged over the data sets.", *exclusions(balanced)]),
        ],
    )
    written = [scored, *_over_all(balanced, averaged, chance, options)]

    def draw() -> Iterator[tuple[str, Figure]]:
        return _figures(values, summary, averaged, list(paths), options)

    show(written, options, figures=draw() if options.out else ())
    if options.out:
        _write_report(runs, summary, balanced, written, draw, options)


def _write_report(
    runs: Mapping[str, Sequence[Run]],
    summary: pd.DataFrame,
    balanced: Balanced,
    tables: Sequence[Table],
    draw: Callable[[], Iterator[tuple[str, Figure]]],
    options: argparse.Namespace,
) -> None:
    from roberta_small.analysis.report.suite import Scored, write_suite_report

    frames = {table.name: table.data for table in tables}
    scored = Scored(
        runs=runs, metric=options.metric, split=options.split, summary=summary, balanced=balanced,
        aggregates=frames.get("aggregates"), improvement=frames.get("improvement"),
        normalized=options.normalize, lower=_lower(options), study=options.study,
    )  # fmt: skip
    directions = {options.metric: metric_direction(options)}
    presented = present(tables, options.study, wide=True, directions=directions)
    path = write_suite_report(scored, presented, draw, Path(options.out) / "report.html")
    print(f"wrote {path}", file=sys.stderr)


def _lower(options: argparse.Namespace) -> bool:
    return lower_is_better(options.metric, metric_direction(options))


def _by_data_set(frame: pd.DataFrame, place: Mapping[str, int]) -> pd.DataFrame:
    """The rows in the order of their data sets."""
    return frame.sort_values("data_set", key=lambda names: names.map(place), kind="stable", ignore_index=True)


def _selected_runs(paths: Mapping[str, str], options: argparse.Namespace) -> dict[str, list[Run]]:
    """The finished runs of the selected groups by data set; resolves `options.study` for all of them."""
    found = {}
    for name, path in paths.items():
        found[name] = _in_data_set(name, find_runs, path, options.pattern)
        lines = [describe(found[name]), *inferred(found[name]), *mixed_precision(found[name])]
        print(f"{name}: " + "\n".join(lines), file=sys.stderr)

    def group_of(run: Run) -> str:
        return f"{run.method}/{run.init}" if options.best_settings else run.group

    groups = sorted({group_of(run) for runs in found.values() for run in runs})
    options.study = options.study.resolve(groups)
    selected = {}
    for name, runs in found.items():
        runs = [run for run in runs if group_of(run) in options.study.selected]
        if not runs:
            raise UserError(f"data set {name}: no run of the selected groups; leave the data set out")
        selected[name] = _in_data_set(name, select_finished, runs, options.include_unfinished)
    return selected


def _in_data_set(name: str, call: Callable[..., T], *arguments: object) -> T:
    """`call(*arguments)`; the message of a `UserError` names the data set."""
    try:
        return call(*arguments)
    except UserError as error:
        raise UserError(f"data set {name}: {error}") from None


def _choose_subsets(tables: Mapping[str, pd.DataFrame], options: argparse.Namespace) -> None:
    """Set --choose-on and --split, which have to be the same for all data sets."""
    chosen = {name: choose_subsets(table, options.choose_on, options.split) for name, table in tables.items()}
    if len(set(chosen.values())) > 1:
        texts = (f"{split} (selected on {by}) for {name}" for name, (by, split) in chosen.items())
        raise UserError(
            f"different splits would be compared: {', '.join(texts)}; give --split and --choose-on"
        )
    options.choose_on, options.split = next(iter(chosen.values()))


@dataclass(frozen=True)
class _Scores:
    values: pd.DataFrame
    """group, arm, init, seed, value."""
    diverged: list[str]
    settings: dict[str, str]
    """With --best-settings: group -> selected setting, for groups with several."""


def _read_scores(runs: Sequence[Run], table: pd.DataFrame, options: argparse.Namespace) -> _Scores:
    """The metric of each run at its best checkpoint; with --best-settings, only of selected settings."""
    rule = choice(options)
    best = best_checkpoints(table, options.metric, **rule)
    values = scores(table, best, options.metric, options.split)
    lost = diverged(table, values, options.metric, options.split)
    values = values[values["at"] == BEST].drop(columns="at")
    if not options.best_settings:
        return _Scores(values, lost, {})
    data = choose_settings(find_settings(runs), best, lower=lower_is_better(rule["by"], options.direction))
    values = values.merge(data.loc[data["chosen"], GROUP], on=GROUP)
    values = values.assign(arm=[split_arm(arm)[0] for arm in values["arm"]])
    several = data[data["chosen"] & (number_tried(data) > 1)]
    selected = dict(zip(several["family"] + "/" + several["init"], several["label"], strict=True))
    return _Scores(values.assign(group=names_of(values[GROUP])), lost, selected)


def _setting_notes(read: Mapping[str, _Scores], options: argparse.Namespace) -> list[str]:
    """A note on the settings that --best-settings selected."""
    if not options.best_settings:
        return []
    texts = [
        f"{name}: " + ", ".join(f"{group} {setting}" for group, setting in found.settings.items())
        for name, found in read.items()
        if found.settings
    ]
    by = label(options.by or options.metric)
    rule = f"Settings: for each data set, the one with the best mean of {by} on {options.choose_on}"
    return [f"{rule}. {'; '.join(texts)}." if texts else f"{rule}; no method has several."]


def _given_chance(words: Sequence[str], names: Iterable[str]) -> dict[str, float]:
    """--chance by data set; raises `UserError` for an unknown data set and for what is not a number."""
    found = {}
    for word in words:
        name, _, text = word.partition("=")
        if name not in names:
            raise UserError(f"--chance {word}: no data set '{name}'; available: {', '.join(names)}")
        try:
            found[name] = float(text)
        except ValueError:
            found[name] = math.nan
        if not math.isfinite(found[name]):
            raise UserError(f"--chance {word}: '{text}' is not a number; write NAME=VALUE")
    return found


def _chance(runs: Sequence[Run], options: argparse.Namespace) -> float | None:
    """The chance level of a data set; None if the metric has none or the number of classes is unknown."""
    metric = metrics.find(options.metric)
    if metric is None or metric.chance is None:
        return None
    classes = number_of_classes(runs, options.split)
    return None if classes is None else metric.chance(classes)


def number_of_classes(runs: Sequence[Run], split: str) -> int | None:
    """The number of classes that the manifests or else a prediction file record; None if it is unknown.

    Raises `UserError` if the manifests differ: the runs are then of different data.
    """
    recorded: dict[int, Run] = {}
    for run in runs:
        value = recipe_values(run, ["num-classes"]).get("num-classes", "")
        if value.isdigit():
            recorded.setdefault(int(value), run)
    if len(recorded) > 1:
        texts = (f"{classes} in {run.name}" for classes, run in recorded.items())
        raise UserError(f"the runs have different numbers of classes: {', '.join(texts)}; separate them")
    if recorded:
        return next(iter(recorded))
    for run in runs:
        if (path := find_predictions(run, split)) is not None:
            return len(prediction_files.read(path)[0].probabilities)
    return None


def _averaged(
    values: pd.DataFrame, chance: Mapping[str, float | None], options: argparse.Namespace
) -> tuple[Balanced, Balanced]:
    """The comparable runs with the values as logged, and with those to average (see --normalize)."""
    balanced = balance(values)
    if not options.normalize:
        return balanced, balanced
    metric = metrics.find(options.metric)
    if metric is None or metric.chance is None:
        raise UserError(f"--normalize: {options.metric} has no chance level; choose another --metric")
    levels = {name: level for name, level in chance.items() if level is not None}
    unknown = [name for name in chance if name not in levels]
    if unknown:
        raise UserError(
            f"--normalize: the number of classes of {enumerate_some(unknown)} is not recorded; add --chance "
            f"{unknown[0]}=VALUE"
        )
    return balanced, balance(normalized(values, levels, metric.perfect))


def _over_all(
    balanced: Balanced,
    averaged: Balanced,
    chance: Mapping[str, float | None],
    options: argparse.Namespace,
) -> list[Table]:
    """The tables of statistics over all data sets."""
    requested = options.study.pairs or None
    for group in dict.fromkeys(group for pair in requested or () for group in pair):
        if group not in balanced.groups:
            raise UserError(
                f"--pair: '{group}' has no runs that are comparable on all data sets; available: "
                f"{', '.join(balanced.groups) or 'none'}"
            )
    if not balanced.groups:
        return []
    lower = _lower(options)
    scale = _has_scale(options.metric)
    data = aggregate(averaged, lower=lower, scale=scale)
    notes = _scale_notes(chance, options, scale=scale)
    tables = [
        aggregates_table(
            data, averaged, options.metric, options.split, normalized=options.normalize, notes=notes
        )
    ]
    if len(balanced.groups) > 1:
        compared = compare_pairs(balanced, requested, lower=lower)
        tables.append(improvement_table(compared, balanced, options.metric, options.split))
    return tables


def _has_scale(name: str) -> bool:
    """Whether values of different data sets can be averaged: those of a loss cannot."""
    metric = metrics.find(name)
    return metric is not None and metric.chance is not None


def _scale_notes(
    chance: Mapping[str, float | None], options: argparse.Namespace, *, scale: bool
) -> list[str]:
    """Notes on what an average over data sets means."""
    name = label(options.metric)
    if not scale:
        return [
            f"{name} has no common scale, so it is not averaged over data sets; ranks compare it in each."
        ]
    texts = ", ".join(
        f"{data_set} {'unknown' if level is None else number(level, options.metric)}"
        for data_set, level in chance.items()
    )
    if options.normalize:
        return [f"Normalized: 0 is chance level ({texts}), 1 the best possible {name}."]
    if len(set(chance.values())) > 1:
        return [
            f"mean and IQM average the same metric, {name}, with different chance levels ({texts}): equal "
            "values do not mean the same on each data set. --normalize removes this difference."
        ]
    return []


def _figures(
    values: pd.DataFrame,
    summary: pd.DataFrame,
    averaged: Balanced,
    data_sets: Sequence[str],
    options: argparse.Namespace,
) -> Iterator[tuple[str, Figure]]:
    """(name, figure) pairs."""
    from roberta_small.analysis.figures.suite import draw_by_data_set, draw_profiles

    metric, study = options.metric, options.study
    figure = draw_by_data_set(values, summary, metric, data_sets, subset=options.split, study=study)
    yield f"{metric}_by_data_set", figure
    if averaged.groups and _has_scale(metric):
        score = f"{NORMALIZED if options.normalize else label(metric)} on {options.split}"
        yield f"{metric}_profiles", draw_profiles(profiles(averaged), score, study=study)
