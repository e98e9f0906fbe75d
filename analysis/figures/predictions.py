"""Figures from prediction files: confusion matrices and reliability diagrams, a panel for each group."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from common.errors import count
from common.statistics import BINS, ECE, confusion, expected_calibration_error, reliability

from .style import COLORS, finish, legend_below, wrap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


COLUMNS = 3
PANEL_INCHES = 2.9
MOST_WRITTEN = 8
"""Maximum number of classes for which the cells of a confusion matrix contain text."""


def draw_confusion(predictions: pd.DataFrame) -> Figure:
    """Confusion matrices of the frame of `read_predictions`, one for each group.

    Colors and percentages are fractions of the true class, the number below is the mean count per run.
    """
    figure, panels = _panels(predictions, PANEL_INCHES)
    for panel, title, group in panels:
        counts = confusion(group)
        classes = list(counts)
        total = counts.sum(axis=1)
        fraction_CC = counts.div(total.where(total > 0), axis=0)
        image = panel.imshow(fraction_CC, cmap="cividis", vmin=0, vmax=1)
        if len(classes) <= MOST_WRITTEN:
            _write_cells(panel, fraction_CC, counts)
        names = [wrap(name, 12) for name in classes]
        panel.set_xticks(range(len(classes)), names, rotation=90 if len(classes) > 4 else 0)
        panel.set_yticks(range(len(classes)), names)
        panel.set_title(title, fontsize="medium")
        panel.set_xlabel("predicted")
        panel.set_ylabel("true")
    figure.colorbar(image, ax=figure.axes, label="fraction of the true class", shrink=0.8)
    return figure


def draw_reliability(predictions: pd.DataFrame) -> Figure:
    """Reliability diagrams of the frame of `read_predictions`, with the predictions of all seeds of a group.

    Bars at the bottom are the fraction of predictions in each bin. The title contains the mean over runs of
    the expected calibration error, in percentage points.
    """
    figure, panels = _panels(predictions, PANEL_INCHES)
    least = 1 / BINS * math.floor(BINS * predictions["confidence"].min())
    for panel, title, group in panels:
        table = reliability(group["confidence"], group["correct"])
        error = np.mean(
            [
                expected_calibration_error(run["confidence"], run["correct"])
                for _, run in group.groupby("seed")
            ]
        )
        panel.bar(
            (table.index + 0.5) / BINS,
            table["fraction"],
            width=0.9 / BINS,
            color="0.8",
            label="fraction of predictions",
        )
        panel.plot([0, 1], [0, 1], color="0.4", linewidth=1, linestyle=":", label="calibrated")
        panel.plot(
            table["confidence"], table["accuracy"], color=COLORS[0], marker="o", linewidth=1.8,
            label="accuracy", clip_on=False,  # a marker at 1 or 0 is shown whole
        )  # fmt: skip
        panel.set_title(f"{title}\n{ECE} {100 * error:.1f} points", fontsize="medium")
        panel.set_xlabel("confidence")
        panel.set_xlim(min(least, 0.9), 1)
        panel.set_ylim(0, 1)
        finish(panel)
    figure.axes[0].set_ylabel("accuracy")
    legend_below(figure, characters=int(10 * figure.get_figwidth()))
    return figure


def _panels(
    predictions: pd.DataFrame, inches: float
) -> tuple[Figure, Iterator[tuple[Axes, str, pd.DataFrame]]]:
    """A figure, and (panel, title, predictions) for each group."""
    from matplotlib.figure import Figure

    groups = list(predictions.groupby("group"))
    columns = min(COLUMNS, len(groups))
    rows = math.ceil(len(groups) / columns)
    figure = Figure(
        figsize=(max(4.2, inches * columns + 0.8), (inches - 0.3) * rows + 0.9), layout="constrained"
    )
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for panel in panels[len(groups) :]:
        panel.remove()
    return figure, (
        (panel, f"{wrap(name, 26)} ({count(group['seed'].nunique(), 'seed')})", group)
        for panel, (name, group) in zip(panels, groups, strict=False)
    )


def _write_cells(panel: Axes, fraction_CC: pd.DataFrame, counts: pd.DataFrame) -> None:
    size = 10 if len(fraction_CC) <= 3 else 7
    for row in range(len(fraction_CC)):
        for column in range(len(fraction_CC)):
            fraction = fraction_CC.iat[row, column]
            if fraction == fraction:
                text = f"{100 * fraction:.0f} %\n{counts.iat[row, column]:.4g}"
                panel.text(
                    column, row, text, ha="center", va="center", fontsize=size,
                    color="black" if fraction > 0.5 else "white",
                )  # fmt: skip
