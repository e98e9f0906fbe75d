"""Tables and figures of several data sets: scores by data set, statistics over all, profiles, P(A > B)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from roberta_small.analysis.features.suite.statistics import PROFILE_DRAWS, Balanced
from roberta_small.analysis.query import ResolvedQuery
from roberta_small.analysis.read.long_table import GROUP
from roberta_small.analysis.scoring import BEST
from roberta_small.analysis.study import NO_STUDY, Study, names_of
from roberta_small.analysis.style import (
    finish,
    group_styles,
    legend_below,
    literal,
    paper_inches,
    wrap,
)
from roberta_small.common.errors import count, enumerate_some
from roberta_small.common.metrics import label, number
from roberta_small.common.statistics import DRAWS, LEVEL, SEED
from roberta_small.common.tables import PERCENT, Mean, Table, interval, mean_std_cell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NORMALIZED = "normalized score"
"""Column heading and axis label; without a registered metric of this name, it has four decimals."""
FEW = 10
"""With fewer runs per data set, the percentile bootstrap is noticeably too narrow."""
PAPER = "Agarwal et al. 2021"
WIDTH_INCHES = 6.4
GAP = 0.5
"""Space between two data sets, in lines; each group of a data set has a line."""
LINE_INCHES = 0.2
BAND_ALPHA = 0.15


def suite_table(
    summary: pd.DataFrame,
    query: ResolvedQuery,
    *,
    chance: Mapping[str, float | None],
    left_out: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> Table:
    """Mean and standard deviation over seeds, with a row for each arm and init and a column per data set.

    `summary` has the columns `data_set`, `arm`, `init`, `n`, `mean` and `std`; `chance` is the chance level
    of each data set (None if unknown), in the order of the columns; `left_out` are the diverged runs.
    """
    metric, subset = query.metric, query.reported
    groups = list(dict.fromkeys(names_of(summary)))
    row_of = {group: row for row, group in enumerate(groups)}
    cells = [dict.fromkeys(chance, "–") for _ in groups]
    means = []
    for group, row in zip(names_of(summary), summary.to_dict("records"), strict=True):
        name = row["data_set"]
        cells[row_of[group]][name] = mean_std_cell(row["mean"], row["std"], metric, row["n"])
        means.append(Mean(row_of[group], name, group, BEST, name, metric, row["mean"], tested=False))
    shown = summary[GROUP].drop_duplicates().reset_index(drop=True).join(pd.DataFrame(cells))
    known = {name: level for name, level in chance.items() if level is not None}
    levels = ", ".join(f"{name} {number(level, metric)}" for name, level in known.items())
    return Table(
        name="suite",
        caption=f"{subset.capitalize()} {label(metric)} by data set, mean ± std over seeds (n)",
        notes=(
            query.note,
            f"std: {query.std_note}. –: no finished run.",
            *(
                [f"Chance level (uniform guessing on balanced classes, or --chance): {levels}."]
                if known
                else []
            ),
            *(
                [f"Excluded, without a finite value at a best checkpoint: {enumerate_some(left_out, 10)}."]
                if left_out
                else []
            ),
            *notes,
        ),
        data=summary.assign(
            chance=summary["data_set"].map(dict(chance)).astype(float),
            metric=metric,
            subset=subset,
            ddof=query.ddof,
            best_checkpoint=query.note,
        ),
        shown=shown,
        groups=tuple(groups),
        means=tuple(means),
    )


def aggregates_table(
    data: pd.DataFrame, balanced: Balanced, query: ResolvedQuery, *, notes: Sequence[str] = ()
) -> Table:
    """The frame of `aggregate`; `notes` are about the scale of the metric."""
    metric, subset, normalized = query.metric, query.reported, query.normalize
    name = NORMALIZED if normalized else metric
    scale = not data["iqm"].isna().all()
    columns = {"arm": data["arm"], "init": data["init"], "n": data["n"].astype(str)}
    if scale:
        columns |= {
            "mean": [number(value, name) for value in data["mean"]],
            "IQM": [number(value, name) for value in data["iqm"]],
            f"IQM {PERCENT}": _intervals(data, "iqm", name),
        }
    columns |= {
        "rank": [f"{rank:.2f}" for rank in data["rank"]],
        f"rank {PERCENT}": [
            "–" if math.isnan(low) else f"[{low:.2f}, {high:.2f}]"
            for low, high in zip(data["rank_low"], data["rank_high"], strict=True)
        ],
    }
    groups = tuple(names_of(data))
    means = (
        [
            Mean(row, column, group, BEST, column, metric, value, tested=False)
            for column, key in (("mean", "mean"), ("IQM", "iqm"))
            for row, (group, value) in enumerate(zip(groups, data[key], strict=True))
        ]
        if scale
        else []
    )
    what = "normalized score" if normalized else label(metric)
    return Table(
        name="aggregates",
        caption=f"{subset.capitalize()} {label(metric)} over {count(len(balanced.data_sets), 'data set')}",
        notes=(
            f"Data sets, with equal weight: {', '.join(balanced.data_sets)}. n: runs on each of them.",
            *notes,
            *(
                [
                    "IQM: interquartile mean, the mean of the middle half of the "
                    f"{what} of all runs ({PAPER}). {PERCENT}: stratified bootstrap, {DRAWS:,} samples of "
                    f"the runs, seed {SEED}. It covers other seeds, not other data sets."
                ]
                if scale
                else []
            ),
            "rank: that of the mean over seeds, averaged over the data sets. 1 is best; ties have the mean "
            f"of their ranks. {PERCENT}: {PROFILE_DRAWS:,} bootstrap samples. Ranks depend on the methods "
            "that are compared.",
            *_few_notes(data["n"]),
            *exclusions(balanced),
        ),
        data=data.assign(
            normalized=normalized,
            metric=metric,
            subset=subset,
            level=LEVEL,
            draws=DRAWS,
            names=" ".join(balanced.data_sets),
        ),
        shown=pd.DataFrame(columns),
        groups=groups,
        means=tuple(means),
    )


def improvement_table(data: pd.DataFrame, balanced: Balanced, query: ResolvedQuery) -> Table:
    """The frame of `compare_pairs`."""
    metric, subset = query.metric, query.reported
    shown = pd.DataFrame(
        {
            "A": data["a"],
            "B": data["b"],
            "n": [f"{row.n_a}+{row.n_b}" for row in data.itertuples()],
            "P(A > B)": [f"{value:.2f}" for value in data["probability"]],
            PERCENT: [
                "–" if math.isnan(low) else f"[{low:.2f}, {high:.2f}]"
                for low, high in zip(data["low"], data["high"], strict=True)
            ],
        }
    )
    return Table(
        name="improvement",
        caption=f"Probability that A has a better {subset} {label(metric)} than B",
        notes=(
            "P(A > B): the probability that a run of A is better than a run of B, averaged over "
            f"{', '.join(balanced.data_sets)} ({PAPER}; the Mann-Whitney statistic). Ties count half. 0.5: "
            "neither is better.",
            f"{PERCENT}: stratified bootstrap, {PROFILE_DRAWS:,} samples of the runs, seed {SEED}. n: runs "
            "of A and B on each data set.",
            "P(A > B) does not depend on the size of a difference: see the means.",
            *_few_notes(pd.concat([data["n_a"], data["n_b"]])),
        ),
        data=data.assign(
            metric=metric,
            subset=subset,
            level=LEVEL,
            draws=PROFILE_DRAWS,
            names=" ".join(balanced.data_sets),
        ),
        shown=shown,
    )


def exclusions(balanced: Balanced) -> list[str]:
    """Notes on what the statistics over all data sets exclude."""
    notes = []
    if balanced.incomplete:
        texts = [f"{group} ({', '.join(names)})" for group, names in balanced.incomplete.items()]
        notes.append(f"Excluded, without runs on all data sets (missing): {enumerate_some(texts, 10)}.")
    if balanced.unmatched:
        notes.append(
            f"Excluded, because no seed was run on all data sets: {enumerate_some(balanced.unmatched, 10)}."
        )
    if balanced.dropped:
        texts = [
            f"{group} on {name}: {', '.join(map(str, seeds))}"
            for group, dropped in balanced.dropped.items()
            for name, seeds in dropped.items()
        ]
        notes.append(f"Excluded seeds, which another data set lacks: {enumerate_some(texts, 10)}.")
    return notes


def _intervals(data: pd.DataFrame, key: str, metric: str) -> list[str]:
    ends = zip(data[f"{key}_low"], data[f"{key}_high"], strict=True)
    return [interval(low, high, metric) for low, high in ends]


def _few_notes(runs: pd.Series) -> list[str]:
    """Notes on intervals from few runs."""
    notes = []
    several = runs[runs > 1]
    if len(several) and (fewest := int(several.min())) < FEW:
        notes.append(
            f"With {fewest} runs per data set, the bootstrap intervals are too narrow: they resample the "
            "same few values."
        )
    if (runs == 1).any():
        notes.append("A method with a single run per data set has no interval.")
    return notes


def draw_by_data_set(
    values: pd.DataFrame,
    summary: pd.DataFrame,
    metric: str,
    data_sets: Sequence[str],
    *,
    subset: str = "test",
    study: Study = NO_STUDY,
) -> Figure:
    """For each data set, the runs of each group as dots, with mean and standard deviation.

    `values` is the frame of a suite (`statistics`), `summary` has the columns `data_set`, `arm`, `init`,
    `mean` and `std`.
    """
    from matplotlib.figure import Figure

    study = study.resolved_for(values)
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
    panel.set_xlabel(literal(f"{label(metric)} on {subset} at the best checkpoint"))
    finish(panel, grid="x")
    legend_below(figure, title="large: mean ± standard deviation over seeds; small: runs")
    return figure


def draw_profiles(data: pd.DataFrame, score: str, *, study: Study = NO_STUDY) -> Figure:
    """The frame of `profiles`: the fraction of runs above each score, with bootstrap bands."""
    from matplotlib.figure import Figure

    study = study.resolved_for(data)
    groups = study.ordered(names_of(data))
    style_of = group_styles(groups, study)
    page = paper_inches()
    figure = Figure(figsize=(page or WIDTH_INCHES, 4.2 if page is None else 0.75 * page + 0.5))
    figure.set_layout_engine("constrained")
    panel = figure.subplots()
    rows_of = {f"{arm}/{init}": rows for (arm, init), rows in data.groupby(GROUP)}
    for group in groups:
        rows, style = rows_of[group], style_of[group]
        panel.step(
            rows["threshold"], rows["fraction"], where="post", linewidth=2, label=wrap(study.label(group)),
            color=style["color"], linestyle=style["linestyle"],
        )  # fmt: skip
        panel.fill_between(
            rows["threshold"], rows["low"], rows["high"], step="post", alpha=BAND_ALPHA, linewidth=0,
            color=style["color"],
        )  # fmt: skip
    panel.set_xlabel(literal(f"τ: {score}"))
    panel.set_ylabel("fraction of runs above τ")
    panel.set_ylim(-0.02, 1.02)
    finish(panel, grid="both")
    banded = data["low"].notna().any()
    legend_below(figure, title=f"bands: {PERCENT}, stratified bootstrap" if banded else "")
    return figure
