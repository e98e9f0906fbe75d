"""Medians of all comparisons as horizontal bars, a panel for each piece of work."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.files import atomic_open

from .report import duration

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's blue and orange, which differ in brightness too (https://jfly.uni-koeln.de/color/).
OURS, OTHERS = "#0072B2", "#E69F00"
BAR_INCHES, TITLE_INCHES, WIDTH_INCHES = 0.3, 0.75, 9.0


def draw(comparisons: list[dict[str, Any]]) -> Figure:
    """One panel for each comparison: shorter is faster; whiskers are quartiles of single times."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    heights = [TITLE_INCHES + BAR_INCHES * len(timed(result)) for result in comparisons]
    figure = Figure(figsize=(WIDTH_INCHES, sum(heights) + 0.5), layout="constrained")
    panels = figure.subplots(len(comparisons), 1, squeeze=False, height_ratios=heights)[:, 0]
    for panel, result in zip(panels, comparisons, strict=True):
        _draw_panel(panel, result)
    figure.legend(
        handles=[Patch(color=OURS, label="this project"), Patch(color=OTHERS, label="others")],
        loc="outside lower center", ncols=2, frameon=False, title_fontsize=8, fontsize=8,
        title="whiskers: quartiles of single times; in brackets: times as fast as the first of the panel",
    )  # fmt: skip
    return figure


def save(document: dict[str, Any], folder: Path) -> Path | None:
    """Write benchmarks.png; None where nothing was compared."""
    comparisons = [result for result in document["benchmarks"] if "contenders" in result and timed(result)]
    if not comparisons:
        return None
    path = folder / "benchmarks.png"
    with atomic_open(path, "wb") as stream:
        draw(comparisons).savefig(stream, format="png", dpi=160)
    return path


def timed(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The contenders that ran."""
    return [row for row in result["contenders"] if "median" in row]


def _draw_panel(panel: Axes, result: dict[str, Any]) -> None:
    rows = timed(result)
    positions = range(len(rows))
    colors = [OURS if row["ours"] else OTHERS for row in rows]
    panel.barh(positions, [row["median"] for row in rows], color=colors, height=0.7)
    for position, row in zip(positions, rows, strict=True):
        if row["times"] > 1:
            panel.plot([row["q1"], row["q3"]], [position, position], color="0.3", linewidth=1, marker="|")
        ratio = f"  ({row['ratio']:.2f} times)" if position and "ratio" in row else ""
        panel.annotate(
            f"{duration(row['median'])}{ratio}", (max(row["median"], row["q3"]), position), xytext=(6, 0),
            textcoords="offset points", va="center", fontsize=8,
        )  # fmt: skip
    panel.set_yticks(positions, [row["contender"] for row in rows])
    panel.invert_yaxis()
    panel.set_title(result["title"], loc="left", fontsize=10)
    panel.set_xlim(0, 1.28 * max(max(row["median"], row["q3"]) for row in rows))
    panel.set_xlabel("seconds", fontsize=8)
    panel.tick_params(labelsize=8)
    panel.spines[["top", "right"]].set_visible(False)
