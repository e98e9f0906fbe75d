"""What all figures share: styles of groups, legends below the panels, the same bytes each time."""

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
# Okabe and Ito's colours, told apart by colour-blind readers (https://jfly.uni-koeln.de/color/); line
# styles and markers differ as well, for print without colour. Yellow is left out: too faint on white.
# The two blues and the two oranges stand as far apart as they can: few figures have more than five groups.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
DASHES = ((), (6, 2), (6, 2, 1, 2), (1, 1.5), (9, 2, 3, 2), (3, 1.5), (6, 2, 1, 2, 1, 2))
"""Of lines: on, off, ... in line widths; none for a solid one."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LEGEND_CHARACTERS = 96
"""What fits below two panels: entries of a row, with their keys."""
KEY_CHARACTERS = 9
NAME_CHARACTERS = 60

Style = dict[str, Any]


def styles(names: Iterable[str]) -> dict[str, Style]:
    """Colour, line style and marker for each name, in their order."""
    return {name: _style(index) for index, name in enumerate(names)}


def _style(index: int) -> Style:
    again = index // len(COLORS)  # where colours come again, they have other lines and markers
    dashes = DASHES[(index + again) % len(DASHES)]
    return {
        "color": COLORS[index % len(COLORS)],
        "linestyle": (0, dashes) if dashes else "-",
        "marker": MARKERS[(index + again) % len(MARKERS)],
    }


def literal(text: str) -> str:
    """Text for matplotlib, which would read two dollar signs as mathematics."""
    return text.replace("$", r"\$")


def wrap(name: str, width: int = NAME_CHARACTERS) -> str:
    """A name in lines of at most `width` characters, broken after -, _, /, . and spaces where it can be."""
    lines = [""]
    pieces = rf"[^-_/. ]{{0,{width - 1}}}[-_/. ]|[^-_/. ]{{1,{width}}}"
    for piece in re.findall(pieces, name):
        if len(lines[-1]) + len(piece) > width:
            lines.append("")
        lines[-1] += piece
    return literal("\n".join(line for line in lines if line))


def finish(panel: Axes, grid: str = "y") -> None:
    """Only the lines that help to read a value."""
    panel.grid(axis=grid, color="0.9")
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)


def whole_numbers(panel: Axes) -> None:
    """Ticks of the horizontal axis at whole numbers."""
    from matplotlib.ticker import MaxNLocator

    panel.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def legend_below(figure: Figure | SubFigure, title: str = "", characters: int = LEGEND_CHARACTERS) -> None:
    """Below the panels, so that it never covers a curve; each entry once, as many columns as fit."""
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
    """Write `folder/name.fmt` atomically; the same figure gives the same bytes each time."""
    from matplotlib import rc_context

    path = Path(folder) / f"{name}.{fmt}"
    date = {"svg": "Date", "pdf": "CreationDate"}.get(fmt)
    with rc_context({"svg.hashsalt": name}), atomic_open(path, "wb") as stream:
        figure.savefig(stream, format=fmt, dpi=200, metadata={date: None} if date else None)
    return path
