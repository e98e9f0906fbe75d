"""Figures of settings: learning curves at the chosen settings, and the score against the value of a flag."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from roberta_small.analysis.features.best_settings import (
    AS_RECIPE,
    FAMILY,
    chosen_settings,
    number_of,
    number_tried,
    varied_flags,
)
from roberta_small.analysis.features.curves import MOST_BANDS, draw_lines, draw_means, draw_runs, label_panel
from roberta_small.analysis.query import Study
from roberta_small.analysis.read.long_table import GROUP
from roberta_small.analysis.scoring import at_validations, per_epoch
from roberta_small.analysis.selection import Selection
from roberta_small.analysis.style import family_of, finish, grid, group_styles, legend_below, literal, wrap
from roberta_small.common.metrics import label
from roberta_small.common.statistics import t_interval
from roberta_small.common.tables import PERCENT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


PANEL_INCHES = (4.4, 3.8)
DECADE = 10
"""Ratio of the largest to the smallest value from which the axis is logarithmic."""
APART = 0.012
"""Horizontal distance between inits, as a fraction of the axis, so that their bars do not overlap."""


def draw_best_settings(selection: Selection, chosen: pd.DataFrame) -> Figure:
    """The reported metric after each epoch: the unchanged recipe, and the chosen setting of each init.

    One row of two panels for each family with more than one setting (only the second panel if there are no
    runs of the recipe). `chosen` is the frame of `choose_settings`. Methods with a single validation are
    horizontal lines. Raises `UserError` as `at_validations`.
    """
    from matplotlib.figure import Figure

    study, table = selection.study, selection.table
    metric, reported, ddof, chance = study.metric, study.split, study.query.ddof, study.query.chance
    values = at_validations(table, reported, metric)
    means = per_epoch(table, metric, subset=reported, ddof=ddof)
    tried = chosen[number_tried(chosen) > 1]
    # Baselines with a single setting and a single validation are lines.
    epochs = values.groupby(GROUP)["epoch"].max().reset_index()
    alone = chosen.loc[number_tried(chosen) == 1, GROUP]
    flat = alone.merge(epochs.loc[epochs["epoch"] == 1, GROUP], on=GROUP)
    families = list(dict.fromkeys(tried["family"]))
    columns, (width, height) = grid(2, PANEL_INCHES)
    figure = Figure(figsize=(width, height * len(families)), layout="constrained")
    rows = figure.subfigures(len(families), 1, squeeze=False)[:, 0]
    for row, family in zip(rows, families, strict=True):
        of_family = tried[tried["family"] == family]
        shown = {
            AS_RECIPE: of_family[of_family["setting"] == ""],
            "each init at its best setting": of_family[of_family["chosen"]],
        }
        shown = {title: settings for title, settings in shown.items() if len(settings)}
        columns = min(columns, len(shown))
        panels = row.subplots(len(shown) // columns, columns, sharey=True, squeeze=False).ravel()
        for panel, (title, settings) in zip(panels, shown.items(), strict=True):
            last = panel is panels[-1]  # the curves of all panels come first in the legend
            _draw_curves(panel, study.sorted(settings), values, means, study)
            draw_lines(panel, means.merge(flat, on=GROUP), metric, study, named=last)
            if chance is not None:
                name = f"chance ({chance:g})" if last else None
                panel.axhline(chance, color="0.4", linewidth=1, linestyle=":", label=name)
            title = wrap(f"{study.label(family)}: {title}", 40)
            label_panel(panel, title, f"{label(metric)} on {reported}", metric)
        legend_below(row, f"thick: mean over seeds, band or bar: ± std (ddof {ddof}), thin: one seed")
    return figure


def draw_flag(selection: Selection, chosen: pd.DataFrame, flag: str) -> Figure:
    """The score at the best checkpoint against the value of a flag: left where it selects, right reported.

    Each line is a family and init with all other flags as in its chosen setting, which has a ring. Bars are t
    intervals of the mean over seeds, faint dots are seeds. A family and init with a single setting is a point
    at its value of the flag, or a horizontal line without a value. Settings with an unknown value (no
    manifest) are excluded. Values that are not numbers are in alphabetical order.
    """
    from matplotlib.figure import Figure

    study = selection.study
    metric, by, subset = study.metric, study.by, study.choose_on
    alone = chosen[number_tried(chosen) == 1]
    has_value = np.array([flag in values for values in alone["values"]], dtype=bool)
    groups = _lines(chosen, flag)
    for index, row in alone[has_value].iterrows():  # single settings, of which none is marked as chosen
        point = alone.loc[[index]].assign(value=row["values"][flag], chosen=False)
        groups.append((f"{row['family']}/{row['init']}", point))
    places, names = _places(pd.concat([line["value"] for _, line in groups]))
    style_of = group_styles([name for name, _ in groups], study, family_of)
    columns, size = grid(2, PANEL_INCHES)
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(2 // columns, columns, sharey=by == metric, squeeze=False).ravel()
    titles = {"valid": f"{label(by)} on {subset}, which chooses", "test": f"{label(metric)} on {study.split}"}
    for panel, (column, title) in zip(panels, titles.items(), strict=True):
        for index, (name, line) in enumerate(groups):
            shift = APART * (index - (len(groups) - 1) / 2)
            # A line of several groups has the label of their method.
            family, _, init = name.rpartition("/")
            several, one = f"{study.label(family)}/{init}", "/".join(line[GROUP].iloc[0])
            shown = several if len(line) > 1 else study.label(one)
            line = line.assign(x=[places[value] + shift for value in line["value"]]).sort_values("x")
            runs = selection.best.merge(line[[*GROUP, "x"]], on=GROUP).dropna(subset=column)
            style, mean = style_of[name], f"{column}_mean"
            panel.plot(runs["x"], runs[column], ".", color=style["color"], alpha=0.35, markersize=5)
            panel.plot(line["x"], line[mean], label=wrap(shown), linewidth=2, markersize=6, **style)
            for x, values in runs.groupby("x")[column]:
                low, high = t_interval(values.to_numpy(dtype=float))
                panel.vlines(x, low, high, color=style["color"], linewidth=1.4)
            ringed = line[line["chosen"]]
            panel.plot(
                ringed["x"], ringed[mean], linestyle="none", marker="o", markersize=14,
                markerfacecolor="none", color=style["color"],
            )  # fmt: skip
        means = alone[~has_value].assign(mean=alone[f"{column}_mean"])
        draw_lines(panel, means, by if column == "valid" else metric, study)
        panel.set_xticks(sorted(names), [names[place] for place in sorted(names)])
        panel.set_xlim(-0.08, 1.08)
        panel.set_xlabel(literal(flag))
        panel.set_title(literal(title), fontsize="medium")
        finish(panel, metric=by if column == "valid" else metric)
    panels[0].set_ylabel(literal(label(by)))
    panels[1].plot(
        [], [], linestyle="none", marker="o", markersize=14, markerfacecolor="none", color="0.3",
        label=f"chosen on {subset}",
    )  # fmt: skip
    legend_below(figure, f"mean over seeds, bar: {PERCENT} (t), dots: seeds")
    return figure


def _lines(chosen: pd.DataFrame, flag: str) -> list[tuple[str, pd.DataFrame]]:
    """(name, settings) of each family and init with at least two values of the flag, which is in `value`.

    The settings differ from the chosen one in this flag alone.
    """
    found = []
    for (family, init), settings in chosen.groupby(FAMILY, sort=False):
        best = settings.loc[settings["chosen"], "values"].item()
        line = settings[
            [flag in own and {**own, flag: ""} == {**best, flag: ""} for own in settings["values"]]
        ]
        if len(line) > 1:
            found.append((f"{family}/{init}", line.assign(value=[own[flag] for own in line["values"]])))
    return found


def _draw_curves(
    panel: Axes, settings: pd.DataFrame, values: pd.DataFrame, means: pd.DataFrame, study: Study
) -> None:
    """The curves of some settings; the legend contains the label of the group, or init and setting.

    All settings of a method and init have the color of the recipe.
    """
    groups = [f"{arm}/{init}" for arm, init in settings[GROUP].itertuples(index=False)]
    style_of = group_styles(map(family_of, groups), study, family_of)
    names, style = [], {}
    for row, group in zip(settings.itertuples(index=False), groups, strict=True):
        plain = f"{row.init}, {row.setting}" if row.setting else row.init
        names.append(plain if study.label(group) == group else study.label(group))
        style[names[-1]] = style_of[family_of(group)]
    named = settings[GROUP].assign(name=names)
    runs, curves = (frame.merge(named, on=GROUP) for frame in (values, means))
    draw_runs(panel, runs, style)
    draw_means(panel, curves, style, bars=len(names) > MOST_BANDS)


def _places(values: pd.Series) -> tuple[dict[str, float], dict[float, str]]:
    """Value -> position on an axis from 0 to 1, and the inverse."""
    texts = sorted(set(values))
    numbers = {text: number for text in texts if (number := number_of(text)) is not None}
    if len(numbers) < len(texts):
        place = {text: index / max(1, len(texts) - 1) for index, text in enumerate(texts)}
    else:
        low, high = min(numbers.values()), max(numbers.values())
        if low > 0 and high / low >= DECADE:
            numbers = {text: float(np.log10(number)) for text, number in numbers.items()}
        low, span = min(numbers.values()), max(numbers.values()) - min(numbers.values())
        place = {text: (x - low) / span if span else 0.5 for text, x in numbers.items()}
    return place, {place[text]: text for text in texts}


def draw(selection: Selection) -> Iterator[tuple[str, Figure]]:
    """The figures, if a method and init has more than one setting."""
    metric, data = selection.study.metric, chosen_settings(selection)
    if number_tried(data).max() == 1:
        return
    yield f"{metric}_best_settings", draw_best_settings(selection, data)
    for flag in varied_flags(data):
        if _lines(data, flag):  # some settings differ in this flag alone
            yield f"{metric}_by_{flag}", draw_flag(selection, data, flag)
