"""Accuracy counted from prediction files, confusion matrices, and reliability diagrams."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from roberta_small.analysis.predictions import accuracies, read_predictions
from roberta_small.analysis.presentation import Computed, with_means
from roberta_small.analysis.query import NO_STUDY, Study, names_of
from roberta_small.analysis.read.long_table import REPORTED, RUN
from roberta_small.analysis.scoring import BEST, at_best, best_checkpoints
from roberta_small.analysis.selection import Selection
from roberta_small.analysis.style import finish, legend_below, literal, paper_inches, wrap
from roberta_small.common.data_folder import Overlap
from roberta_small.common.errors import UserError, count
from roberta_small.common.metrics import number
from roberta_small.common.statistics import (
    BINS,
    ECE,
    LEVEL,
    confusion,
    expected_calibration_error,
    reliability,
)
from roberta_small.common.tables import PERCENT, Table, interval, whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ACCURACY = "accuracy"
AVERAGED = ("logged", "accuracy", "unseen accuracy", "seen accuracy")
"""Columns of the table; those of the frame have underscores."""
LOGGED_TOLERANCE = 0.1
"""Difference in points between the accuracies of prediction file and log above which a note is added; the
precision of the forward pass changes single predictions."""
LOG_PRECISION = 1e-4
"""Points; logs are in single precision."""
COLUMNS = 3
PANEL_INCHES = 2.9
SMALLEST_PANEL_INCHES = 1.6
NEUTRAL = "0.2"
"""Color of what every panel shows: the colors of groups would be misleading."""
PAGE_INCHES = 14
"""Maximum width of a figure with several panels."""
FEW = 8
"""Maximum number of classes for which the cells of a confusion matrix contain percentage and count."""
MOST = 40
"""Maximum number of classes that a confusion matrix shows one by one."""
MOST_CONFUSED = 24
"""Of more classes, the number that is shown: those with the most errors."""
PAIRS = 15
"""Number of pairs of classes in the figure of confused pairs."""
OTHERS = "other classes"
CELL_INCHES = 0.27
ROW_CHARACTERS = 36
"""Maximum number of characters of all class names below a panel; more are rotated."""
NAME_CHARACTERS = 20
"""Maximum length of a class name beside a matrix of many classes."""


def accuracy_table(
    data: pd.DataFrame, logged: pd.DataFrame | None, split: str, overlap: Overlap | None
) -> Table:
    """The frame of `accuracies` as a table, beside the logged accuracy: the frame of `at_best`, if any."""
    if logged is None:
        data = data.assign(logged=math.nan)
    else:
        data = data.merge(logged.rename(columns={"value": "logged"}), on=RUN, how="left")
    rows = data.to_dict("records")
    shown = pd.DataFrame(
        {
            **data[RUN].astype(str),
            "logged": [number(x, ACCURACY) for x in data["logged"]],
            "examples": data["n"].map(whole),
            "accuracy": [number(x, ACCURACY) for x in data["accuracy"]],
            PERCENT: [interval(row["low"], row["high"], ACCURACY) for row in rows],
        }
    )
    notes = [f"From the prediction files of {split}; {PERCENT}: Wilson's interval. std: ddof 1."]
    if overlap is not None:
        shown["unseen"] = data["unseen_n"].map(whole)
        shown["unseen accuracy"] = [number(x, ACCURACY) for x in data["unseen_accuracy"]]
        shown[f"unseen {PERCENT}"] = [
            interval(row["unseen_low"], row["unseen_high"], ACCURACY) for row in rows
        ]
        shown["seen accuracy"] = [number(x, ACCURACY) for x in data["seen_accuracy"]]
        notes.append(
            f"seen: the {len(overlap.lines):,} examples of {overlap.split} whose text also occurs in "
            f"{overlap.other} ({overlap.notion} duplicates in the audit); unseen: all others."
        )
    different = data[(data["accuracy"] - data["logged"]).abs() > LOGGED_TOLERANCE + LOG_PRECISION]
    if len(different):
        names = ", ".join(f"{row.arm}/{row.init}/seed{row.seed}" for row in different.itertuples())
        notes.append(
            f"More than {LOGGED_TOLERANCE} points from the log, perhaps another checkpoint or other data: "
            f"{names}."
        )
    columns = {heading: heading.replace(" ", "_") for heading in AVERAGED if heading in shown}
    averaged = {heading: (column, ACCURACY, split) for heading, column in columns.items()}
    shown, groups, means = with_means(shown, data, averaged)
    return Table(
        name="accuracy",
        caption=f"Accuracy (%) on {split}, counted from the predictions",
        notes=tuple(notes),
        data=data.assign(split=split, level=LEVEL),
        shown=shown,
        groups=groups,
        means=tuple(
            mean._replace(metric=columns[mean.column], tested=mean.column == ACCURACY) for mean in means
        ),
        wide=("logged", "examples", "unseen", "seen accuracy"),
        wide_notes=("logged: accuracy at the best checkpoint in the logs.",),
    )


def draw_confusion(predictions: pd.DataFrame, *, study: Study = NO_STUDY) -> Figure:
    """Confusion matrices of the frame of `read_predictions`, one for each group.

    Colors and percentages are fractions of the true class. The number below is the mean count per run; it is
    omitted if there are more than `FEW` classes. Of more than `MOST` classes, those with the most errors are
    shown, and all others together in the last row and column.
    """
    shown = list(predictions["label"].cat.categories)
    if len(shown) > MOST:
        wrong = predictions[~predictions["correct"]]
        errors = wrong["label"].value_counts() + wrong["predicted"].value_counts()
        chosen = set(errors.sort_values(ascending=False, kind="stable").index[:MOST_CONFUSED])
        shown = [name for name in shown if name in chosen]
    many = len(shown) > FEW
    figure, panels = _panels(predictions, len(shown) * CELL_INCHES + 1.6 if many else PANEL_INCHES, study)
    for panel, title, group in panels:
        counts = confusion(group)
        if len(shown) < len(counts):  # the other classes in one row and column
            # An array, because pandas takes a list of names for names of columns.
            merged = np.array([name if name in shown else OTHERS for name in counts])
            counts = counts.groupby(merged).sum().T.groupby(merged).sum().T
            counts = counts.loc[[*shown, OTHERS], [*shown, OTHERS]]
        classes = list(counts)
        total = counts.sum(axis=1)
        fraction_CC = counts.div(total.where(total > 0), axis=0)
        image = panel.imshow(fraction_CC, cmap="cividis", vmin=0, vmax=1)
        font = 6 if many else 10 if len(classes) <= 3 and paper_inches() is None else 7
        for (row, column), fraction in np.ndenumerate(fraction_CC.to_numpy()):
            if fraction >= (0.005 if many else 0):  # not NaN; of many classes, not those near zero
                percent = f"{100 * fraction:.0f}"
                panel.text(
                    column, row, percent if many else f"{percent} %\n{counts.iat[row, column]:.4g}",
                    ha="center", va="center", fontsize=font, color="black" if fraction > 0.5 else "white",
                )  # fmt: skip
        names = [literal(_short(name)) if many else wrap(name, 12) for name in classes]
        size = 7 if many else None
        widest = max(len(line) for name in names for line in name.split("\n"))
        rotation = 90 if len(classes) * widest > ROW_CHARACTERS else 0
        panel.set_xticks(range(len(classes)), names, rotation=rotation, fontsize=size)
        panel.set_yticks(range(len(classes)), names, fontsize=size)
        panel.set_title(title, fontsize="medium")
        panel.set_xlabel("predicted")
        panel.set_ylabel("true")
    shrink, aspect = (0.5, 40) if many else (0.8, 20)
    figure.colorbar(image, ax=figure.axes, label="fraction of the true class", shrink=shrink, aspect=aspect)
    return figure


def draw_confused_pairs(predictions: pd.DataFrame, *, study: Study = NO_STUDY) -> Figure:
    """The most frequent errors of the frame of `read_predictions`, a panel for each group.

    A bar is the mean count per run of a true class and the class that is predicted instead.
    """
    figure, panels = _panels(predictions, 4.6, study)
    for panel, title, group in panels:
        pairs = confused_pairs(confusion(group))[:PAIRS]
        names = [literal(f"{_short(true)} → {_short(predicted)}") for true, predicted, _ in pairs]
        panel.barh(range(len(pairs)), [count for _, _, count in pairs], color=NEUTRAL)
        panel.set_yticks(range(len(pairs)), names, fontsize=7)
        panel.invert_yaxis()
        panel.set_title(title, fontsize="medium")
        panel.set_xlabel("predictions (mean per run)")
        finish(panel, "x")
    return figure


def confused_pairs(counts: pd.DataFrame) -> list[tuple[str, str, float]]:
    """(true class, predicted class, count) of every error in a frame of `confusion`, most frequent first."""
    pairs = [
        (true, predicted, float(counts.at[true, predicted]))
        for true in counts.index
        for predicted in counts.columns
        if true != predicted and counts.at[true, predicted] > 0
    ]
    return sorted(pairs, key=lambda pair: -pair[2])


def draw_reliability(predictions: pd.DataFrame, *, study: Study = NO_STUDY) -> Figure:
    """Reliability diagrams of the frame of `read_predictions`, with the predictions of all seeds of a group.

    Bars at the bottom are the fraction of predictions in each bin. The title contains the mean over runs of
    the expected calibration error, in percentage points.
    """
    figure, panels = _panels(predictions, PANEL_INCHES, study)
    least = 1 / BINS * math.floor(BINS * predictions["confidence"].min())
    for panel, title, group in panels:
        table = reliability(group["confidence"], group["correct"])
        runs = (run for _, run in group.groupby("seed"))
        error = np.mean([expected_calibration_error(run["confidence"], run["correct"]) for run in runs])
        places, fraction = (table.index + 0.5) / BINS, table["fraction"]
        panel.bar(places, fraction, width=0.9 / BINS, color="0.8", label="fraction of predictions")
        panel.plot([0, 1], [0, 1], color="0.4", linewidth=1, linestyle=":", label="calibrated")
        panel.plot(
            table["confidence"], table["accuracy"], color=NEUTRAL, marker="o", linewidth=1.8,
            label="accuracy", clip_on=False,  # a marker at 1 or 0 is shown whole
        )  # fmt: skip
        narrow = panel.get_position().width * figure.get_figwidth() < SMALLEST_PANEL_INCHES
        ece = f"{ECE}{chr(10) if narrow else ' '}{100 * error:.1f} points"
        panel.set_title(f"{title}\n{ece}", fontsize="medium")
        panel.set_xlabel("confidence")
        panel.set_xlim(min(least, 0.9), 1)
        panel.set_ylim(0, 1)
        finish(panel)
    figure.axes[0].set_ylabel("accuracy")
    legend_below(figure)
    return figure


def _panels(
    predictions: pd.DataFrame, inches: float, study: Study
) -> tuple[Figure, list[tuple[Axes, str, pd.DataFrame]]]:
    """A figure, and (panel, title, predictions) for each group."""
    from matplotlib.figure import Figure

    by_name = dict(iter(predictions.groupby("group", sort=False)))
    groups = [(name, by_name[name]) for name in study.ordered(by_name)]
    columns = max(1, min(COLUMNS, len(groups), int(PAGE_INCHES / inches)))
    characters = 26
    size = max(4.2, inches * columns + 0.8), (inches - 0.3) * math.ceil(len(groups) / columns) + 0.9
    if (page := paper_inches()) is not None:
        columns = max(1, min(columns, int(page / (SMALLEST_PANEL_INCHES * inches / PANEL_INCHES))))
        height = min(page / columns, inches) + (0.5 if page / columns < PANEL_INCHES else 0.1)
        size = page, math.ceil(len(groups) / columns) * height + 0.6
        characters = 16 if page / columns < PANEL_INCHES else characters
    figure = Figure(figsize=size, layout="constrained")
    rows = math.ceil(len(groups) / columns)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for panel in panels[len(groups) :]:
        panel.remove()
    titled = []
    for panel, (name, group) in zip(panels, groups, strict=False):
        lines, seeds = wrap(study.label(name), characters), count(group["seed"].nunique(), "seed")
        fits = len(lines.split("\n")[-1]) + len(seeds) + 3 <= characters  # "(3 seeds)" is not broken
        titled.append((panel, f"{lines}{' ' if fits else chr(10)}({seeds})", group))
    return figure, titled


def _short(name: str) -> str:
    """The beginning and the end of a long name: names of many classes often differ at the end only."""
    if len(name) <= NAME_CHARACTERS:
        return name
    half = NAME_CHARACTERS // 2
    return f"{name[:half]}…{name[-(NAME_CHARACTERS - half - 1) :]}"


def compute(selection: Selection) -> Computed:
    """The table of the requested split, or of test or the reported one; raises `UserError` without files."""
    study = selection.study
    requested = study.query.split
    for split in [requested] if requested else dict.fromkeys([REPORTED, study.split]):
        predictions = read_predictions(selection.runs, split)
        if len(predictions):
            break
    else:
        raise UserError(
            f"no run has a file predictions-{split}.jsonl with one known class per text; write it with "
            "roberta-small evaluate --write-predictions"
        )
    overlap = selection.overlap_of(split)
    data = accuracies(predictions, overlap)
    values = data.assign(group=names_of(data), at=BEST, value=data["accuracy"])
    return Computed([accuracy_table(data, logged_accuracy(selection, split), split, overlap)], values)


def logged_accuracy(selection: Selection, split: str) -> pd.DataFrame | None:
    """The logged accuracy at the best checkpoints, which do not depend on the predicted split."""
    table, study, query = selection.table, selection.study, selection.study.query
    if not ((table["subset"] == split) & (table["metric"] == ACCURACY)).any():
        return None
    best = best_checkpoints(
        table, study.metric, ties=query.ties, by=study.by, subset=study.choose_on, direction=query.direction,
        reported=None if query.split else study.split,
    )  # fmt: skip
    return at_best(table, best, ACCURACY, split)


def draw_predictions_of(selection: Selection) -> Iterator[tuple[str, Figure]]:
    """The figures of the predictions, if there are prediction files."""
    predictions, study = selection.predictions, selection.study
    if len(predictions):
        yield "confusion", draw_confusion(predictions, study=study)
        if len(predictions["label"].cat.categories) > FEW:  # too many cells to compare
            yield "confused_pairs", draw_confused_pairs(predictions, study=study)
        yield "reliability", draw_reliability(predictions, study=study)
