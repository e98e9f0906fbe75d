"""Statistics over seeds. Each names its convention (ddof, how many values) in its result."""

from __future__ import annotations

import pandas as pd

from common.errors import UserError

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


def at_validations(table: pd.DataFrame, subset: str, metric: str) -> pd.DataFrame:
    """The rows of `metric` on `subset` that were logged at a validation: one a run and epoch.

    Values at other steps are not the end of an epoch (after a damaged log of `valid`, say).
    Raises `UserError` as `values_of` does, and where no value was logged at a validation.
    """
    validations = table.loc[table["subset"] == "valid", [*RUN, "step"]].drop_duplicates()
    rows = values_of(table, subset, metric).merge(validations, on=[*RUN, "step"])
    if rows.empty:
        raise UserError(f"'{metric}' on the subset '{subset}' was never logged at the step of a validation")
    return rows


def per_epoch(
    table: pd.DataFrame, metric: str = "accuracy", *, subset: str = "test", ddof: int = 1
) -> pd.DataFrame:
    """`summarize` over the seeds of each arm, init and epoch; raises `UserError` as `at_validations`."""
    return summarize(at_validations(table, subset, metric), [*GROUP, "epoch"], "value", ddof=ddof)
