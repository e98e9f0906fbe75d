"""Tables of accuracies counted from prediction files, and of comparisons example by example."""

from __future__ import annotations

import math

import pandas as pd

from roberta_small.analysis.read.long_table import GROUP, RUN
from roberta_small.analysis.stats.spread import BEST
from roberta_small.common.data_folder import Overlap
from roberta_small.common.metrics import number
from roberta_small.common.statistics import DRAWS, LEVEL, SEED, mean_std
from roberta_small.common.tables import (
    PERCENT,
    Mean,
    Table,
    interval,
    mean_std_cell,
    p_value,
    signed,
    signed_interval,
    whole,
)

ACCURACY = "accuracy"
AVERAGED = {
    "logged": "logged",
    "accuracy": "accuracy",
    "unseen accuracy": "unseen_accuracy",
    "seen accuracy": "seen_accuracy",
}
NO_VARIATION = (
    "Where the difference is the same in every example, for example if both are always right, the bootstrap "
    "interval has no width: the one shown follows from Wilson's interval for the fraction of such examples."
)
LOGGED_TOLERANCE = 0.1
"""Difference in points between the accuracies of prediction file and log above which a note is added; the
precision of the forward pass changes single predictions."""
LOG_PRECISION = 1e-4
"""Points; logs are in single precision."""


def accuracy_table(
    data: pd.DataFrame, logged: pd.DataFrame | None, split: str, overlap: Overlap | None
) -> Table:
    """The frame of `accuracies` as a table, with the logged accuracy of each run's best checkpoint.

    `logged` is the frame of `at_best`, or None if the logs have no accuracy.
    """
    if logged is None:
        data = data.assign(logged=math.nan)
    else:
        data = data.merge(logged.rename(columns={"value": "logged"}), on=RUN, how="left")
    rows = data.to_dict("records")
    shown = pd.DataFrame(
        {
            "arm": data["arm"],
            "init": data["init"],
            "seed": data["seed"].astype(str),
            "logged": [number(x, ACCURACY) for x in data["logged"]],
            "examples": data["n"].map(whole),
            "accuracy": [number(x, ACCURACY) for x in data["accuracy"]],
            PERCENT: [interval(row["low"], row["high"], ACCURACY) for row in rows],
        }
    )
    if overlap is not None:
        shown["unseen"] = data["unseen_n"].map(whole)
        shown["unseen accuracy"] = [number(x, ACCURACY) for x in data["unseen_accuracy"]]
        shown[f"unseen {PERCENT}"] = [
            interval(row["unseen_low"], row["unseen_high"], ACCURACY) for row in rows
        ]
        shown["seen accuracy"] = [number(x, ACCURACY) for x in data["seen_accuracy"]]
    notes = [
        f"From the prediction files of {split}; {PERCENT}: Wilson's interval. std: ddof 1.",
    ]
    if overlap is not None:
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
    shown, groups, means = _with_means(shown, data)
    return Table(
        name="accuracy",
        caption=f"Accuracy (%) on {split}, counted from the predictions",
        notes=tuple(notes),
        data=data.assign(split=split, level=LEVEL),
        shown=shown,
        groups=tuple(groups),
        means=tuple(mean._replace(subset=split) for mean in means),
        wide=("logged", "examples", "unseen", "seen accuracy"),
        wide_notes=("logged: accuracy at the best checkpoint in the logs.",),
    )


def examples_table(data: pd.DataFrame, split: str) -> Table:
    """The concatenated frames of `compare_predictions` as a table."""
    rows = data.to_dict("records")
    shown = pd.DataFrame(
        {
            "A": data["a"],
            "B": data["b"],
            "seed": data["seed"].astype(str),
            "examples": data["n"].map(whole),
            "only A right": data["only_a"].map(whole),
            "only B right": data["only_b"].map(whole),
            "p McNemar": data["p_mcnemar"].map(p_value),
            "Holm": data["p_mcnemar_holm"].map(p_value),
            "A − B": [signed(x, ACCURACY) for x in data["difference"]],
            f"bootstrap {PERCENT}": [signed_interval(row["low"], row["high"], ACCURACY) for row in rows],
        }
    )
    return Table(
        name="examples",
        caption=f"Accuracy (%) on {split}, example by example: A against B",
        notes=(
            "p McNemar: exact, two-sided, of two runs rather than two recipes; "
            "Holm: over the seeds of each two groups.",
            f"bootstrap: percentiles of {DRAWS:,} test sets drawn from the examples, the same for A and B, "
            f"seed {SEED}; mean: of the accuracies of all seeds.",
            *([NO_VARIATION] if "interval" in data else []),
            "The inference is over test examples for these runs; the comparison over seeds is over runs.",
        ),
        data=data.assign(split=split, level=LEVEL, draws=DRAWS),
        shown=shown,
        wide=("examples", "only A right", "only B right"),
    )


def _with_means(shown: pd.DataFrame, data: pd.DataFrame) -> tuple[pd.DataFrame, list[str], list[Mean]]:
    """Add a row with mean and standard deviation over seeds below the runs of each arm and init.

    Also returns the group of each row, and the means, whose subset is empty.
    """
    parts, groups, means = [], [], []
    for group, runs in data.groupby(GROUP):
        columns = {heading: column for heading, column in AVERAGED.items() if heading in shown}
        statistics = {heading: mean_std(runs[column]) for heading, column in columns.items()}
        cells = {
            heading: mean_std_cell(*statistics[heading], ACCURACY, runs[column].count())
            for heading, column in columns.items()
        }
        last = dict(zip(GROUP, group, strict=True), seed="mean ± std (n)", **cells)
        parts += [shown.loc[runs.index], pd.DataFrame([last])]
        name = "/".join(group)
        groups += [name] * (len(runs) + 1)
        means += [
            Mean(len(groups) - 1, heading, name, BEST, "", column, mean, tested=column == ACCURACY)
            for heading, column in columns.items()
            for mean, _ in [statistics[heading]]
        ]
    return pd.concat(parts, ignore_index=True).fillna(""), groups, means
