"""Figures of a suite: scores by data set, and performance profiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from roberta_small.analysis.figures.style import (
    finish,
    group_styles,
    legend_below,
    literal,
    paper_inches,
    wrap,
)
from roberta_small.analysis.read.long_table import GROUP
from roberta_small.analysis.study import NO_STUDY, Study, names_of
from roberta_small.common.metrics import label
from roberta_small.common.tables import PERCENT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH_INCHES = 6.4
GAP = 0.5
"""Space between two data sets, in lines; each group of a data set has a line."""
LINE_INCHES = 0.2
BAND_ALPHA = 0.15


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

    `values` is the frame of a suite (`stats.suite`), `summary` has the columns `data_set`, `arm`, `init`,
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
    """The frame of `stats.suite.profiles`: the fraction of runs above each score, with bootstrap bands."""
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
