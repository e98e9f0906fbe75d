"""The score to expect from the best of n seeds: what trying more seeds buys by itself."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from .intervals import Values
from .long_table import GROUP


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
