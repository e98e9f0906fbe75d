"""Methods compared over several data sets: scores of each, mean ranks, interquartile means and a figure.

The data sets are in one folder or archive (`common.run`), or given as NAME=PATH each. Statistics over data
sets follow Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice", with
data sets as tasks.

Frame of a suite: data_set, at (the same), group, arm, init, seed, value (at the best checkpoint).

Shapes: R runs of a group, T data sets, G groups, D bootstrap samples.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from roberta_small.analysis.compare import compare_groups
from roberta_small.analysis.features.best_settings import chosen_settings, number_tried
from roberta_small.analysis.features.comparison import comparison_table, pairs_of, plan_table
from roberta_small.analysis.presentation import Computed
from roberta_small.analysis.query import OPTIONS, Query, Study, names_of
from roberta_small.analysis.read.long_table import GROUP, read_runs
from roberta_small.analysis.read.runs import LoggedRun, select_finished
from roberta_small.analysis.scoring import BEST, choose_subsets, summarize
from roberta_small.analysis.selection import Selection, choose_metrics, found_runs
from roberta_small.analysis.style import finish, group_styles, legend_below, literal, paper_inches, wrap
from roberta_small.common import archive, metrics
from roberta_small.common import run as layout
from roberta_small.common.errors import UserError, count, enumerate_some
from roberta_small.common.metrics import label, number
from roberta_small.common.run import split_arm
from roberta_small.common.statistics import DRAWS, LEVEL, NONE, SEED, Interval, Values
from roberta_small.common.tables import PERCENT, Mean, Table, interval, mean_std_cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

logger = logging.getLogger(__name__)

TRIMMED = 0.25
"""Fraction of the values below and above the interquartile mean."""
FEW = 10
"""With fewer runs per data set, the percentile bootstrap is noticeably too narrow."""
WIDTH_INCHES = 6.4
GAP = 0.5
"""Space between two data sets, in lines; each group of a data set has a line."""
LINE_INCHES = 0.2


def find_data_sets(words: Iterable[str]) -> dict[str, str]:
    """Name -> folder or archive of each data set, from NAME=PATH and from folders of suites.

    Raises `UserError` for a folder that is not that of a suite, for fewer than two data sets, and as
    `common.run.split_named`.
    """
    found: dict[str, str] = {}
    for word in words:
        more = layout.split_named("RUNS", [word]) if layout.is_named(word) else {}
        if not more:
            folder = archive.opened(word)
            if not folder.is_dir():
                raise UserError(f"{word}: no such folder; give the folder of a suite or NAME=PATH")
            more = {name: str(path) for name, path in layout.data_sets(folder).items()}
            if layout.has_runs(folder):
                if not more:
                    raise UserError(f"{word}: contains the runs of one data set; write NAME={word}")
                logger.warning("%s: runs that are not below the folder of a data set are ignored", word)
            if not more:
                raise UserError(
                    f"{word}: contains no <data set>/<method>/<init>/seed<N>/; write NAME=PATH for each"
                )
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


@dataclass(frozen=True)
class Suite:
    """The runs of several data sets, and their scores at the best checkpoints."""

    study: Study
    values: pd.DataFrame
    """The frame of a suite, in the order of the study and of the data sets."""
    diverged: Sequence[str] = ()
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """With --best-settings: data set -> group -> selected setting, for groups with several."""

    @property
    def data_sets(self) -> list[str]:
        """The names of the data sets, in order."""
        return list(dict.fromkeys(self.values["data_set"]))

    @cached_property
    def summary(self) -> pd.DataFrame:
        """data_set, arm, init, n, mean, std."""
        data = summarize(self.values, ["data_set", *GROUP], "value", ddof=self.study.query.ddof)
        return _by_data_set(data, self.data_sets)


def compute(suite: Suite) -> Computed:
    """Scores by data set, and statistics over all data sets if groups are comparable on all of them."""
    values_of, excluded = comparable(suite.values)
    tables = [_scores_table(suite, notes=excluded if not values_of else ())]
    if values_of:
        tables.append(_aggregates_table(suite, values_of, excluded))
    return Computed(tables, suite.values)


def compare(sources: Sequence[str], query: Query, pattern: str | None = None) -> tuple[Study, list[Table]]:
    """The study of several data sets, and the tables of `compare` over seeds, all data sets one family.

    Raises `UserError` as `read_suite`, and if there is nothing to compare.
    """
    suite = read_suite(sources, query, pattern)
    study, metric = suite.study, suite.study.metric
    data = compare_groups(
        suite.values, pairs=pairs_of(study), pairing=query.pairing, detect=study.difference,
        lower=study.lower, metric=metric,
    )  # fmt: skip
    return study, [comparison_table(data, study, left_out=suite.diverged), plan_table(data, metric)]


def read_suite(words: Sequence[str], query: Query, pattern: str | None = None) -> Suite:
    """The finished runs of these data sets that the query selects, and their scores.

    Prints a summary of the runs on standard error. Raises `UserError` as `find_data_sets` and, with the name
    of the data set, as `select`; also if the data sets would be reported on different splits.
    """
    of_one = {"at", "reference", "test_size", "audit", "duplicates", "chance"}
    if given := [OPTIONS[name]["flag"] for name in query.options if name in of_one]:
        raise UserError(f"{', '.join(given)}: for a single data set; omit it, or give the runs of one")
    paths = find_data_sets(words)
    found: dict[str, list[LoggedRun]] = {}
    for name, path in paths.items():
        with _naming(name):
            found[name] = found_runs(path, pattern, f"{name}: ")

    def group_of(run: LoggedRun) -> str:
        return f"{run.method}/{run.init}" if query.best_settings else run.group

    study = Study.of(query, sorted({group_of(run) for runs in found.values() for run in runs}))
    for name, runs in found.items():
        with _naming(name):
            selected = [run for run in runs if group_of(run) in study.selected]
            if not selected:
                raise UserError("no run of the selected groups; leave the data set out")
            found[name] = select_finished(selected, query.include_unfinished)
    tables = {}
    for name, runs in found.items():
        with _naming(name):
            tables[name] = read_runs(runs, query.accuracies)
    metric, by = choose_metrics(query, [run for runs in found.values() for run in runs])
    splits = {name: choose_subsets(one, query.choose_on, query.split) for name, one in tables.items()}
    if len(set(splits.values())) > 1:
        texts = [f"{split} (selected on {subset}) for {name}" for name, (subset, split) in splits.items()]
        raise UserError(
            f"different splits would be compared: {', '.join(texts)}; give --split and --choose-on"
        )
    choose_on, split = next(iter(splits.values()))
    study = replace(study, metric=metric, by=by, choose_on=choose_on, split=split)
    frames, settings, left_out = [], {}, []
    for name, table in tables.items():
        selection = Selection(study, found[name], table)
        with _naming(name):
            values = selection.values[selection.values["at"] == BEST].drop(columns="at")
            if query.best_settings:
                data = chosen_settings(selection)
                values = values.merge(data.loc[data["chosen"], GROUP], on=GROUP)
                values = values.assign(arm=[split_arm(arm)[0] for arm in values["arm"]])
                values = values.assign(group=names_of(values[GROUP]))
                several = data[data["chosen"] & (number_tried(data) > 1)]
                groups = several["family"] + "/" + several["init"]
                settings[name] = dict(zip(groups, several["label"], strict=True))
        frames.append(values.assign(data_set=name, at=name))
        left_out += [f"{name}: {run}" for run in selection.diverged]
    values = study.sorted(pd.concat(frames, ignore_index=True))
    return Suite(study, _by_data_set(values, paths), left_out, settings)


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """The message of a `UserError` names the data set."""
    try:
        yield
    except UserError as error:
        raise UserError(f"data set {name}: {error}") from None


def _by_data_set(frame: pd.DataFrame, names: Iterable[str]) -> pd.DataFrame:
    """The rows in the order of their data sets."""
    place = {name: index for index, name in enumerate(names)}
    return frame.sort_values("data_set", key=lambda found: found.map(place), kind="stable", ignore_index=True)


def comparable(values: pd.DataFrame) -> tuple[dict[str, pd.DataFrame], list[str]]:
    """Group -> values by seed and data set, NaN without a run, and notes on the groups and runs left out.

    Groups without runs on a data set are excluded.
    """
    data_sets = list(dict.fromkeys(values["data_set"]))
    found, missing, dropped = {}, [], []
    for group, rows in values.groupby("group", sort=False):
        wide = rows.pivot(index="seed", columns="data_set", values="value").reindex(columns=data_sets)
        if absent := [name for name in data_sets if wide[name].isna().all()]:
            missing.append(f"{group} ({', '.join(absent)})")
            continue
        found[group] = wide
        if len(seeds := wide.index[wide.isna().any(axis=1)]):
            dropped.append(f"{group} seed {', '.join(map(str, seeds))}")
    notes = []
    if missing:
        notes.append(f"Excluded, without runs on all data sets (missing): {enumerate_some(missing, 10)}.")
    if dropped:
        notes.append(f"Not in n and iqm, seeds that not all data sets have: {enumerate_some(dropped, 10)}.")
    return found, notes


def mean_ranks(means_GT: Values, *, lower: bool = False) -> Values:
    """(G,) mean over data sets of the rank of each group; 1 is best, ties have the mean of their ranks."""
    from scipy.stats import rankdata

    means_GT = np.round(means_GT, 9)  # so that rounding errors of the mean do not break ties
    return rankdata(means_GT if lower else -means_GT, axis=0).mean(axis=1)


def interquartile_mean(x_RT: Values) -> tuple[float, Interval]:
    """The mean of the middle half of all values (section 4.3), and its stratified bootstrap interval.

    Runs are drawn with replacement within each data set; the data sets stay the same. A single run has no
    interval. NaN without runs.
    """
    from scipy.stats import trim_mean

    if not len(x_RT):
        return math.nan, NONE
    value = float(trim_mean(x_RT, TRIMMED, axis=None))
    if len(x_RT) < 2:
        return value, NONE
    random = np.random.default_rng(SEED)
    index_DRT = random.integers(len(x_RT), size=(DRAWS, *x_RT.shape))
    drawn_DRT = np.take_along_axis(x_RT[None], index_DRT, axis=1)
    means_D = trim_mean(drawn_DRT.reshape(DRAWS, -1), TRIMMED, axis=1)
    low, high = np.quantile(means_D, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return value, (float(low), float(high))


def aggregate(
    values_of: Mapping[str, pd.DataFrame], *, lower: bool = False, scale: bool = True
) -> pd.DataFrame:
    """Statistics of each group of `comparable` over all data sets, one row per group.

    Columns: `arm`, `init`, `data_sets` and `n` (numbers; `n` seeds with runs on each data set), `rank` and
    `mean` (of the means of the data sets, over all runs), `iqm`, `iqm_low`, `iqm_high` (of the `n` seeds).
    Without `scale` (a metric whose values on different data sets cannot be averaged), the last four are NaN.
    """
    means_GT = np.stack([wide.mean().to_numpy() for wide in values_of.values()])
    ranks_G = mean_ranks(means_GT, lower=lower)
    rows = []
    for (group, wide), means_T, rank in zip(values_of.items(), means_GT, ranks_G, strict=True):
        x_RT = wide.dropna().to_numpy(dtype=float)
        iqm, (low, high) = interquartile_mean(x_RT) if scale else (math.nan, NONE)
        arm, _, init = group.rpartition("/")
        rows.append({
            "arm": arm, "init": init, "data_sets": x_RT.shape[1], "n": len(x_RT), "rank": float(rank),
            "mean": float(means_T.mean()) if scale else math.nan,
            "iqm": iqm, "iqm_low": low, "iqm_high": high,
        })  # fmt: skip
    return pd.DataFrame(rows)


def _scores_table(suite: Suite, notes: Sequence[str] = ()) -> Table:
    """Mean and standard deviation over seeds, with a row for each arm and init and a column per data set."""
    study, summary = suite.study, suite.summary
    metric, subset = study.metric, study.split
    groups = list(dict.fromkeys(names_of(summary)))
    row_of = {group: row for row, group in enumerate(groups)}
    cells = [dict.fromkeys(suite.data_sets, "–") for _ in groups]
    means = []
    for group, row in zip(names_of(summary), summary.itertuples(), strict=True):
        cells[row_of[group]][row.data_set] = mean_std_cell(row.mean, row.std, metric, row.n)
        means.append(Mean(row_of[group], row.data_set, group, row.data_set, subset, metric, row.mean))
    left_out = enumerate_some(suite.diverged, 10)
    best = f"the best mean of {label(study.by)} on {study.choose_on}"
    rule = f"Settings: for each data set, the one with {best}"
    settings = [
        f"{name}: " + ", ".join(f"{group} {setting}" for group, setting in found.items())
        for name, found in suite.settings.items()
        if found
    ]
    rule += f". {'; '.join(settings)}." if settings else "; no method has several."
    return Table(
        name="suite",
        caption=f"{subset.capitalize()} {label(metric)} by data set, mean ± std over seeds (n)",
        notes=(
            study.note,
            f"std: {study.std_note}. –: no finished run.",
            *([f"Excluded, without a finite value at a best checkpoint: {left_out}."] if left_out else []),
            *([rule] if study.query.best_settings else []),
            *notes,
        ),
        data=summary.assign(metric=metric, subset=subset, ddof=study.query.ddof, best_checkpoint=study.note),
        shown=summary[GROUP].drop_duplicates().reset_index(drop=True).join(pd.DataFrame(cells)),
        groups=tuple(groups),
        means=tuple(means),
    )


def _aggregates_table(suite: Suite, values_of: Mapping[str, pd.DataFrame], excluded: Sequence[str]) -> Table:
    """The frame of `aggregate`; `excluded` are notes on what it leaves out."""
    study = suite.study
    metric = study.metric
    # Values of a loss or an error have another scale on each data set.
    registered = metrics.find(metric)
    scale = registered is not None and registered.higher_is_better
    data = aggregate(values_of, lower=study.lower, scale=scale)
    shown = data[[*GROUP, "n"]].assign(rank=[f"{rank:.2f}" for rank in data["rank"]])
    notes = [
        f"Data sets, with equal weight: {', '.join(suite.data_sets)}. n: seeds with runs on each of them.",
        "rank: that of the mean over seeds, averaged over the data sets; 1 is best. It depends on the "
        "methods that are compared.",
    ]
    if scale:
        for key in ("mean", "iqm"):
            shown[key] = [number(value, metric) for value in data[key]]
        ends = zip(data["iqm_low"], data["iqm_high"], strict=True)
        shown[f"iqm {PERCENT}"] = [interval(low, high, metric) for low, high in ends]
        notes.append(
            f"iqm: interquartile mean, the mean of the middle half of all runs (Agarwal et al. 2021). "
            f"{PERCENT}: stratified bootstrap, {DRAWS:,} samples of the runs, seed {SEED}. It covers other "
            "seeds, not other data sets."
        )
        if (fewest := int(data["n"].min())) < FEW:
            notes.append(f"With {count(fewest, 'run')} per data set, the interval is too narrow or missing.")
    else:
        notes.append(f"{label(metric)} has another scale on each data set, so it is not averaged.")
    over = count(len(suite.data_sets), "data set")
    return Table(
        name="aggregates",
        caption=f"{study.split.capitalize()} {label(metric)} over {over}",
        notes=(*notes, *excluded),
        data=data.assign(metric=metric, subset=study.split, level=LEVEL, draws=DRAWS),
        shown=shown,
        groups=tuple(names_of(data)),
    )


def draw(suite: Suite) -> Iterator[tuple[str, Figure]]:
    """For each data set, the runs of each group as dots, with mean and standard deviation."""
    from matplotlib.figure import Figure

    study, values, summary, data_sets = suite.study, suite.values, suite.summary, suite.data_sets
    groups = study.ordered(names_of(summary))
    style_of = group_styles(groups, study)
    present = set(zip(summary["data_set"], names_of(summary), strict=True))
    line_of: dict[tuple[str, str], float] = {}
    ends: list[tuple[float, float]] = []
    for name in data_sets:
        lines = [group for group in groups if (name, group) in present]
        line_of |= {(name, group): GAP * len(ends) + len(line_of) + row for row, group in enumerate(lines)}
        ends.append((line_of[name, lines[0]], line_of[name, lines[-1]]))
    page = paper_inches()
    height = 1.3 + LINE_INCHES * (ends[-1][1] + 1) + 0.15 * len(groups)
    figure = Figure(figsize=(page or WIDTH_INCHES, height if page is None else 0.8 * height))
    figure.set_layout_engine("constrained")
    panel = figure.subplots()
    for group in groups:
        style = {"color": style_of[group]["color"], "marker": style_of[group]["marker"], "linestyle": "none"}
        mine, rows = values[values["group"] == group], summary[names_of(summary) == group]
        panel.plot(
            mine["value"], [line_of[name, group] for name in mine["data_set"]],
            markersize=4, alpha=0.45, markeredgecolor="none", **style,
        )  # fmt: skip
        panel.errorbar(
            rows["mean"], [line_of[name, group] for name in rows["data_set"]], xerr=rows["std"].fillna(0),
            markersize=6, capsize=2, label=wrap(study.label(group)), **style,
        )  # fmt: skip
    for first, _ in ends[1:]:
        panel.axhline(first - (1 + GAP) / 2, color="0.8", linewidth=0.8)
    panel.set_yticks([(first + last) / 2 for first, last in ends], [wrap(name, 20) for name in data_sets])
    panel.set_ylim(ends[-1][1] + 0.7, -0.7)
    panel.set_xlabel(literal(f"{label(study.metric)} on {study.split} at the best checkpoint"))
    finish(panel, "x", study.metric)
    legend_below(figure, title="large: mean ± standard deviation over seeds; small: runs")
    yield f"{study.metric}_by_data_set", figure
