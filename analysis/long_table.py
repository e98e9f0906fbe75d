"""The long table: one row for each number that a run logged.

    arm, init   str     what was trained and what it started from
    seed        int
    subset      str     train, train_inner, valid, test or what the trainer calls it; "unnamed" where neither
                        a folder nor the tag says it
    epoch       int     1 + the number of validations of that run before the step
    step        int     updates
    metric      str     the tag that the trainer wrote: loss, accuracy, macro_f1, ...
    value       float   in the trainer's unit, accuracy in percent; NaN where it logged NaN

Ordered by arm, init, seed, subset, metric and step; a run logs a metric once a step.
"""

from __future__ import annotations

import pandas as pd

from common.errors import UserError

RUN = ["arm", "init", "seed"]
GROUP = ["arm", "init"]
COLUMNS = [*RUN, "subset", "epoch", "step", "metric", "value"]
ORDER = [*RUN, "subset", "metric", "step"]


def values_of(table: pd.DataFrame, subset: str, metric: str) -> pd.DataFrame:
    """The rows of one metric on one subset, columns and order as in the table.

    Raises `UserError`, naming what exists, where there are none.
    """
    on_subset = table[table["subset"] == subset]
    if on_subset.empty:
        known = ", ".join(sorted(table["subset"].unique()))
        raise UserError(
            f"the logs hold no subset '{subset}', only {known}; --choose-on takes another one, --pattern "
            "says which folder is which, and fairseq logs those of --valid-subset valid,test"
        )
    rows = on_subset[on_subset["metric"] == metric]
    if rows.empty:
        known = ", ".join(sorted(on_subset["metric"].unique()))
        raise UserError(f"no '{metric}' on the subset '{subset}'; --metric can be: {known}")
    return rows
