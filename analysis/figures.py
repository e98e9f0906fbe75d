"""Learning curves of all runs: validation beside test, one colour for each init."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from common.files import atomic_open

from .long_table import RUN
from .metrics import label
from .runs import count
from .stats import at_validations, per_epoch

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

FORMATS = ("png", "svg", "pdf")
SUBSETS = ("valid", "test")
# Okabe and Ito's colours, told apart by colour-blind readers (https://jfly.uni-koeln.de/color/); line
# styles and markers differ as well, for print without colour. Yellow is left out: too faint on white.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
LINE_STYLES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
PANEL_INCHES = (4.4, 3.8)


def draw_curves(
    table: pd.DataFrame, metric: str = "accuracy", *, ddof: int = 1, chance: float | None = None
) -> Figure:
    """`metric` after each epoch: a row of panels for each arm, valid on the left and test on the right.

    Thin lines are seeds, the thick one is their mean, the band one standard deviation (`ddof`) to each
    side. All panels have the same scale. Raises `UserError` where no run has `metric` on valid or on test.
    """
    from matplotlib.figure import Figure  # here, so that `import analysis` stays quick

    values = {subset: at_validations(table, subset, metric) for subset in SUBSETS}
    means = {subset: per_epoch(table, metric, subset=subset, ddof=ddof) for subset in SUBSETS}
    pooled = pd.concat(values.values())
    arms = list(dict.fromkeys(pooled["arm"]))
    styles = {init: _style(index) for index, init in enumerate(sorted(set(pooled["init"])))}

    width, height = PANEL_INCHES
    figure = Figure(figsize=(width * len(SUBSETS), height * len(arms)), layout="constrained")
    rows = figure.subfigures(len(arms), 1, squeeze=False)[:, 0]
    for row, arm in zip(rows, arms, strict=True):
        panels = row.subplots(1, len(SUBSETS))
        for panel, subset in zip(panels, SUBSETS, strict=True):
            _draw_seeds(panel, _of(arm, values[subset]), styles)
            _draw_means(panel, _of(arm, means[subset]), styles)
            if chance is not None:
                panel.axhline(chance, color="0.4", linewidth=1, linestyle=":", label=f"chance ({chance:g})")
            _finish(panel, f"{arm}: {subset}", label(metric))
        _draw_legend(row, ddof)
    _share_scale(figure)
    return figure


def save_figure(figure: Figure, folder: str | os.PathLike[str], name: str, fmt: str = "png") -> Path:
    """Write `folder/name.fmt` atomically; the same figure gives the same bytes each time."""
    from matplotlib import rc_context

    path = Path(folder) / f"{name}.{fmt}"
    date = {"svg": "Date", "pdf": "CreationDate"}.get(fmt)
    with rc_context({"svg.hashsalt": name}), atomic_open(path, "wb") as stream:
        figure.savefig(stream, format=fmt, dpi=200, metadata={date: None} if date else None)
    return path


def _draw_seeds(panel: Axes, values: pd.DataFrame, styles: dict[str, dict]) -> None:
    for (_, init, _), run in values.groupby(RUN):
        panel.plot(
            run["epoch"], run["value"], color=styles[init]["color"], linestyle=styles[init]["linestyle"],
            linewidth=0.8, alpha=0.5,
        )  # fmt: skip


def _draw_means(panel: Axes, means: pd.DataFrame, styles: dict[str, dict]) -> None:
    for init, curve in means.groupby("init"):
        seeds = count(curve["n"].max(), "seed")
        panel.plot(
            curve["epoch"], curve["mean"], label=f"{init} ({seeds})", linewidth=2.2, markersize=5,
            **styles[init],
        )  # fmt: skip
        low, high = curve["mean"] - curve["std"], curve["mean"] + curve["std"]
        color = styles[init]["color"]
        if len(curve) > 1:
            panel.fill_between(curve["epoch"], low, high, color=color, alpha=0.15, linewidth=0)
        else:  # a band needs two epochs
            panel.vlines(curve["epoch"], low, high, color=color, linewidth=1.2)


def _finish(panel: Axes, title: str, quantity: str) -> None:
    from matplotlib.ticker import MaxNLocator

    panel.set_title(title)
    panel.set_xlabel("epoch")
    panel.set_ylabel(quantity)
    panel.label_outer()
    panel.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    panel.grid(axis="y", color="0.9")
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)


def _draw_legend(row: SubFigure, ddof: int) -> None:
    """Below the panels, so that it never covers a curve; each entry once."""
    entries = {
        text: line
        for panel in row.axes
        for line, text in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    row.legend(
        entries.values(), entries.keys(), loc="outside lower center", ncols=3, handlelength=4, frameon=False,
        title=f"thick: mean over seeds, band: ± std (ddof {ddof}), thin: one seed",
    )  # fmt: skip


def _share_scale(figure: Figure) -> None:
    """The same vertical range for all panels, which lie in different subfigures."""
    limits = [panel.get_ylim() for panel in figure.axes]
    for panel in figure.axes:
        panel.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))


def _style(index: int) -> dict[str, str]:
    return {
        "color": COLORS[index % len(COLORS)],
        "linestyle": LINE_STYLES[index % len(LINE_STYLES)],
        "marker": MARKERS[index % len(MARKERS)],
    }


def _of(arm: str, frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame["arm"] == arm]
