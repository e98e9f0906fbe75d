"""Learning curves: the figure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

import pandas as pd

from roberta_small.analysis.query import NO_STUDY, Study, arm_of, names_of
from roberta_small.analysis.read.long_table import GROUP, REPORTED, SELECTING, usual_or_only
from roberta_small.analysis.scoring import BEST, at_validations, per_epoch
from roberta_small.analysis.selection import Selection
from roberta_small.analysis.style import (
    Style,
    finish,
    grid,
    group_styles,
    legend_below,
    literal,
    paper_inches,
    whole_numbers,
    wrap,
)
from roberta_small.common.errors import count
from roberta_small.common.metrics import label, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


PANEL_INCHES = (4.4, 3.8)
LINES = ((0, (6, 2)), (0, (6, 2, 1, 2)), (0, (3, 1)), (0, (12, 3)), (0, (6, 2, 1, 2, 1, 2)))
"""Line styles that differ from the dots of the chance level."""
NUMBER_POINTS, NUMBER_HEIGHT = 34, 0.045
"""Size of the number at a line: width in points, height as a fraction of the panel."""
MOST_BANDS = 3
"""Maximum number of groups in a panel with bands; with more, bars are used because bands would overlap."""


def draw_curves(
    table: pd.DataFrame,
    metric: str = "accuracy",
    *,
    ddof: int = 1,
    chance: float | None = None,
    reference: pd.DataFrame | None = None,
    reported: str | None = None,
    study: Study = NO_STUDY,
) -> Figure:
    """`metric` after each epoch: a row of panels for each arm, valid on the left and `reported` on the right.

    All groups share one row if they have labels and in figures for a paper. If a single subset was evaluated,
    there is one panel for each arm.

    Thin lines are seeds, thick lines their means, bands (bars with more than three groups) one standard
    deviation (`ddof`) to each side. An arm with a single validation is a horizontal line in the panels of the
    others. `reference`, a frame of `compare_reference`, adds published results, see `draw_reference`. All
    panels have the same scale. Raises `UserError` if no run has `metric` on one of the subsets.
    """
    from matplotlib.figure import Figure  # imported here: slow

    logged = table["subset"].unique()
    subsets = list(
        dict.fromkeys([usual_or_only(SELECTING, logged), reported or usual_or_only(REPORTED, logged)])
    )
    shared = bool(study.query.labels) or paper_inches() is not None
    values = {subset: at_validations(table, subset, metric) for subset in subsets}
    means = {subset: per_epoch(table, metric, subset=subset, ddof=ddof) for subset in subsets}
    # Arms with a single validation are lines, unless all have only one.
    pooled = pd.concat(values.values())
    epochs = pooled.groupby("arm", sort=False)["epoch"].max()
    flat_arms = set(epochs.index[(epochs == 1) & (epochs.max() > 1)])
    drawn = study.ordered(names_of(pooled[GROUP].drop_duplicates().sort_values(GROUP)))
    flat = [group for group in drawn if arm_of(group) in flat_arms]
    groups = [group for group in drawn if group not in flat]
    style_of = group_styles([*groups, *flat], study)
    arms = dict.fromkeys(map(arm_of, groups))
    of_arm = [[group for group in groups if arm_of(group) == arm] for arm in arms]
    rows = [groups] if shared else of_arm

    columns, (width, height) = grid(len(subsets), PANEL_INCHES)
    figure = Figure(figsize=(width, height * len(rows)), layout="constrained")
    for row, shown in zip(figure.subfigures(len(rows), 1, squeeze=False)[:, 0], rows, strict=True):
        names = {group: study.label(group) if shared else group.rpartition("/")[2] for group in shown}
        styles = {names[group]: style_of[group] for group in shown}
        bars = len(shown) > MOST_BANDS
        panels = row.subplots(len(subsets) // columns, columns, squeeze=False).ravel()
        for panel, subset in zip(panels, subsets, strict=True):
            draw_runs(panel, _named(values[subset], names), styles)
            draw_means(panel, _named(means[subset], names), styles, bars=bars)
            lines = means[subset][names_of(means[subset]).isin(flat)]
            draw_lines(panel, study.sorted(lines), metric, study)
            if reference is not None:
                published = reference[(reference["subset"] == subset) & (reference["metric"] == metric)]
                draw_reference(panel, _named(published, names), styles, ddof=ddof)
            if chance is not None:
                panel.axhline(chance, color="0.4", linewidth=1, linestyle=":", label=f"chance ({chance:g})")
            title = subset if shared else f"{study.label(arm_of(shown[0]))}: {subset}"
            label_panel(panel, wrap(title, 40), label(metric), metric)
        spread = "bar" if bars else "band"
        legend_below(row, f"thick: mean over seeds, {spread}: ± std (ddof {ddof}), thin: one seed")
    # One vertical range for all panels, which are in different subfigures.
    low, high = zip(*(panel.get_ylim() for panel in figure.axes), strict=True)
    for panel in figure.axes:
        panel.set_ylim(min(low), max(high))
    return figure


def draw_lines(
    panel: Axes, means: pd.DataFrame, metric: str, study: Study = NO_STUDY, *, named: bool = True
) -> None:
    """A horizontal line for each row of `means` (`arm`, `init`, `mean`), which has no value on the axis.

    `named`: add the names to the legend.
    """
    rows = list(means[["arm", "init", "mean"]].itertuples(index=False))
    style_of = group_styles([f"{row.arm}/{row.init}" for row in rows], study)
    # The number of a line is shifted to the left, by widths, if it would overlap that of the line above.
    low, high = panel.get_ylim()
    places = [0] * len(rows)
    for above, index in pairwise(sorted(range(len(rows)), key=lambda index: -rows[index].mean)):
        if rows[above].mean - rows[index].mean < NUMBER_HEIGHT * (high - low):
            places[index] = places[above] + 1
    for index, ((arm, init, mean), place) in enumerate(zip(rows, places, strict=True)):
        color = style_of[f"{arm}/{init}"]["color"]
        name = wrap(study.label(f"{arm}/{init}")) if named else None
        panel.axhline(mean, color=color, linewidth=1.4, linestyle=LINES[index % len(LINES)], label=name)
        panel.annotate(
            number(mean, metric), (1, mean), xycoords=("axes fraction", "data"),
            xytext=(-NUMBER_POINTS * place, 2), textcoords="offset points", ha="right", va="bottom",
            fontsize="small", color=color,
        )  # fmt: skip


def _named(frame: pd.DataFrame, names: Mapping[str, str]) -> pd.DataFrame:
    """The rows of some groups, with their `name`."""
    rows = frame[names_of(frame).isin(list(names))]
    return rows.assign(name=names_of(rows).map(names).astype(object))


def draw_runs(panel: Axes, values: pd.DataFrame, style_of: dict[str, Style]) -> None:
    """A thin line for each run of the rows `name` (of the group), `seed`, `epoch`, `value`."""
    for (name, _), run in values.groupby(["name", "seed"]):
        panel.plot(
            run["epoch"], run["value"], color=style_of[name]["color"], linestyle=style_of[name]["linestyle"],
            linewidth=0.8, alpha=0.5,
        )  # fmt: skip


def draw_means(panel: Axes, means: pd.DataFrame, style_of: dict[str, Style], *, bars: bool) -> None:
    """A thick line with band or bars for each `name` of a frame of `per_epoch`, in the order of styles."""
    by_name = dict(iter(means.groupby("name")))
    groups = [(name, by_name[name]) for name in style_of if name in by_name]
    for index, (name, curve) in enumerate(groups):
        seeds = count(curve["n"].max(), "seed")
        # Shifted by a few hundredths of an epoch, so that bars do not overlap.
        shift = 0.06 * (index - (len(groups) - 1) / 2) if bars else 0.0
        epochs, color = curve["epoch"] + shift, style_of[name]["color"]
        panel.plot(
            epochs, curve["mean"], label=wrap(f"{name} ({seeds})"), linewidth=2.2, markersize=5,
            **style_of[name],
        )  # fmt: skip
        low, high = curve["mean"] - curve["std"], curve["mean"] + curve["std"]
        if len(curve) > 1 and not bars:
            panel.fill_between(epochs, low, high, color=color, alpha=0.15, linewidth=0)
        else:  # a band needs two epochs
            panel.vlines(epochs, low, high, color=color, linewidth=1.2)


def draw_reference(panel: Axes, rows: pd.DataFrame, style_of: dict[str, Style], *, ddof: int) -> None:
    """Published results of groups: hollow markers after each epoch, with a bar for the standard deviation.

    A `name` with only a result at the best checkpoint is a dotted horizontal line.
    """
    for name, reported in rows.groupby("name"):
        style, curve = style_of[name], reported[reported["epoch"] != BEST]
        if curve.empty:
            panel.axhline(
                reported["reference_mean"].item(), color=style["color"], linewidth=1.6, linestyle=(0, (1, 1)),
                label=wrap(f"{name}, published: best"),
            )  # fmt: skip
            continue
        epochs = curve["epoch"].astype(int)
        factors = [math.sqrt((n - 1) / n) if ddof == 0 and n > 1 else 1.0 for n in curve["reference_n"]]
        panel.errorbar(
            epochs, curve["reference_mean"], yerr=(curve["reference_std"] * factors).fillna(0.0),
            color=style["color"], marker=style["marker"], markerfacecolor="white", markersize=7,
            linewidth=0.8, linestyle=(0, (1, 1)), label=wrap(f"{name}, published"),
        )  # fmt: skip


def label_panel(panel: Axes, title: str, quantity: str, metric: str) -> None:
    """Add title and axis labels to a panel with epochs."""
    panel.set_title(title)
    panel.set_xlabel("epoch")
    panel.set_ylabel(literal(quantity))
    panel.label_outer()
    whole_numbers(panel)
    finish(panel, metric=metric)


def draw_curves_of(selection: Selection) -> Iterator[tuple[str, Figure]]:
    """`draw_curves` of the metric."""
    study, query = selection.study, selection.study.query
    figure = draw_curves(
        selection.table, study.metric, ddof=query.ddof, chance=query.chance, reference=selection.reference,
        reported=study.split, study=study,
    )  # fmt: skip
    yield f"{study.metric}_per_epoch", figure
