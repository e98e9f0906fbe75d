"""Methods compared over several data sets: the runs, their scores, and the tables and figures of these.

The data sets are in one folder or archive (`common.suite`), or given as NAME=PATH each.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import pandas as pd

from roberta_small.analysis.features.best_settings.choice import (
    chosen_settings,
    number_tried,
    recipe_values,
)
from roberta_small.analysis.features.suite.present import (
    NORMALIZED,
    aggregates_table,
    draw_by_data_set,
    draw_profiles,
    exclusions,
    improvement_table,
    suite_table,
)
from roberta_small.analysis.features.suite.statistics import (
    Balanced,
    aggregate,
    balance,
    compare_pairs,
    normalized,
    profiles,
)
from roberta_small.analysis.predictions import find_predictions
from roberta_small.analysis.presentation import CHOICE, Feature
from roberta_small.analysis.query import Query, ResolvedQuery, Selection, found_runs
from roberta_small.analysis.read.long_table import GROUP, read_runs
from roberta_small.analysis.read.runs import LoggedRun, select_finished
from roberta_small.analysis.scoring import BEST, summarize
from roberta_small.analysis.study import names_of
from roberta_small.common import archive, metrics
from roberta_small.common import predictions as prediction_files
from roberta_small.common import suite as layout
from roberta_small.common.errors import UserError, enumerate_some
from roberta_small.common.metrics import label, number
from roberta_small.common.predictions import Prediction
from roberta_small.common.run import split_arm
from roberta_small.common.tables import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

logger = logging.getLogger(__name__)

T = TypeVar("T")

SUITE = Feature(
    "methods compared over several data sets: scores, ranks, interquartile mean, P(A > B)",
    CHOICE | {"ddof", "bold", "pairs", "best_settings", "normalize", "chance"},
    ("suite", "aggregates", "improvement"),
    draws_with=frozenset({"ddof", "best_settings", "normalize", "chance"}),
)
"""Its tables and figures are those of `Suite`, which reads several data sets."""


def is_suite(words: Sequence[str], pattern: str | None = None) -> bool:
    """Whether the words of a command line are several data sets, or the folder of several."""
    if len(words) > 1 or layout.is_named(words[0]):
        return True
    folder = archive.opened(words[0])
    return (
        pattern is None
        and folder.is_dir()
        and len(layout.data_sets(folder)) > 1
        and not layout.has_runs(folder)
    )


def find_data_sets(words: Iterable[str]) -> dict[str, str]:
    """Name -> folder or archive of each data set, from NAME=PATH and from folders of suites.

    Raises `UserError` for a folder that is not that of a suite, for fewer than two data sets, and as
    `common.suite.split_named`.
    """
    found: dict[str, str] = {}
    for word in words:
        if layout.is_named(word):
            more = layout.split_named("RUNS", [word])
        else:
            more = {name: str(path) for name, path in _below(word).items()}
        for name in more:
            if name in found:
                raise UserError(f"{word}: another data set is named '{name}' too; write NAME=PATH")
            if name in GROUP:
                raise UserError(f"{word}: '{name}' is the name of a column; choose another: NAME=PATH")
        found |= more
    if len(found) < 2:
        raise UserError(f"{', '.join(found)}: a single data set; give several, or use `roberta-small tables`")
    layout.split_named("RUNS", [f"{name}={path}" for name, path in found.items()])
    return found


def _below(word: str) -> Mapping[str, os.PathLike[str]]:
    """The data sets below the folder of a suite."""
    folder = archive.opened(word)
    if not folder.is_dir():
        raise UserError(f"{word}: no such folder; give the folder of a suite or NAME=PATH")
    found = layout.data_sets(folder)
    if layout.has_runs(folder):
        if not found:
            raise UserError(f"{word}: contains the runs of one data set; write NAME={word}")
        logger.warning("%s: runs that are not below the folder of a data set are ignored", word)
    if not found:
        raise UserError(f"{word}: contains no <data set>/<method>/<init>/seed<N>/; write NAME=PATH for each")
    return found


@dataclass(frozen=True)
class Suite:
    """The runs of several data sets, and their scores at the best checkpoints."""

    query: ResolvedQuery
    runs: Mapping[str, Sequence[LoggedRun]]
    """The runs of each data set."""
    values: pd.DataFrame
    """The frame of `statistics`, in the order of the study and of the data sets."""
    chance: Mapping[str, float | None]
    """The chance level of each data set; None if it is unknown."""
    diverged: Sequence[str]
    settings: Mapping[str, Mapping[str, str]]
    """With --best-settings: data set -> group -> selected setting, for groups with several."""

    @cached_property
    def summary(self) -> pd.DataFrame:
        """data_set, arm, init, n, mean, std."""
        data = summarize(self.values, ["data_set", *GROUP], "value", ddof=self.query.ddof)
        return _by_data_set(data, self.runs)

    @cached_property
    def balanced(self) -> Balanced:
        """The comparable runs."""
        return balance(self.values)

    @cached_property
    def averaged(self) -> Balanced:
        """The comparable runs with the values to average: with --normalize, normalized ones.

        Raises `UserError` if a chance level is unknown or the metric has none.
        """
        if not self.query.normalize:
            return self.balanced
        metric = metrics.find(self.query.metric)
        if metric is None or metric.chance is None:
            raise UserError(f"--normalize: {self.query.metric} has no chance level; choose another --metric")
        levels = {name: level for name, level in self.chance.items() if level is not None}
        unknown = [name for name in self.chance if name not in levels]
        if unknown:
            raise UserError(
                f"--normalize: the number of classes of {enumerate_some(unknown)} is not recorded; add "
                f"--chance {unknown[0]}=VALUE"
            )
        return balance(normalized(self.values, levels, metric.perfect))

    @cached_property
    def aggregates(self) -> pd.DataFrame | None:
        """`aggregate`; None if nothing is comparable on all data sets."""
        if not self.averaged.groups:
            return None
        return aggregate(self.averaged, lower=self.query.lower, scale=_has_scale(self.query.metric))

    @cached_property
    def improvement(self) -> pd.DataFrame | None:
        """`compare_pairs` of the pairs of the study, or of all; None for fewer than two groups.

        Raises `UserError` for a pair of groups that are not comparable.
        """
        groups, pairs = self.balanced.groups, self.query.study.pairs or None
        for group in dict.fromkeys(group for pair in pairs or () for group in pair):
            if group not in groups:
                raise UserError(
                    f"--pair: '{group}' has no runs that are comparable on all data sets; available: "
                    f"{', '.join(groups) or 'none'}"
                )
        return compare_pairs(self.balanced, pairs, lower=self.query.lower) if len(groups) > 1 else None

    def tables(self) -> list[Table]:
        """Scores by data set, statistics over all data sets, and pairs of methods."""
        query, balanced, averaged = self.query, self.balanced, self.averaged
        notes = self._setting_notes()
        if not balanced.groups:
            notes += ["Nothing is averaged over the data sets.", *exclusions(balanced)]
        tables = [suite_table(self.summary, query, chance=self.chance, left_out=self.diverged, notes=notes)]
        if self.aggregates is not None:
            tables.append(aggregates_table(self.aggregates, averaged, query, notes=self._scale_notes()))
        if self.improvement is not None:
            tables.append(improvement_table(self.improvement, balanced, query))
        return tables

    def figures(self) -> Iterator[tuple[str, Figure]]:
        """(name, figure) pairs."""
        query = self.query
        figure = draw_by_data_set(
            self.values, self.summary, query.metric, list(self.runs), subset=query.reported,
            study=query.study,
        )  # fmt: skip
        yield f"{query.metric}_by_data_set", figure
        if self.averaged.groups and _has_scale(query.metric):
            score = f"{NORMALIZED if query.normalize else label(query.metric)} on {query.reported}"
            yield f"{query.metric}_profiles", draw_profiles(profiles(self.averaged), score, study=query.study)

    def _setting_notes(self) -> list[str]:
        """A note on the settings that --best-settings selected."""
        query = self.query
        if not query.best_settings:
            return []
        texts = [
            f"{name}: " + ", ".join(f"{group} {setting}" for group, setting in found.items())
            for name, found in self.settings.items()
            if found
        ]
        rule = (
            f"Settings: for each data set, the one with the best mean of {label(query.by)} on {query.subset}"
        )
        return [f"{rule}. {'; '.join(texts)}." if texts else f"{rule}; no method has several."]

    def _scale_notes(self) -> list[str]:
        """Notes on what an average over data sets means."""
        query, name = self.query, label(self.query.metric)
        if not _has_scale(query.metric):
            return [
                f"{name} has no common scale, so it is not averaged over data sets; ranks compare it in each."
            ]
        texts = ", ".join(
            f"{data_set} {'unknown' if level is None else number(level, query.metric)}"
            for data_set, level in self.chance.items()
        )
        if query.normalize:
            return [f"Normalized: 0 is chance level ({texts}), 1 the best possible {name}."]
        if len(set(self.chance.values())) > 1:
            return [
                f"mean and IQM average the same metric, {name}, with different chance levels ({texts}): "
                "equal values do not mean the same on each data set. --normalize removes this difference."
            ]
        return []


def read_suite(words: Sequence[str], query: Query, pattern: str | None = None) -> Suite:
    """The finished runs of these data sets that the query selects, and their scores.

    Prints a summary of the runs on standard error. Raises `UserError` as `find_data_sets` and, with the name
    of the data set, as `select`; also if the data sets would be reported on different subsets.
    """
    paths = find_data_sets(words)
    _check_chance(query, paths)
    runs, query = _selected_runs(paths, query, pattern)
    query = query.with_metrics([run for found in runs.values() for run in found])
    tables = {name: _in_data_set(name, read_runs, found, query.accuracies) for name, found in runs.items()}
    resolved = {name: query.resolve(table) for name, table in tables.items()}
    if len({(one.subset, one.reported) for one in resolved.values()}) > 1:
        texts = (f"{one.reported} (selected on {one.subset}) for {name}" for name, one in resolved.items())
        raise UserError(
            f"different splits would be compared: {', '.join(texts)}; give --split and --choose-on"
        )
    read = {
        name: _in_data_set(name, _read_scores, Selection(resolved[name], runs[name], table))
        for name, table in tables.items()
    }
    shared = next(iter(resolved.values()))
    values = pd.concat([found.values.assign(data_set=name) for name, found in read.items()])
    values = shared.study.sorted(values.reset_index(drop=True))
    return Suite(
        query=shared,
        runs=runs,
        values=_by_data_set(values, paths),
        chance={
            name: query.chance.get(name, _in_data_set(name, _chance, found, shared))
            for name, found in runs.items()
        },
        diverged=[f"{name}: {run}" for name, found in read.items() for run in found.diverged],
        settings={name: found.settings for name, found in read.items()},
    )


def _check_chance(query: Query, names: Iterable[str]) -> None:
    for name, level in query.chance.items():
        if name not in names:
            raise UserError(
                f"--chance {name and f'{name}='}{level:g}: no data set '{name}'; available: "
                f"{', '.join(names)}"
            )


def _by_data_set(frame: pd.DataFrame, names: Iterable[str]) -> pd.DataFrame:
    """The rows in the order of their data sets."""
    place = {name: index for index, name in enumerate(names)}
    return frame.sort_values("data_set", key=lambda found: found.map(place), kind="stable", ignore_index=True)


def _selected_runs(
    paths: Mapping[str, str], query: Query, pattern: str | None
) -> tuple[dict[str, list[LoggedRun]], Query]:
    """The finished runs of the selected groups by data set; the study is resolved for all of them."""
    found = {name: _in_data_set(name, found_runs, path, pattern, f"{name}: ") for name, path in paths.items()}

    def group_of(run: LoggedRun) -> str:
        return f"{run.method}/{run.init}" if query.best_settings else run.group

    study = query.study.resolve(sorted({group_of(run) for runs in found.values() for run in runs}))
    selected = {}
    for name, runs in found.items():
        runs = [run for run in runs if group_of(run) in study.selected]
        if not runs:
            raise UserError(f"data set {name}: no run of the selected groups; leave the data set out")
        selected[name] = _in_data_set(name, select_finished, runs, query.include_unfinished)
    return selected, replace(query, study=study)


def _in_data_set(name: str, call: Callable[..., T], *arguments: object) -> T:
    """`call(*arguments)`; the message of a `UserError` names the data set."""
    try:
        return call(*arguments)
    except UserError as error:
        raise UserError(f"data set {name}: {error}") from None


@dataclass(frozen=True)
class _Scores:
    values: pd.DataFrame
    """group, arm, init, seed, value."""
    diverged: list[str]
    settings: dict[str, str]


def _read_scores(selection: Selection) -> _Scores:
    """The metric of each run at its best checkpoint; with --best-settings, only of selected settings."""
    values = selection.values
    values = values[values["at"] == BEST].drop(columns="at")
    if not selection.query.best_settings:
        return _Scores(values, selection.diverged, {})
    data = chosen_settings(selection)
    values = values.merge(data.loc[data["chosen"], GROUP], on=GROUP)
    values = values.assign(arm=[split_arm(arm)[0] for arm in values["arm"]])
    several = data[data["chosen"] & (number_tried(data) > 1)]
    selected = dict(zip(several["family"] + "/" + several["init"], several["label"], strict=True))
    return _Scores(values.assign(group=names_of(values[GROUP])), selection.diverged, selected)


def _chance(runs: Sequence[LoggedRun], query: ResolvedQuery) -> float | None:
    """The chance level of a data set; None if the metric has none or the number of classes is unknown."""
    metric = metrics.find(query.metric)
    if metric is None or metric.chance is None:
        return None
    classes = number_of_classes(runs, query.reported)
    return None if classes is None else metric.chance(classes)


def number_of_classes(runs: Sequence[LoggedRun], split: str) -> int | None:
    """The number of classes that the manifests or else a prediction file record; None if it is unknown.

    Raises `UserError` if the manifests differ: the runs are then of different data.
    """
    recorded: dict[int, LoggedRun] = {}
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
            first = prediction_files.read_any(path)[0]
            return len(first.probabilities) if isinstance(first, Prediction) else None
    return None


def _has_scale(name: str) -> bool:
    """Whether values of different data sets can be averaged: those of a loss cannot."""
    metric = metrics.find(name)
    return metric is not None and metric.chance is not None
