"""Statistics over seeds: mean, spread and intervals, and the expected best of n seeds; tables and figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from roberta_small.analysis.presentation import Computed
from roberta_small.analysis.query import NO_STUDY, WIDTHS, Study, names_of
from roberta_small.analysis.read.long_table import GROUP
from roberta_small.analysis.scoring import BEST, diverged, select_points, spread_over_seeds
from roberta_small.analysis.selection import Selection
from roberta_small.analysis.style import (
    finish,
    grid,
    group_styles,
    legend_below,
    literal,
    paper_inches,
    whole_numbers,
    wrap,
)
from roberta_small.common.errors import enumerate_some
from roberta_small.common.metrics import cut_notes, label, number
from roberta_small.common.statistics import DRAWS, LEVEL, SEED
from roberta_small.common.tables import PERCENT, Mean, Table, interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FEW = 20
"""With fewer seeds the percentile bootstrap is noticeably too narrow."""
SINGLE = "With a single run, there is no interval over seeds, only that over test examples."
AT = 'at: epoch, "best" checkpoint, or data set.'
WIDTH_INCHES = 8.5
# Vertical offsets of seeds and intervals from the line of their group; the distance of groups is 1.
SEEDS_LANE, T_LANE, EXAMPLES_LANE = -0.2, 0.12, 0.32
CLOSE = 0.03
"""Fraction of the axis below which neighbouring seeds are drawn in separate lanes."""


def spread_table(
    data: pd.DataFrame, study: Study, *, test_size: int | None, left_out: Sequence[str] = ()
) -> Table:
    """The frame of `spread_over_seeds` as a table; `left_out` are the runs of `diverged`."""
    metric, subset = study.metric, study.split
    shown = data[[*GROUP, "at"]].assign(n=data["n"].astype(str))
    for name in ("mean", "std", "median", "min", "max"):
        shown[name] = [number(x, metric) for x in data[name]]
    for name in ("t", "bootstrap", "examples"):
        ends = zip(data[f"{name}_low"], data[f"{name}_high"], strict=True)
        shown[f"{name} {PERCENT}"] = [interval(low, high, metric) for low, high in ends]
    shown["wider"] = data["wider"].fillna("–")
    groups = tuple(names_of(data))
    if data["examples_low"].isna().all():
        shown = shown.drop(columns=[f"examples {PERCENT}", "wider"])
        examples = (
            "The interval due to the size of the test set is omitted: it requires an accuracy and "
            "--test-size, --audit, prediction files or the data folder that the manifests record."
        )
    else:
        examples = (
            f"examples: Wilson's {PERCENT} interval for one run of that mean on {test_size:,} examples of "
            f"{subset}. All seeds are evaluated on the same examples, so more seeds do not narrow this "
            "interval."
        )
    several = data.loc[data["n"] > 1, "n"]
    fewest = int(several.min()) if len(several) else FEW
    few = (
        f"With {fewest} seeds the bootstrap interval is too narrow, because it lies within [min, max]: for "
        "normally distributed values, it covers the mean in 76 % of cases with 3 seeds and in 91 % with 10."
    )
    return Table(
        name="seeds",
        caption=f"{subset.capitalize()} {label(metric)} over seeds",
        notes=(
            study.note,
            f"{AT} n: seeds. std: {study.std_note}.",
            f"t: Student's {PERCENT} interval for the mean over seeds (std with ddof 1).",
            *cut_notes(data["t_low"], data["t_high"], metric, difference=False),
            *([SINGLE] if (data["n"] == 1).any() else []),
            examples,
            *left_out_notes(left_out),
        ),
        data=data.assign(
            metric=metric, subset=subset, ddof=study.query.ddof, level=LEVEL, test_size=test_size,
            draws=DRAWS, best_checkpoint=study.note,
        ),
        shown=shown,
        groups=groups,
        means=tuple(
            Mean(row, "mean", group, at, subset, metric, mean)
            for row, (group, at, mean) in enumerate(zip(groups, data["at"], data["mean"], strict=True))
        ),
        wide=("median", "min", "max", f"bootstrap {PERCENT}", "wider"),
        wide_notes=(
            f"bootstrap: percentiles of {DRAWS:,} resampled means, seed {SEED}.",
            *([few] if fewest < FEW else []),
            *(["wider: whether the t or the examples interval is wider."] if "wider" in shown else []),
        ),
    )  # fmt: skip


def expected_table(data: pd.DataFrame, study: Study, *, left_out: Sequence[str] = ()) -> Table:
    """The frame of `expected_best_of_seeds` as a table; `left_out` as in `spread_table`."""
    metric, by = study.metric, study.by
    shown = data[GROUP].copy()
    shown["seeds tried"] = [f"{row.seeds_tried} of {row.seeds}" for row in data.itertuples()]
    shown[f"best {label(by)} on {study.choose_on}"] = [number(x, by) for x in data["valid"]]
    shown[f"its {label(metric)} on {study.split}"] = [number(x, metric) for x in data["test"]]
    return Table(
        name="expected",
        caption="Expected result of the best of n seeds",
        notes=(
            study.note,
            "Mean over all subsets of n of these runs, without replacement (Tang et al. 2020): "
            "unbiased, unlike drawing with replacement (Dodge et al. 2019).",
            "If n is near the number of runs, there are few subsets; "
            "the last row is the best run alone (the mean of equally good ones).",
            *left_out_notes(left_out),
        ),
        data=data.assign(
            metric=metric, by=by, subset=study.choose_on, estimator="without replacement",
            best_checkpoint=study.note,
        ),
        shown=shown,
        groups=tuple(names_of(data)),
    )  # fmt: skip


def left_out_notes(names: Sequence[str]) -> list[str]:
    """A note that lists the diverged runs."""
    if not names:
        return []
    return [
        f"Without a finite value at a best checkpoint: {enumerate_some(names, 10)}. "
        "The statistics exclude these diverged runs."
    ]


def draw_seeds(
    values: pd.DataFrame, spread: pd.DataFrame, metric: str, *, subset: str = "test",
    baseline: str | None = None, study: Study = NO_STUDY,
) -> Figure:  # fmt: skip
    """A dot for each run at its best checkpoint, with the intervals of the mean of each group.

    `values` is the frame of `scores`, `spread` that of `spread_over_seeds`. The interval due to the test set
    is drawn if `spread` contains it, and a vertical line at the mean of the group `baseline`.
    """
    from matplotlib.figure import Figure

    values, spread = values[values["at"] == BEST], spread[spread["at"] == BEST].reset_index(drop=True)
    names = list(names_of(spread))
    by_name = dict(zip(names, spread.to_dict("records"), strict=True))
    style_of = group_styles(names, study)
    page = paper_inches()
    height = 1.5 + 0.6 * len(names) if page is None else 1.1 + 0.42 * len(names)
    figure = Figure(figsize=(page or WIDTH_INCHES, height), layout="constrained")
    panel = figure.subplots()
    ends = spread[["t_low", "t_high", "examples_low", "examples_high"]]
    ends = pd.concat([values["value"], *(ends[name] for name in ends)])
    apart = CLOSE * float(ends.max() - ends.min()) if len(ends) else 0.0
    for mean in (row["mean"] for name, row in by_name.items() if name == baseline):
        panel.axvline(mean, color="0.45", linewidth=1, linestyle=":", zorder=1)
    for line, (name, row) in enumerate(by_name.items()):
        of_group = (values["arm"] == row["arm"]) & (values["init"] == row["init"])
        x = np.sort(values.loc[of_group, "value"].to_numpy(dtype=float))
        lanes = np.zeros(len(x), int)  # 0, 1 or 2; close neighbours have different ones
        for index in np.flatnonzero(np.diff(x) < apart) + 1:
            lanes[index] = (lanes[index - 1] + 1) % 3
        color = style_of[name]["color"]
        panel.plot(
            x, line + SEEDS_LANE - 0.14 * lanes, linestyle="none", markersize=7, alpha=0.85,
            color=color, marker=style_of[name]["marker"], markeredgecolor="white",
        )  # fmt: skip
        panel.plot([row["mean"]] * 2, [line + SEEDS_LANE, line + EXAMPLES_LANE], color="0.15", linewidth=1.2)
        panel.hlines(line + T_LANE, row["t_low"], row["t_high"], color=color, linewidth=5)
        panel.hlines(
            line + EXAMPLES_LANE, row["examples_low"], row["examples_high"], color="0.45", linewidth=2,
            linestyle=(0, (3, 1)),
        )  # fmt: skip
    # Grey entries of the legend apply to all colors.
    panel.plot([], [], linestyle="none", marker="o", color="0.3", label="one seed")
    panel.plot([], [], color="0.15", linewidth=1.2, label="mean")
    if baseline in by_name:
        panel.plot([], [], color="0.45", linewidth=1, linestyle=":", label="mean of the baseline")
    if spread["t_low"].notna().any():
        ends = ", cut" if cut_notes(spread["t_low"], spread["t_high"], metric, difference=False) else ""
        panel.plot([], [], color="0.3", linewidth=5, label=f"{PERCENT} over seeds (t{ends})")
    if spread["examples_low"].notna().any():
        panel.plot(
            [], [], color="0.45", linewidth=2, linestyle=(0, (3, 1)),
            label=f"{PERCENT} due to the test examples (Wilson)",
        )  # fmt: skip
    characters = 24 if page is None or page > WIDTHS["one-column"] else 16
    panel.set_yticks(range(len(names)), [wrap(study.label(name), characters) for name in names])
    panel.set_ylim(len(names) - 0.5, -0.65)
    quantity = f"{label(metric)} on {subset} at the best checkpoint"
    panel.set_xlabel(wrap(quantity, 96 if page is None else int(11 * page)))
    finish(panel, grid="x")
    legend_below(figure)
    return figure


def draw_expected(
    expected: pd.DataFrame, metric: str, by: str, *, subset: str = "valid", reported: str = "test",
    study: Study = NO_STUDY,
) -> Figure:  # fmt: skip
    """Expected score of the best of n seeds on `subset` and on `reported` (`expected_best_of_seeds`)."""
    from matplotlib.figure import Figure

    names = list(names_of(expected.drop_duplicates(GROUP)))
    style_of = group_styles(names, study)
    columns, size = grid(2, (WIDTH_INCHES / 2, 3.4))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(2 // columns, columns, sharey=by == metric, squeeze=False).ravel()
    titles = {
        "valid": f"best {label(by)} on {subset}",
        "test": f"{label(metric)} on {reported} of the same run",
    }
    for panel, (column, title) in zip(panels, titles.items(), strict=True):
        for name, (_, group) in zip(names, expected.groupby(GROUP, sort=False), strict=True):
            panel.plot(
                group["seeds_tried"], group[column], label=wrap(study.label(name)), linewidth=2, markersize=6,
                **style_of[name],
            )  # fmt: skip
        panel.set_title(literal(title), fontsize="medium")
        panel.set_xlabel("seeds tried")
        panel.set_xlim(0.7, expected["seeds_tried"].max() + 0.3)
        panel.margins(y=0.12)
        whole_numbers(panel)
        finish(panel)
    for panel in panels[::columns]:
        panel.set_ylabel("expected value")
    legend_below(figure)
    return figure


def compute_seeds(selection: Selection) -> Computed:
    """The table of the selected points."""
    study, values = selection.study, selection.values
    points = study.points(default=None)
    if points is not None:
        values = select_points(values, points)
    size = selection.test_size
    data = spread_over_seeds(values, study.metric, ddof=study.query.ddof, test_size=size)
    table = spread_table(data, study, test_size=size, left_out=selection.diverged)
    return Computed([selection.beside_published(table, ["std", f"examples {PERCENT}"])], values)


def compute_expected(selection: Selection) -> Computed:
    """The table of the expected best of n seeds."""
    study = selection.study
    counted = selection.best.dropna(subset=["valid", "test"]).assign(at=BEST)
    left_out = diverged(selection.table, counted, study.metric, study.split)
    return Computed([expected_table(selection.expected, study, left_out=left_out)])


def draw_seeds_of(selection: Selection, baseline: str | None = None) -> Iterator[tuple[str, Figure]]:
    """`draw_seeds`, if a run has a value at its best checkpoint; the default baseline is the query's."""
    study = selection.study
    if BEST in set(selection.spread["at"]):
        figure = draw_seeds(
            selection.values, selection.spread, study.metric, subset=study.split,
            baseline=baseline or study.query.baseline, study=study,
        )  # fmt: skip
        yield f"{study.metric}_seeds", figure


def draw_expected_of(selection: Selection) -> Iterator[tuple[str, Figure]]:
    """`draw_expected`, if a group has several runs."""
    study, data = selection.study, selection.expected
    if len(data) and data["seeds"].max() > 1:
        figure = draw_expected(
            data, study.metric, study.by, subset=study.choose_on, reported=study.split, study=study
        )
        yield f"{study.metric}_expected", figure
