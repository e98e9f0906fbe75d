"""Shared by all figures: styles of groups, legends below the panels, reproducible files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.files import atomic_open

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure


FORMATS = ("png", "svg", "pdf")
# The colors of Okabe and Ito, which color-blind readers can distinguish (https://jfly.uni-koeln.de/color/),
# without yellow, which is too faint on white. Line styles and markers differ too, for print without color.
# The two blues and the two oranges are far apart in this order: few figures have more than five groups.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
DASHES = ((), (6, 2), (6, 2, 1, 2), (1, 1.5), (9, 2, 3, 2), (3, 1.5), (6, 2, 1, 2, 1, 2))
"""Dash patterns: on, off, ... in line widths; empty for a solid line."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LEGEND_CHARACTERS = 96
"""Width of a legend row below two panels, in characters, including the keys."""
KEY_CHARACTERS = 9
NAME_CHARACTERS = 60

Style = dict[str, Any]


def styles(names: Iterable[str]) -> dict[str, Style]:
    """Color, line style and marker for each name, in the order of the names."""
    return {name: _style(index) for index, name in enumerate(names)}


def _style(index: int) -> Style:
    cycle = index // len(COLORS)  # repeated colors have other line styles and markers
    dashes = DASHES[(index + cycle) % len(DASHES)]
    return {
        "color": COLORS[index % len(COLORS)],
        "linestyle": (0, dashes) if dashes else "-",
        "marker": MARKERS[(index + cycle) % len(MARKERS)],
    }


def literal(text: str) -> str:
    """Escape text for matplotlib, which parses text between dollar signs as mathematics."""
    return text.replace("$", r"\$")


def wrap(name: str, width: int = NAME_CHARACTERS) -> str:
    """Break a name into lines of at most `width` characters, if possible after -, _, /, . and spaces."""
    lines = [""]
    words = rf"[^-_/. ]{{0,{width - 1}}}[-_/. ]|[^-_/. ]{{1,{width}}}"
    for word in re.findall(words, name):
        if len(lines[-1]) + len(word) > width:
            lines.append("")
        lines[-1] += word
    return literal("\n".join(line for line in lines if line))


def finish(panel: Axes, grid: str = "y") -> None:
    """Add a light grid and remove the top and right spines."""
    panel.grid(axis=grid, color="0.9")
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)


def whole_numbers(panel: Axes) -> None:
    """Place the ticks of the horizontal axis at integers."""
    from matplotlib.ticker import MaxNLocator

    panel.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def legend_below(figure: Figure | SubFigure, title: str = "", characters: int = LEGEND_CHARACTERS) -> None:
    """Add a legend below the panels, with each label once and as many columns as fit."""
    entries: Mapping[str, Any] = {
        text: line
        for panel in figure.axes
        for line, text in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    if not entries:
        return
    longest = max(len(line) for text in entries for line in text.split("\n"))
    columns = max(1, min(3, len(entries), characters // (longest + KEY_CHARACTERS)))
    figure.legend(
        entries.values(), entries.keys(), loc="outside lower center", ncols=columns, handlelength=4,
        frameon=False, title=title,
    )  # fmt: skip


def save_figure(figure: Figure, folder: str | os.PathLike[str], name: str, fmt: str = "png") -> Path:
    """Write `folder/name.fmt` atomically; the bytes are reproducible."""
    from matplotlib import rc_context

    path = Path(folder) / f"{name}.{fmt}"
    date = {"svg": "Date", "pdf": "CreationDate"}.get(fmt)
    with rc_context({"svg.hashsalt": name}), atomic_open(path, "wb") as stream:
        figure.savefig(stream, format=fmt, dpi=200, metadata={date: None} if date else None)
    return path
