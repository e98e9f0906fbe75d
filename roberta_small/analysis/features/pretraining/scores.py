"""Scores after fine-tuning against the number of pre-training tokens: the table and its figures."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pandas as pd

from roberta_small.analysis.features.best_settings.choice import chosen_settings
from roberta_small.analysis.features.curves import draw_lines
from roberta_small.analysis.features.pretraining.tokens import (
    METRIC,
    find_perplexities,
    find_tokens,
    read_tokens,
)
from roberta_small.analysis.features.seeds import spread_table
from roberta_small.analysis.presentation import MEANS, Computed, Feature
from roberta_small.analysis.query import ResolvedQuery, Selection
from roberta_small.analysis.read.long_table import GROUP
from roberta_small.analysis.read.runs import LoggedRun
from roberta_small.analysis.scoring import BEST, spread_over_seeds
from roberta_small.analysis.study import NO_STUDY, Study, arm_of, names_of
from roberta_small.analysis.style import (
    family_of,
    finish,
    group_styles,
    legend_below,
    literal,
    paper_inches,
    wrap,
)
from roberta_small.common.errors import UserError
from roberta_small.common.metrics import ACCURACIES, label
from roberta_small.common.run import split_arm
from roberta_small.common.tables import PERCENT, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.ticker import Formatter

logger = logging.getLogger(__name__)

PERPLEXITY = (
    "perplexity: on the held-out text of pre-training, as logged. That of masked tokens and that of "
    "next tokens are not comparable."
)
INCHES = (6.4, 4.4)
DECADE = 10
ASIDE = 1.03
"""Factor by which each arm is shifted to the right of the previous one, so that intervals do not overlap."""


def pretraining_table(spread: pd.DataFrame, query: ResolvedQuery, *, test_size: int | None) -> Table:
    """The frame of `spread_over_seeds` with `tokens` and `perplexity` (NaN if unknown), by arm and tokens.

    If arms lack their setting, a column `group` has the whole name.
    """
    spread = spread.sort_values(["arm", "tokens", "init"], ignore_index=True)
    groups = names_of(spread)
    table = spread_table(spread, query, test_size=test_size)
    shown = table.shown.copy()
    shown.insert(2, "tokens", [f"{tokens:,}" for tokens in spread["tokens"]])
    known = spread["perplexity"].notna()
    if known.any():
        shown.insert(3, "perplexity", spread["perplexity"].map("{:.4g}".format).where(known, "–"))
    return replace(
        table,
        name="pretraining",
        caption=f"{query.reported.capitalize()} {label(query.metric)} over seeds, by tokens of pre-training",
        notes=(
            "tokens: from --tokens, otherwise updates times batch size, up to the update of the "
            "checkpoint (for the checkpoint with the lowest validation loss: of the whole "
            "pre-training); 0: no pre-training.",
            *([PERPLEXITY] if known.any() else []),
            *table.notes,
        ),
        shown=shown,
        groups=tuple(groups),
        means=tuple(mean._replace(group=group) for mean, group in zip(table.means, groups, strict=True)),
    )


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


def _warn_of_recipes(runs: Sequence[LoggedRun], tokens: dict[tuple[str, str], int]) -> None:
    """Warn where runs of one method used different recipes, which also changes scores."""
    recipes: dict[str, set[str]] = {}
    for run in runs:
        if (run.arm, run.init) in tokens and run.recipe:
            recipes.setdefault(run.arm, set()).add(run.recipe)
    for arm, names in recipes.items():
        if len(names) > 1:
            logger.warning("%s: trained with several recipes (%s)", arm, ", ".join(sorted(names)))


def _by_tokens(selection: Selection) -> tuple[pd.DataFrame, pd.DataFrame, int | None]:
    """The scores at the best checkpoints, their spread with `tokens` and `perplexity`, and the test size."""
    query, runs = selection.query, selection.runs
    tokens = find_tokens(runs, read_tokens(query.tokens) if query.tokens else None)
    _warn_of_recipes(runs, tokens)
    values = selection.values[selection.values["at"] == BEST]
    if query.best_settings:
        values = values.merge(chosen_settings(selection).query("chosen")[GROUP], on=GROUP)
    size = selection.test_size if query.metric in ACCURACIES else query.test_size
    perplexities = find_perplexities(run for run in runs if tokens.get((run.arm, run.init)))
    counts = pd.DataFrame(
        [(*group, number, perplexities.get(group, math.nan)) for group, number in tokens.items()],
        columns=[*GROUP, "tokens", "perplexity"],
    )
    data = spread_over_seeds(values, query.metric, ddof=query.ddof, test_size=size).merge(counts, on=GROUP)
    if not (data["tokens"] > 0).any():
        raise UserError(
            f"no pre-trained run has a finite {query.metric} on {query.reported}; check the train.log of "
            "the runs"
        )
    if query.best_settings:
        values, data = (
            frame.assign(group=names_of(frame[GROUP]), arm=[split_arm(arm)[0] for arm in frame["arm"]])
            for frame in (values, data)
        )
    return values, data, size


def _compute(selection: Selection) -> Computed:
    values, data, size = _by_tokens(selection)
    return Computed([pretraining_table(data, selection.query, test_size=size)], values)


def _draw(selection: Selection) -> Iterator[tuple[str, Figure]]:
    query = selection.query
    values, data, _ = _by_tokens(selection)
    figure = draw_pretraining(
        values, data, query.metric, chance=query.chance.get(""), subset=query.reported, study=query.study
    )
    yield f"{query.metric}_by_tokens", figure
    if data["perplexity"].notna().any():
        yield f"{METRIC}_by_tokens", draw_perplexity(data, study=query.study)


PRETRAINING = Feature(
    "scores against the number of pre-training tokens",
    MEANS | {"test_size", "tokens", "best_settings"},
    ("pretraining",),
    _compute,
    _draw,
    frozenset({"test_size", "tokens", "best_settings", "chance"}),
)
