"""The scores of every run, and how they spread over the seeds of an arm and init.

scores   group, arm, init, seed, at, value
         group is arm/init; at is an epoch ("1", "2", ...) or "best"; value is finite
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from tqdm import tqdm

from common.errors import UserError
from common.wilson import wilson_interval

from .best import at_best
from .intervals import DRAWS, LEVEL, SEED, bootstrap_interval, t_interval
from .long_table import GROUP, RUN
from .metrics import IN_PERCENT
from .stats import at_validations

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
    `bootstrap_high` (percentiles of `draws` resamples); with `test_size` examples and a metric in percent
    `examples_low`, `examples_high`, Wilson's interval for one run of that mean, and `wider`: which of t and
    Wilson is ("seeds" or "examples").
    """
    counts = test_size if metric in IN_PERCENT and test_size else 0
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
                "mean": x.mean(),
                "std": x.std(ddof=ddof) if len(x) > ddof else np.nan,
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
