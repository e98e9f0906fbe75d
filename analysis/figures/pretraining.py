"""Figures of scores after fine-tuning and of perplexity against tokens of pre-training."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from roberta_small.analysis.figures.curves import draw_lines
from roberta_small.analysis.figures.style import (
    family_of,
    finish,
    group_styles,
    legend_below,
    literal,
    paper_inches,
    wrap,
)
from roberta_small.analysis.read.long_table import GROUP
from roberta_small.analysis.study import NO_STUDY, Study, arm_of
from roberta_small.common.metrics import label
from roberta_small.common.tables import PERCENT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.ticker import Formatter


INCHES = (6.4, 4.4)
DECADE = 10
ASIDE = 1.03
"""Factor by which each arm is shifted to the right of the previous one, so that intervals do not overlap."""


def draw_pretraining(
    values: pd.DataFrame, spread: pd.DataFrame, metric: str, *, chance: float | None = None,
    subset: str = "test", study: Study = NO_STUDY,
) -> Figure:  # fmt: skip
    """`metric` on `subset` at the best checkpoint against tokens of pre-training, on a logarithmic axis.

    `values` is the frame of `scores`, `spread` that of `spread_over_seeds` with a column `tokens`, both for
    one point. Each arm is a line through the means over seeds, with t intervals. Arms and inits without
    pre-training (random init, bag of words) are horizontal lines, in the color of their arm if it has a
    curve, with a band for the interval over seeds or, for a single run, over test examples.
    """
    from matplotlib.figure import Figure

    study = study.resolved_for(spread)
    figure = Figure(figsize=_inches(), layout="constrained")
    panel = figure.subplots()
    trained, flat = spread[spread["tokens"] > 0], spread[spread["tokens"] == 0]
    style_of = group_styles(trained["arm"], study, arm_of, lambda group: arm_of(family_of(group)))
    for place, (arm, line) in enumerate(trained.sort_values("tokens").groupby("arm", sort=False)):
        line = line.assign(tokens=line["tokens"] * ASIDE**place)
        runs = values.merge(line[[*GROUP, "tokens"]], on=GROUP)
        color = style_of[arm]["color"]
        panel.plot(runs["tokens"], runs["value"], ".", color=color, alpha=0.35, markersize=5)
        panel.vlines(line["tokens"], line["t_low"], line["t_high"], color=color, linewidth=1.4)
        panel.plot(
            line["tokens"], line["mean"], label=wrap(f"{study.label(arm)}, pre-trained"), linewidth=2,
            markersize=6, **style_of[arm],
        )  # fmt: skip
    color_of = {arm: style["color"] for arm, style in style_of.items()}
    for row in flat.to_dict("records"):
        key, group = "t" if row["n"] > 1 else "examples", f"{row['arm']}/{row['init']}"
        color = color_of.setdefault(row["arm"], group_styles([group], study)[group]["color"])
        panel.axhspan(row[f"{key}_low"], row[f"{key}_high"], color=color, alpha=0.1, linewidth=0)
    draw_lines(panel, flat, metric, study, color_of=color_of)
    if chance is not None:
        panel.axhline(chance, color="0.4", linewidth=1, linestyle=":", label=f"chance ({chance:g})")
    _tokens_axis(panel, trained["tokens"])
    panel.set_ylabel(literal(f"{label(metric)} on {subset}"))
    finish(panel)
    title = f"mean over seeds, bar and band: {PERCENT} (t; a single run: its examples), dots: seeds"
    legend_below(figure, title)
    return figure


def draw_perplexity(spread: pd.DataFrame, *, study: Study = NO_STUDY) -> Figure:
    """Perplexity on held-out text against tokens of pre-training, both on logarithmic axes.

    `spread` has the columns arm, init, tokens and perplexity; each arm is a line. Rows without perplexity are
    excluded.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import ScalarFormatter

    study = study.resolved_for(spread)
    known = spread[(spread["tokens"] > 0) & spread["perplexity"].notna()]
    figure = Figure(figsize=_inches(), layout="constrained")
    panel = figure.subplots()
    style_of = group_styles(known["arm"], study, arm_of, lambda group: arm_of(family_of(group)))
    for arm, line in known.sort_values("tokens").groupby("arm", sort=False):
        panel.plot(
            line["tokens"],
            line["perplexity"],
            label=wrap(study.label(arm)),
            linewidth=2,
            markersize=6,
            **style_of[arm],
        )
    _tokens_axis(panel, known["tokens"])
    panel.set_yscale("log")
    _ticks(panel.yaxis, ScalarFormatter())
    panel.set_ylabel("perplexity of held-out text")
    finish(panel)
    legend_below(figure, "perplexity of masked and of left-to-right models is not comparable")
    return figure


def _inches() -> tuple[float, float]:
    """Width and height of the figure."""
    page = paper_inches()
    return INCHES if page is None else (page, 0.55 * page + 1.1)


def _tokens_axis(panel: Axes, tokens: pd.Series) -> None:
    from matplotlib.ticker import EngFormatter

    panel.set_xscale("log")
    low, high = tokens.min(), tokens.max()
    margin = 1.5 if high >= DECADE * low else DECADE**0.5  # at least a decade, so that there is a tick
    panel.set_xlim(low / margin, high * margin)
    _ticks(panel.xaxis, EngFormatter(sep=""))
    panel.set_xlabel("tokens of pre-training")


def _ticks(axis: Axis, formatter: Formatter) -> None:
    """Label 1, 2 and 5 of each decade of a logarithmic axis."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(formatter)
    axis.set_minor_formatter(NullFormatter())
