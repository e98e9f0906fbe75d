"""Methods compared over several data sets: ranks, interquartile mean, performance profiles, P(A > B).

Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice", with data sets as
tasks; their library is rliable. A group (arm/init) has the same number of runs on every data set. Intervals
are percentiles of a stratified bootstrap: runs are drawn with replacement within each group and data set, and
the data sets stay the same.

Frame of a suite: data_set, group, arm, init, seed, value (at the best checkpoint).

Shapes: R runs of a group, S runs of another one, T data sets, G groups, D bootstrap samples, K thresholds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from roberta_small.analysis.compare import beats, in_whole_units
from roberta_small.analysis.read.long_table import GROUP
from roberta_small.common.errors import UserError
from roberta_small.common.statistics import DRAWS, LEVEL, NONE, SEED, Interval, Values

TRIMMED = 0.25
"""Fraction of the values below and above the interquartile mean."""
PROFILE_DRAWS = 2000
"""Bootstrap samples of profiles and of P(A > B), as in rliable."""
MARGIN = 0.02
"""Of a profile below the smallest value, as a fraction of the range of values."""
BATCH = 2_000_000
"""Number of values that are drawn at a time, which limits memory."""


@dataclass(frozen=True)
class Balanced:
    """The part of a suite in which methods are comparable, and what was excluded from it."""

    values: pd.DataFrame
    """The groups with runs on every data set, each with the seeds that it has on all of them."""
    data_sets: tuple[str, ...]
    incomplete: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Excluded group -> data sets without a run of it."""
    unmatched: tuple[str, ...] = ()
    """Excluded groups without a seed that all data sets have."""
    dropped: dict[str, dict[str, tuple[int, ...]]] = field(default_factory=dict)
    """Group -> data set -> excluded seeds, which another data set lacks."""

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups in the order of `values`."""
        return tuple(dict.fromkeys(self.values["group"]))

    def matrices(self) -> dict[str, Values]:
        """Group -> (R, T) values; runs in the order of their seeds."""
        found = {}
        for group, rows in self.values.groupby("group", sort=False):
            wide = rows.pivot(index="seed", columns="data_set", values="value")
            found[group] = wide[list(self.data_sets)].to_numpy(dtype=float)
        return found


def balance(values: pd.DataFrame) -> Balanced:
    """The comparable part of the frame of a suite, see `Balanced`."""
    data_sets = tuple(dict.fromkeys(values["data_set"]))
    kept, incomplete, unmatched, dropped = [], {}, [], {}
    for group, rows in values.groupby("group", sort=False):
        seeds = {name: set(rows.loc[rows["data_set"] == name, "seed"]) for name in data_sets}
        if missing := tuple(name for name in data_sets if not seeds[name]):
            incomplete[group] = missing
            continue
        common = set.intersection(*seeds.values())
        if not common:
            unmatched.append(group)
            continue
        without = {name: tuple(sorted(found - common)) for name, found in seeds.items() if found - common}
        if without:
            dropped[group] = without
        kept.append(rows[rows["seed"].isin(common)])
    found = pd.concat(kept, ignore_index=True) if kept else values.iloc[:0]
    return Balanced(found, data_sets, incomplete, tuple(unmatched), dropped)


def normalized(values: pd.DataFrame, chance: Mapping[str, float], perfect: float) -> pd.DataFrame:
    """The frame with (value - chance) / (perfect - chance): 0 is chance level, 1 the best possible value.

    `chance` is by data set. Raises `UserError` if one of them is not below `perfect`.
    """
    for name, level in chance.items():
        if not level < perfect:
            raise UserError(f"--chance {name}={level:g}: not below {perfect:g}, the best value of the metric")
    level = values["data_set"].map(dict(chance)).astype(float)
    return values.assign(value=(values["value"] - level) / (perfect - level))


def interquartile_mean(x_RT: Values) -> float:
    """The mean of the middle half of all values (Agarwal et al. 2021, section 4.3)."""
    from scipy.stats import trim_mean

    return float(trim_mean(x_RT, TRIMMED, axis=None))


def profile(x_RT: Values, thresholds_K: Values) -> Values:
    """(K,) fraction of runs with a value above each threshold (section 4.2, run-score distribution)."""
    return (np.asarray(x_RT)[..., None] > thresholds_K).mean(axis=(0, 1))


def improvement(x_RT: Values, y_ST: Values, *, lower: bool = False) -> float:
    """P(X > Y): mean over data sets of the probability that a run of X is better than a run of Y.

    Ties count half (section 4.3; the Mann-Whitney statistic). `lower`: smaller values are better.
    """
    return float(np.mean([beats(x_R, y_S, lower=lower) for x_R, y_S in zip(x_RT.T, y_ST.T, strict=True)]))


def average_ranks(means_GT: Values, *, lower: bool = False) -> Values:
    """(G,) mean over data sets of the rank of each group; 1 is best, ties have the mean of their ranks.

    The leading dimensions of a stack of matrices, (..., G, T) -> (..., G), are kept.
    """
    from scipy.stats import rankdata

    means_GT = np.round(means_GT, 9)  # so that rounding errors of the mean do not break ties
    return rankdata(means_GT if lower else -means_GT, axis=-2).mean(axis=-1)


def aggregate(balanced: Balanced, *, lower: bool = False, scale: bool = True) -> pd.DataFrame:
    """Statistics of each group over all data sets, one row per group.

    Columns: `arm`, `init`, `data_sets` and `n` (numbers; `n` runs on each data set), `mean` (of the means of
    the data sets), `iqm`, `rank`, with the bootstrap intervals `iqm_low`, `iqm_high`, `rank_low` and
    `rank_high`. Intervals are NaN for groups with a single run. Without `scale` (a metric without a common
    scale), `mean` and `iqm` are NaN.
    """
    x_of = balanced.matrices()
    ranks_G = average_ranks(np.stack([x_RT.mean(axis=0) for x_RT in x_of.values()]), lower=lower)
    drawn_DG = _drawn_ranks(list(x_of.values()), lower=lower)
    rows = []
    for index, (group, x_RT) in enumerate(x_of.items()):
        single = len(x_RT) < 2
        iqm = NONE if single or not scale else _interval(_resampled(x_RT, _middle_means, DRAWS))
        rank = NONE if single else _interval(drawn_DG[:, index])
        rows.append(
            {
                **dict(zip(GROUP, group.rsplit("/", 1), strict=True)),
                "data_sets": len(balanced.data_sets),
                "n": len(x_RT),
                "mean": float(x_RT.mean()) if scale else math.nan,
                "iqm": interquartile_mean(x_RT) if scale else math.nan,
                "iqm_low": iqm[0],
                "iqm_high": iqm[1],
                "rank": float(ranks_G[index]),
                "rank_low": rank[0],
                "rank_high": rank[1],
            }
        )
    return pd.DataFrame(rows)


def compare_pairs(
    balanced: Balanced, pairs: Sequence[tuple[str, str]] | None = None, *, lower: bool = False
) -> pd.DataFrame:
    """`improvement` of A over B for `pairs` (default: all), with a bootstrap interval.

    Columns: `a`, `b`, `n_a`, `n_b` (runs on each data set), `probability`, `low`, `high`; the interval is NaN
    if one of the groups has a single run.
    """
    x_of = balanced.matrices()
    rows = []
    for a, b in combinations(x_of, 2) if pairs is None else pairs:
        x_RT, y_ST = x_of[a], x_of[b]
        low, high = NONE if min(len(x_RT), len(y_ST)) < 2 else _interval(_drawn_improvement(x_RT, y_ST))
        if lower:
            low, high = 1 - high, 1 - low
        rows.append(
            {
                "a": a,
                "b": b,
                "n_a": len(x_RT),
                "n_b": len(y_ST),
                "probability": improvement(x_RT, y_ST, lower=lower),
                "low": low,
                "high": high,
            }
        )
    return pd.DataFrame(rows, columns=["a", "b", "n_a", "n_b", "probability", "low", "high"])


def profiles(balanced: Balanced) -> pd.DataFrame:
    """`profile` of each group at every value of a run, where it changes, and at a smaller one.

    Columns: `arm`, `init`, `threshold`, `fraction` and its pointwise bootstrap interval `low`, `high`, which
    is NaN for groups with a single run.
    """
    values_K = np.unique(balanced.values["value"].to_numpy(dtype=float))
    thresholds_K = np.concatenate([[values_K[0] - MARGIN * (np.ptp(values_K) or 1.0)], values_K])
    frames = []
    for group, x_RT in balanced.matrices().items():
        low, high = np.full((2, len(thresholds_K)), np.nan)
        if len(x_RT) > 1:
            drawn_DK = _resampled(x_RT, lambda x_DRT: _profiles(x_DRT, thresholds_K), PROFILE_DRAWS)
            low, high = np.quantile(drawn_DK, _ends(), axis=0)
        columns = {"threshold": thresholds_K, "fraction": profile(x_RT, thresholds_K)}
        frame = pd.DataFrame({**columns, "low": low, "high": high})
        frames.append(frame.assign(**dict(zip(GROUP, group.rsplit("/", 1), strict=True))))
    return pd.concat(frames, ignore_index=True)[[*GROUP, "threshold", "fraction", "low", "high"]]


def _ends() -> list[float]:
    return [(1 - LEVEL) / 2, (1 + LEVEL) / 2]


def _interval(drawn_D: Values) -> Interval:
    low, high = np.quantile(drawn_D, _ends())
    return float(low), float(high)


def _draws(x_RT: Values, draws: int, random: np.random.Generator) -> Iterator[Values]:
    """`draws` resampled matrices, in batches of shape (D, R, T)."""
    size = max(1, BATCH // x_RT.size)
    for begin in range(0, draws, size):
        index_DRT = random.integers(len(x_RT), size=(min(size, draws - begin), *x_RT.shape))
        yield np.take_along_axis(x_RT[None], index_DRT, axis=1)


def _resampled(x_RT: Values, statistic: Callable[[Values], Values], draws: int) -> Values:
    """`statistic` ((D, R, T) -> (D, ...)) of `draws` resampled matrices."""
    random = np.random.default_rng(SEED)
    return np.concatenate([statistic(x_DRT) for x_DRT in _draws(x_RT, draws, random)])


def _middle_means(x_DRT: Values) -> Values:
    """(D,) interquartile means."""
    from scipy.stats import trim_mean

    return trim_mean(x_DRT.reshape(len(x_DRT), -1), TRIMMED, axis=1)


def _profiles(x_DRT: Values, thresholds_K: Values) -> Values:
    """(D, K) profiles: the values are sorted, because counting them for each threshold is slower."""
    sorted_DN = np.sort(x_DRT.reshape(len(x_DRT), -1), axis=1)
    above_DK = [sorted_DN.shape[1] - np.searchsorted(x_N, thresholds_K, side="right") for x_N in sorted_DN]
    return np.array(above_DK) / sorted_DN.shape[1]


def _drawn_ranks(matrices: Sequence[Values], *, lower: bool) -> Values:
    """(D, G) average ranks; every group is resampled."""
    random = np.random.default_rng(SEED)
    means_GDT = [
        np.concatenate([x_DRT.mean(axis=1) for x_DRT in _draws(x_RT, PROFILE_DRAWS, random)])
        for x_RT in matrices
    ]
    return average_ranks(np.stack(means_GDT, axis=1), lower=lower)


def _drawn_improvement(x_RT: Values, y_ST: Values) -> Values:
    """(D,) P(X > Y) with larger values as better ones; both groups are resampled."""
    random = np.random.default_rng(SEED)
    wins_TRS = np.stack([_wins(x_R, y_S) for x_R, y_S in zip(x_RT.T, y_ST.T, strict=True)])
    tasks, runs, others = wins_TRS.shape
    found = np.empty(PROFILE_DRAWS)
    for draw in range(PROFILE_DRAWS):
        row_TR = random.integers(runs, size=(tasks, runs))
        column_TS = random.integers(others, size=(tasks, others))
        picked_TRS = wins_TRS[np.arange(tasks)[:, None, None], row_TR[:, :, None], column_TS[:, None, :]]
        found[draw] = picked_TRS.mean()
    return found


def _wins(x_R: Values, y_S: Values) -> NDArray[np.float64]:
    """(R, S): 1 where x is larger, 0.5 for a tie, else 0."""
    (x_R, y_S), _ = in_whole_units(x_R, y_S)
    return (1 + np.sign(x_R[:, None] - y_S[None, :])) / 2
