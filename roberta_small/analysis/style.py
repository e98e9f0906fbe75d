"""Shared by all figures: styles of groups, sizes, legends below the panels, reproducible files."""

from __future__ import annotations

import math
import os
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from roberta_small.analysis.query import WIDTHS, Study, arm_of
from roberta_small.common.files import atomic_open
from roberta_small.common.metrics import cut
from roberta_small.common.run import split_arm

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure
    from matplotlib.typing import RcKeyType


# The colors of Okabe and Ito, which color-blind readers can distinguish (https://jfly.uni-koeln.de/color/),
# without yellow, which is too faint on white, then three of Tol (https://personal.sron.nl/~pault/). Line
# styles and markers differ too, for print without color. Similar colors are far apart in this order: few
# figures have more than five groups.
COLORS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000",
    "#E69F00", "#56B4E9", "#882255", "#8A8A2E", "#332288",
)  # fmt: skip
DASHES = ((), (6, 2), (6, 2, 1, 2), (1, 1.5), (9, 2, 3, 2), (3, 1.5), (6, 2, 1, 2, 1, 2))
"""Dash patterns: on, off, ... in line widths; empty for a solid line."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
KEY_CHARACTERS = 9
NAME_CHARACTERS = 60
LEGEND_ROWS = 4
"""Rows of a legend for which the sizes of figures have room."""
LEGEND_LINE = 1.5
"""Height of a row of a legend, as a multiple of the font size."""
CHARACTER_EM = 0.65
"""Width of a character of a legend, as a fraction of the font size; generous, so that rows fit."""
SMALLEST_PANEL_INCHES = 2.0
PAPER_FONT_POINTS = 8
PAPER: dict[RcKeyType, float] = {
    "font.size": PAPER_FONT_POINTS,
    "axes.labelsize": PAPER_FONT_POINTS,
    "axes.titlesize": PAPER_FONT_POINTS,
    "figure.titlesize": PAPER_FONT_POINTS,
    "legend.fontsize": PAPER_FONT_POINTS - 1,
    "legend.title_fontsize": PAPER_FONT_POINTS - 1,
    "xtick.labelsize": PAPER_FONT_POINTS - 1,
    "ytick.labelsize": PAPER_FONT_POINTS - 1,
    "axes.linewidth": 0.6,
    "grid.linewidth": 0.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
}
PAPER_LINES = 0.7
"""Factor of line widths and marker sizes in a figure for a paper."""
_width: ContextVar[str | None] = ContextVar("width", default=None)

Style = dict[str, Any]


@contextmanager
def paper(width: str | None) -> Iterator[None]:
    """Figures that are drawn within the block have this width of `WIDTHS`, with fonts of 7 and 8 points.

    None: the sizes of figures on a screen.
    """
    from matplotlib import rc_context

    token = _width.set(width)
    try:
        with rc_context(PAPER if width else {}):
            yield
    finally:
        _width.reset(token)


def paper_inches() -> float | None:
    """The width of figures for a paper in inches; None for a screen."""
    width = _width.get()
    return None if width is None else WIDTHS[width]


def grid(panels: int, inches: tuple[float, float]) -> tuple[int, tuple[float, float]]:
    """(number of columns, (width, height) of a figure in inches) for panels of this width and height.

    On a screen, all panels are in one row. In a paper, they have the width of the figure together, in as many
    rows as they need, and keep their shape.
    """
    width, height = inches
    page = paper_inches()
    if page is None:
        return panels, (panels * width, height)
    columns = max(1, min(panels, int(page / SMALLEST_PANEL_INCHES)))
    columns = math.ceil(panels / math.ceil(panels / columns))
    # Labels and legend have the same size in small panels, so a panel needs relatively more height.
    return columns, (page, math.ceil(panels / columns) * (page / columns * height / width * 0.8 + 0.45))


def styles(names: Iterable[str]) -> dict[str, Style]:
    """Color, line style and marker for each name, in the order of the names."""
    return {name: _style(index) for index, name in enumerate(names)}


def group_styles(names: Iterable[str], study: Study, *keys: Callable[[str], str]) -> dict[str, Style]:
    """The style of each name, by the place of its group among all that were read, selected or not.

    A name that is no group, such as an arm, has the style of the first group that one of the `keys` maps to
    it. Other names follow in alphabetical order.
    """
    place: dict[str, int] = {}
    for key in keys:
        for index, group in enumerate(study.known):
            place.setdefault(key(group), index)
    place |= {group: index for index, group in enumerate(study.known)}
    names = list(dict.fromkeys(names))
    others = sorted((name for name in names if name not in place), key=lambda name: name.rpartition("/"))
    place |= {name: len(study.known) + index for index, name in enumerate(others)}
    return {name: _style(place[name]) for name in names}


def family_of(group: str) -> str:
    """A group without its setting: `fairseq/random` for `fairseq,lr=1e-4/random`."""
    return f"{split_arm(arm_of(group))[0]}/{group.rpartition('/')[2]}"


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


def finish(panel: Axes, grid: Literal["both", "x", "y"] = "y", metric: str = "") -> None:
    """Add a light grid, remove the top and right spines, and end the axis of `metric` close to its limits."""
    low, high = panel.get_xlim() if grid == "x" else panel.get_ylim()
    margin = 0.02 * (high - low)  # for markers at a limit
    least, most = cut(low + margin, high - margin, metric)
    if (least, most) != (low + margin, high - margin):
        (panel.set_xlim if grid == "x" else panel.set_ylim)(least - margin, most + margin)
    panel.grid(axis=grid, color="0.9")
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)


def whole_numbers(panel: Axes) -> None:
    """Place the ticks of the horizontal axis at integers."""
    from matplotlib.ticker import MaxNLocator

    panel.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def legend_below(figure: Figure | SubFigure, title: str = "") -> None:
    """Add a legend below the panels, with each label once and as many columns as fit.

    A figure becomes higher for a legend of more than `LEGEND_ROWS` rows, so that its panels keep their shape.
    """
    from matplotlib import rcParams

    characters = int(72 * figure.bbox.width / figure.dpi / (CHARACTER_EM * rcParams["font.size"]))
    entries: Mapping[str, Any] = {
        "\n".join(textwrap.fill(part, characters - KEY_CHARACTERS) for part in text.split("\n")): line
        for panel in figure.axes
        for line, text in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    if not entries:
        return
    longest = max(len(line) for text in entries for line in text.split("\n"))
    columns = max(1, min(3, len(entries), characters // (longest + KEY_CHARACTERS)))
    figure.legend(
        entries.values(), entries.keys(), loc="outside lower center", ncols=columns, handlelength=4,
        frameon=False, title=textwrap.fill(title, characters),
    )  # fmt: skip
    lines = sum(text.count("\n") + 1 for text in entries)
    rows = math.ceil(lines / columns) - LEGEND_ROWS
    root = figure.get_figure(root=True)
    root.set_figheight(root.get_figheight() + max(0, rows) * LEGEND_LINE * rcParams["font.size"] / 72)


def save_figure(figure: Figure, folder: str | os.PathLike[str], name: str, fmt: str = "png") -> Path:
    """Write `folder/name.fmt` atomically; the bytes are reproducible."""
    from matplotlib import rc_context

    path = Path(folder) / f"{name}.{fmt}"
    date = {"svg": "Date", "pdf": "CreationDate"}.get(fmt)
    # Type 42: journals refuse the Type 3 fonts that are the default.
    with rc_context({"svg.hashsalt": name, "pdf.fonttype": 42}), atomic_open(path, "wb") as stream:
        figure.savefig(stream, format=fmt, dpi=200, metadata={date: None} if date else None)
    return path


def write_figures(
    figures: Iterable[tuple[str, Figure]],
    folder: str | os.PathLike[str],
    formats: Iterable[str] = ("png",),
    width: str | None = None,
) -> Iterator[Path]:
    """Write (name, figure) pairs in each format; they are drawn for this width of `WIDTHS`.

    Figures for a paper have thinner lines and smaller markers.
    """
    from matplotlib.collections import LineCollection
    from matplotlib.lines import Line2D

    with paper(width):
        for name, figure in figures:
            if width:
                for line in figure.findobj(Line2D):
                    line.set_markersize(PAPER_LINES * line.get_markersize())
                    line.set_linewidth(PAPER_LINES * line.get_linewidth())
                for lines in figure.findobj(LineCollection):
                    lines.set_linewidth((PAPER_LINES * np.asarray(lines.get_linewidth())).tolist())
            for fmt in formats:
                yield save_figure(figure, folder, name, fmt)
