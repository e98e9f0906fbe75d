"""The long table: one row for each logged number.

    arm, init   str     the method (with its setting) and the initialization
    seed        int
    subset      str     train, train_inner, valid, test or another name of the trainer; "unnamed" if neither
                        the path nor the tag contains it
    epoch       int     1 + the number of epochs of the run that ended before the step (`read.epochs`)
    step        int     updates
    metric      str     the tag in the log: loss, accuracy, macro_f1, ...
    value       float   as logged, accuracy in percent; may be NaN

Ordered by arm, init, seed, subset, metric and step, with one row for each combination of these.
"""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from roberta_small.analysis.read.layout import NO_SUBSET
from roberta_small.common.errors import UserError
from roberta_small.common.metrics import measures_quality

RUN = ["arm", "init", "seed"]
GROUP = ["arm", "init"]
COLUMNS = [*RUN, "subset", "epoch", "step", "metric", "value"]
ORDER = [*RUN, "subset", "metric", "step"]
SELECTING, REPORTED = "valid", "test"
"""The usual names of the subset that selects the best checkpoint, and of the one that is reported."""
NOT_EVALUATED = frozenset({"train", "train_inner", NO_SUBSET})


def usual_or_only(usual: str, subsets: Iterable[str]) -> str:
    """`usual`, unless it is missing and a single other subset was evaluated, which is then returned."""
    evaluated = set(subsets) - NOT_EVALUATED
    return evaluated.pop() if usual not in evaluated and len(evaluated) == 1 else usual


def values_of(table: pd.DataFrame, subset: str, metric: str) -> pd.DataFrame:
    """The rows of one metric on one subset, with the columns and order of the table.

    Raises `UserError`, listing the subsets or the metrics of quality that exist, if there are none.
    """
    on_subset = table[table["subset"] == subset]
    if on_subset.empty:
        known = ", ".join(sorted(table["subset"].unique()))
        raise UserError(
            f"no subset '{subset}' in the logs, only {known}; select on another one with --choose-on, report "
            "another one with --split, name the folders with --pattern, or train with --valid-subset "
            "valid,test"
        )
    rows = on_subset[on_subset["metric"] == metric]
    if rows.empty:
        metrics = sorted(on_subset["metric"].unique())
        suggested = ", ".join(filter(measures_quality, metrics)) or ", ".join(metrics)
        raise UserError(f"no '{metric}' on the subset '{subset}'; available for --metric: {suggested}")
    return rows
