"""Statistics over seeds. Each names its convention (ddof, how many values) in its result."""

from __future__ import annotations

import pandas as pd

from .long_table import GROUP, RUN, values_of


def summarize(values: pd.DataFrame, by: list[str], column: str, *, ddof: int = 1) -> pd.DataFrame:
    """n, mean and standard deviation of `column` for each group of `by`, in the groups' order.

    Columns: those of `by`, then `n` (int, values that are not NaN), `mean` and `std` (float). `std` divides
    by n - ddof: 1 estimates the spread of all possible seeds, 0 describes these seeds; NaN where n <= ddof.
    """
    groups = values.groupby(by)[column]
    return pd.DataFrame(
        {"n": groups.count(), "mean": groups.mean(), "std": groups.std(ddof=ddof)}
    ).reset_index()


def per_epoch(
    table: pd.DataFrame, metric: str = "accuracy", *, subset: str = "test", ddof: int = 1
) -> pd.DataFrame:
    """`summarize` over the seeds of each arm, init and epoch; an epoch's value is its last one."""
    values = values_of(table, subset, metric)
    last = values.groupby([*RUN, "epoch"]).tail(1)
    return summarize(last, [*GROUP, "epoch"], "value", ddof=ddof)
