"""Figures of seeds at their best checkpoints with intervals, and of the best of n seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from roberta_small.analysis.figures.style import (
    finish,
    grid,
    group_styles,
    legend_below,
    literal,
    paper_inches,
    whole_numbers,
    wrap,
)
from roberta_small.analysis.read.long_table import GROUP
from roberta_small.analysis.stats.spread import BEST
from roberta_small.analysis.study import NO_STUDY, WIDTHS, Study
from roberta_small.common.metrics import label
from roberta_small.common.tables import PERCENT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


WIDTH_INCHES = 8.5
# Vertical offsets of seeds and intervals from the line of their group; the distance of groups is 1.
SEEDS_LANE, T_LANE, EXAMPLES_LANE = -0.2, 0.12, 0.32
CLOSE = 0.03
"""Fraction of the axis below which neighbouring seeds are drawn in separate lanes."""


def draw_seeds(
    values: pd.DataFrame, spread: pd.DataFrame, metric: str, *, subset: str = "test", at: str = BEST,
    baseline: str | None = None, study: Study = NO_STUDY,
) -> Figure:  # fmt: skip
    """A dot for each run at `at` (default: best checkpoint), with the intervals of the mean of each group.

    `values` is the frame of `scores`, `spread` that of `spread_over_seeds`. The interval due to the test set
    is drawn if `spread` contains it, and a vertical line at the mean of the group `baseline`.
    """
    from matplotlib.figure import Figure

    values, spread = values[values["at"] == at], spread[spread["at"] == at].reset_index(drop=True)
    names, study = _names(spread), study.resolved_for(spread)
    by_name = dict(zip(names, spread.to_dict("records"), strict=True))
    style_of = group_styles(names, study)
    page = paper_inches()
    height = 1.5 + 0.6 * len(names) if page is None else 1.1 + 0.42 * len(names)
    figure = Figure(figsize=(page or WIDTH_INCHES, height), layout="constrained")
    panel = figure.subplots()
    apart = CLOSE * _range(values, spread)
    for mean in (row["mean"] for name, row in by_name.items() if name == baseline):
        panel.axvline(mean, color="0.45", linewidth=1, linestyle=":", zorder=1)
    for line, (name, row) in enumerate(by_name.items()):
        of_group = (values["arm"] == row["arm"]) & (values["init"] == row["init"])
        x = np.sort(values.loc[of_group, "value"].to_numpy(dtype=float))
        color = style_of[name]["color"]
        panel.plot(
            x, line + SEEDS_LANE - 0.14 * _lanes(x, apart), linestyle="none", markersize=7, alpha=0.85,
            color=color, marker=style_of[name]["marker"], markeredgecolor="white",
        )  # fmt: skip
        panel.plot([row["mean"]] * 2, [line + SEEDS_LANE, line + EXAMPLES_LANE], color="0.15", linewidth=1.2)
        panel.hlines(line + T_LANE, row["t_low"], row["t_high"], color=color, linewidth=5)
        panel.hlines(
            line + EXAMPLES_LANE, row["examples_low"], row["examples_high"], color="0.45", linewidth=2,
            linestyle=(0, (3, 1)),
        )  # fmt: skip
    has = {f"has_{key}": bool(spread[f"{key}_low"].notna().any()) for key in ("t", "examples")}
    _explain(panel, has_baseline=baseline in by_name, **has)
    characters = 24 if page is None or page > WIDTHS["one-column"] else 16
    panel.set_yticks(range(len(names)), [wrap(study.label(name), characters) for name in names])
    panel.set_ylim(len(names) - 0.5, -0.65)
    where = "at the best checkpoint" if at == BEST else f"after epoch {at}"
    panel.set_xlabel(wrap(f"{label(metric)} on {subset} {where}", 96 if page is None else int(11 * page)))
    finish(panel, grid="x")
    legend_below(figure)
    return figure


def draw_expected(
    expected: pd.DataFrame, metric: str, by: str, *, subset: str = "valid", reported: str = "test",
    study: Study = NO_STUDY,
) -> Figure:  # fmt: skip
    """Expected score of the best of n seeds on `subset` and on `reported` (`expected_best_of_seeds`)."""
    from matplotlib.figure import Figure

    names, study = _names(expected.drop_duplicates(GROUP)), study.resolved_for(expected)
    style_of = group_styles(names, study)
    columns, size = grid(2, (WIDTH_INCHES / 2, 3.4))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(2 // columns, columns, sharey=by == metric, squeeze=False).ravel()
    titles = {
        "valid": f"best {label(by)} on {subset}",
        "test": f"{label(metric)} on {reported} of the same run",
    }
    for panel, (column, title) in zip(panels, titles.items(), strict=True):
        for name, (_, group) in zip(names, expected.groupby(GROUP, sort=False), strict=True):
            panel.plot(
                group["seeds_tried"], group[column], label=wrap(study.label(name)), linewidth=2, markersize=6,
                **style_of[name],
            )  # fmt: skip
        panel.set_title(literal(title), fontsize="medium")
        panel.set_xlabel("seeds tried")
        panel.set_xlim(0.7, expected["seeds_tried"].max() + 0.3)
        panel.margins(y=0.12)
        whole_numbers(panel)
        finish(panel)
    for panel in panels[::columns]:
        panel.set_ylabel("expected value")
    legend_below(figure)
    return figure


def _names(frame: pd.DataFrame) -> list[str]:
    return [f"{arm}/{init}" for arm, init in frame[GROUP].itertuples(index=False)]


def _range(values: pd.DataFrame, spread: pd.DataFrame) -> float:
    """The approximate range of the axis."""
    ends = pd.concat(
        [values["value"], *(spread[f"{key}_{end}"] for key in ("t", "examples") for end in ("low", "high"))]
    )
    return float(ends.max() - ends.min()) if len(ends) else 0.0


def _lanes(x: np.ndarray, apart: float) -> np.ndarray:
    """0, 1 or 2 for each of the sorted values; neighbours closer than `apart` have different lanes."""
    lanes = np.zeros(len(x), int)
    for index in range(1, len(x)):
        if x[index] - x[index - 1] < apart:
            lanes[index] = (lanes[index - 1] + 1) % 3
    return lanes


def _explain(panel: Axes, *, has_t: bool, has_examples: bool, has_baseline: bool) -> None:
    """Add grey legend entries that apply to all colors."""
    panel.plot([], [], linestyle="none", marker="o", color="0.3", label="one seed")
    panel.plot([], [], color="0.15", linewidth=1.2, label="mean")
    if has_baseline:
        panel.plot([], [], color="0.45", linewidth=1, linestyle=":", label="mean of the baseline")
    if has_t:
        panel.plot([], [], color="0.3", linewidth=5, label=f"{PERCENT} over seeds (t)")
    if has_examples:
        panel.plot(
            [], [], color="0.45", linewidth=2, linestyle=(0, (3, 1)),
            label=f"{PERCENT} due to the test examples (Wilson)",
        )  # fmt: skip
