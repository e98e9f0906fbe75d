"""Learning curves of all runs on validation and test, with one color for each init."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import pandas as pd

from common.errors import count
from common.metrics import label, number

from ..read.long_table import REPORTED, RUN, SELECTING, usual_or_only
from ..stats.spread import BEST, at_validations, per_epoch
from .style import Style, finish, legend_below, literal, styles, whole_numbers, wrap

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
) -> Figure:
    """`metric` after each epoch: a row of panels for each arm, valid on the left and `reported` on the right.

    The default of `reported` is that of `scores`; if a single subset was evaluated, there is one panel.

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
    values = {subset: at_validations(table, subset, metric) for subset in subsets}
    means = {subset: per_epoch(table, metric, subset=subset, ddof=ddof) for subset in subsets}
    pooled = pd.concat(values.values())
    arms, flat = _curves_and_lines(pooled)
    style_of = styles(sorted(set(pooled.loc[pooled["arm"].isin(arms), "init"])))

    width, height = PANEL_INCHES
    figure = Figure(figsize=(width * len(subsets), height * len(arms)), layout="constrained")
    rows = figure.subfigures(len(arms), 1, squeeze=False)[:, 0]
    for row, arm in zip(rows, arms, strict=True):
        bars = pooled.loc[pooled["arm"] == arm, "init"].nunique() > MOST_BANDS
        panels = row.subplots(1, len(subsets), squeeze=False)[0]
        for panel, subset in zip(panels, subsets, strict=True):
            draw_runs(panel, _of(arm, values[subset]), style_of)
            draw_means(panel, _of(arm, means[subset]), style_of, bars=bars)
            draw_lines(panel, means[subset][means[subset]["arm"].isin(flat)], metric)
            if reference is not None:
                published = (reference["subset"] == subset) & (reference["metric"] == metric)
                draw_reference(panel, _of(arm, reference[published]), style_of, ddof=ddof)
            if chance is not None:
                panel.axhline(chance, color="0.4", linewidth=1, linestyle=":", label=f"chance ({chance:g})")
            label_panel(panel, wrap(f"{arm}: {subset}", 40), label(metric))
        spread = "bar" if bars else "band"
        legend_below(row, f"thick: mean over seeds, {spread}: ± std (ddof {ddof}), thin: one seed")
    share_scale(figure)
    return figure


def draw_lines(
    panel: Axes,
    means: pd.DataFrame,
    metric: str,
    *,
    named: bool = True,
    color_of: Mapping[str, str] | None = None,
) -> None:
    """A horizontal line for each row of `means` (`arm`, `init`, `mean`), which has no value on the axis.

    `named`: add the names to the legend. `color_of`: the colors of arms that also have a curve.
    """
    rows = list(means[["arm", "init", "mean"]].itertuples(index=False))
    for index, (arm, init, mean) in enumerate(rows):
        color = (color_of or {}).get(arm, "0.25")
        name = wrap(f"{arm}/{init}") if named else None
        panel.axhline(mean, color=color, linewidth=1.4, linestyle=LINES[index % len(LINES)], label=name)
    for (arm, _, mean), place in zip(rows, _places(panel, [row.mean for row in rows]), strict=True):
        panel.annotate(
            number(mean, metric), (1, mean), xycoords=("axes fraction", "data"),
            xytext=(-NUMBER_POINTS * place, 2), textcoords="offset points", ha="right", va="bottom",
            fontsize="small", color=(color_of or {}).get(arm, "0.25"),
        )  # fmt: skip


def _places(panel: Axes, heights: Sequence[float]) -> list[int]:
    """For each line, how many widths its number is shifted to the left to avoid overlaps."""
    low, high = panel.get_ylim()
    order = sorted(range(len(heights)), key=lambda index: -heights[index])
    places = [0] * len(heights)
    for above, index in pairwise(order):
        if heights[above] - heights[index] < NUMBER_HEIGHT * (high - low):
            places[index] = places[above] + 1
    return places


def _curves_and_lines(pooled: pd.DataFrame) -> tuple[list[str], list[str]]:
    """The arms drawn as curves, and those with a single validation, unless all have only one."""
    epochs = pooled.groupby("arm", sort=False)["epoch"].max()
    flat = list(epochs.index[(epochs == 1) & (epochs.max() > 1)])
    return [arm for arm in epochs.index if arm not in flat], flat


def draw_runs(panel: Axes, values: pd.DataFrame, style_of: dict[str, Style]) -> None:
    """A thin line for each run of the rows `arm`, `init`, `seed`, `epoch`, `value`."""
    for (_, init, _), run in values.groupby(RUN):
        panel.plot(
            run["epoch"], run["value"], color=style_of[init]["color"], linestyle=style_of[init]["linestyle"],
            linewidth=0.8, alpha=0.5,
        )  # fmt: skip


def draw_means(panel: Axes, means: pd.DataFrame, style_of: dict[str, Style], *, bars: bool) -> None:
    """A thick line for each init of a frame of `per_epoch`, with its band or bars."""
    groups = list(means.groupby("init"))
    for index, (init, curve) in enumerate(groups):
        seeds = count(curve["n"].max(), "seed")
        # Shifted by a few hundredths of an epoch, so that bars do not overlap.
        shift = 0.06 * (index - (len(groups) - 1) / 2) if bars else 0.0
        epochs, color = curve["epoch"] + shift, style_of[init]["color"]
        panel.plot(
            epochs, curve["mean"], label=wrap(f"{init} ({seeds})"), linewidth=2.2, markersize=5,
            **style_of[init],
        )  # fmt: skip
        low, high = curve["mean"] - curve["std"], curve["mean"] + curve["std"]
        if len(curve) > 1 and not bars:
            panel.fill_between(epochs, low, high, color=color, alpha=0.15, linewidth=0)
        else:  # a band needs two epochs
            panel.vlines(epochs, low, high, color=color, linewidth=1.2)


def draw_reference(panel: Axes, rows: pd.DataFrame, style_of: dict[str, Style], *, ddof: int) -> None:
    """Published results of an arm: hollow markers after each epoch, with a bar for the standard deviation.

    An init with only a result at the best checkpoint is a dotted horizontal line.
    """
    for init, reported in rows.groupby("init"):
        style, curve = style_of[init], reported[reported["epoch"] != BEST]
        if curve.empty:
            panel.axhline(
                reported["reference_mean"].item(), color=style["color"], linewidth=1.6, linestyle=(0, (1, 1)),
                label=wrap(f"{init}, published: best"),
            )  # fmt: skip
            continue
        epochs = curve["epoch"].astype(int)
        factors = [math.sqrt((n - 1) / n) if ddof == 0 and n > 1 else 1.0 for n in curve["reference_n"]]
        panel.errorbar(
            epochs, curve["reference_mean"], yerr=(curve["reference_std"] * factors).fillna(0.0),
            color=style["color"], marker=style["marker"], markerfacecolor="white", markersize=7,
            linewidth=0.8, linestyle=(0, (1, 1)), label=wrap(f"{init}, published"),
        )  # fmt: skip


def label_panel(panel: Axes, title: str, quantity: str) -> None:
    """Add title and axis labels to a panel with epochs."""
    panel.set_title(title)
    panel.set_xlabel("epoch")
    panel.set_ylabel(literal(quantity))
    panel.label_outer()
    whole_numbers(panel)
    finish(panel)


def share_scale(figure: Figure) -> None:
    """Set the same vertical range for all panels, which are in different subfigures."""
    limits = [panel.get_ylim() for panel in figure.axes]
    for panel in figure.axes:
        panel.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))


def _of(arm: str, frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame["arm"] == arm]
