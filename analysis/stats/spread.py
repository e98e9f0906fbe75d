"""The scores of every run, and how they spread over the seeds of an arm and init.

scores   group, arm, init, seed, at, value
         group is arm/init; at is an epoch ("1", "2", ...) or "best"; value is finite
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from tqdm import tqdm

from common.errors import UserError
from common.metrics import ACCURACIES
from common.statistics import (
    DRAWS,
    LEVEL,
    SEED,
    Values,
    bootstrap_interval,
    mean_std,
    t_interval,
    wilson_interval,
)

from ..long_table import GROUP, RUN, values_of
from .best import at_best

BEST = "best"
COLUMNS = ["group", *RUN, "at", "value"]


def scores(table: pd.DataFrame, best: pd.DataFrame, metric: str, subset: str = "test") -> pd.DataFrame:
    """`metric` on `subset` of each run after each epoch and at its best checkpoint (of `best_checkpoints`).

    Columns as above, epochs in order and "best" last. Values that are not finite (a diverged run) are left
    out, see `diverged`. Raises `UserError` as `at_validations`, and where no value is finite.
    """
    epochs = at_validations(table, subset, metric).sort_values([*GROUP, "epoch", "seed"])
    epochs = epochs.assign(at=epochs["epoch"].astype(str))[[*RUN, "at", "value"]]
    rows = pd.concat([epochs, at_best(table, best, metric, subset).assign(at=BEST)], ignore_index=True)
    rows = rows[np.isfinite(rows["value"])]
    if rows.empty:
        raise UserError(
            f"'{metric}' on the subset '{subset}' is NaN or infinite in every run; did all diverge?"
        )
    return rows.assign(group=rows["arm"] + "/" + rows["init"])[COLUMNS].reset_index(drop=True)


def diverged(table: pd.DataFrame, values: pd.DataFrame, metric: str, subset: str = "test") -> list[str]:
    """Runs that logged `metric` on `subset`, but have no best value among the `scores`: `arm/init/seed1`, ...

    What is said of the others is said of seeds that went well, so that they have to be named beside it.
    """
    runs = table.loc[(table["metric"] == metric) & (table["subset"] == subset), RUN].drop_duplicates()
    scored = values.loc[values["at"] == BEST, RUN]
    found = runs.merge(scored, on=RUN, how="left", indicator=True)
    left = found.loc[found["_merge"] == "left_only", RUN]
    return [f"{arm}/{init}/seed{seed}" for arm, init, seed in left.itertuples(index=False, name=None)]


def spread_over_seeds(
    values: pd.DataFrame,
    metric: str = "accuracy",
    *,
    ddof: int = 1,
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = SEED,
    test_size: int | None = None,
) -> pd.DataFrame:
    """How `scores` spread over seeds: one row for each arm, init and epoch, and for the best checkpoint.

    Columns: `arm`, `init`, `at`, `n` (seeds), `mean`, `std` (with `ddof`), `median`, `min`, `max`; intervals
    for the mean over seeds, `t_low`, `t_high` (Student; always with ddof 1) and `bootstrap_low`,
    `bootstrap_high` (percentiles of `draws` resamples); with `test_size` examples and accuracy as the metric
    `examples_low`, `examples_high`, Wilson's interval for one run of that mean, and `wider`: which of t and
    Wilson is ("seeds" or "examples").
    """
    counts = test_size if metric in ACCURACIES and test_size else 0
    rows = []
    groups = values.groupby([*GROUP, "at"], sort=False)
    for (arm, init, at), group in tqdm(groups, desc="intervals", delay=1, leave=False):
        x = group["value"].to_numpy(dtype=float)
        t = t_interval(x, level)
        bootstrap = bootstrap_interval(x, level, draws=draws, seed=seed)
        examples = [100 * end for end in wilson_interval(x.mean() / 100, counts, level)]
        rows.append(
            {
                "arm": arm,
                "init": init,
                "at": at,
                "n": len(x),
                "mean": mean_std(x, ddof)[0],
                "std": mean_std(x, ddof)[1],
                "median": np.median(x),
                "min": x.min(),
                "max": x.max(),
                "t_low": t[0],
                "t_high": t[1],
                "bootstrap_low": bootstrap[0],
                "bootstrap_high": bootstrap[1],
                "examples_low": examples[0],
                "examples_high": examples[1],
                "wider": _wider(t, examples),
            }
        )
    return pd.DataFrame(rows).sort_values(GROUP, kind="stable", ignore_index=True)


def _wider(seeds: tuple[float, float], examples: list[float]) -> str | None:
    widths = [high - low for low, high in (seeds, examples)]
    if np.isnan(widths).any():
        return None
    return "seeds" if widths[0] > widths[1] else "examples"


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


def expected_best(chosen_by: Values, reported: Values, *, lower: bool = False) -> Values:
    """(N,): the expected `reported` value of the run with the best `chosen_by` among n of these N, n = 1..N.

    Both are (N,) and hold no NaN. With the same array twice, the expected best value itself.

    The mean over all subsets of n runs, without replacement, which is unbiased (Tang et al. 2020, "Showing
    Your Work Doesn't Always Work"): the i-th worst run is best in C(i-1, n-1) of the C(N, n) subsets.
    Drawing with replacement, as in Dodge et al. 2019, is biased downwards. Runs with equal `chosen_by` win
    equally often.
    """
    total = len(chosen_by)
    order = np.argsort(-chosen_by if lower else chosen_by, kind="stable")
    # pandas: the mean of `reported` among runs of equal `chosen_by`, in place of each.
    shared = pd.Series(reported).groupby(np.asarray(chosen_by)).transform("mean").to_numpy()[order]
    return np.array(
        [
            sum(math.comb(rank, n - 1) / math.comb(total, n) * value for rank, value in enumerate(shared))
            for n in range(1, total + 1)
        ]
    )


def expected_best_of_seeds(best: pd.DataFrame, *, lower: bool = False) -> pd.DataFrame:
    """`expected_best` for each arm and init of `best_checkpoints`: one row for each number of seeds tried.

    Columns: `arm`, `init`, `seeds_tried`, `seeds` (how many there are), `valid` (the expected best of them),
    `test` (the expected test score of the run with the best valid). Runs without either are left out.
    """
    frames = []
    for group, runs in best.dropna(subset=["valid", "test"]).groupby(GROUP):
        valid, test = (runs[column].to_numpy(dtype=float) for column in ("valid", "test"))
        frames.append(
            pd.DataFrame(
                {
                    **dict(zip(GROUP, group, strict=True)),
                    "seeds_tried": np.arange(1, len(runs) + 1),
                    "seeds": len(runs),
                    "valid": expected_best(valid, valid, lower=lower),
                    "test": expected_best(valid, test, lower=lower),
                }
            )
        )
    columns = [*GROUP, "seeds_tried", "seeds", "valid", "test"]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=columns)
