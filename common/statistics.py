"""The interval for a share of right answers."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pandas as pd
from numpy.typing import NDArray


def wilson_interval(share: float, n: float, level: float = 0.95) -> tuple[float, float]:
    """(low, high) for the share (0 to 1) of right answers, of which `n` were tried; NaN without any.

    Wilson's score interval (Wilson 1927; Brown, Cai and DasGupta 2001, equation 4). `share * n` need not be
    whole: a mean over seeds has a share too.
    """
    if not n > 0 or math.isnan(share):
        return math.nan, math.nan
    z2 = NormalDist().inv_cdf((1 + level) / 2) ** 2
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = math.sqrt(z2) / (1 + z2 / n) * math.sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    return middle - half, middle + half


# --- Intervals for a mean over seeds and for a difference of two means; that for a share is in

Values = NDArray[np.float64]
Interval = tuple[float, float]

LEVEL = 0.95
DRAWS = 10_000
SEED = 1
NONE: Interval = (math.nan, math.nan)


def t_interval(values: Values, level: float = LEVEL) -> Interval:
    """Student's interval for the mean; it takes the values for draws from a normal distribution.

    None (NaN) for values that do not vary: of a normal distribution they are not.
    """
    from scipy.stats import t

    n = len(values)
    if n < 2 or np.ptp(values) == 0:
        return NONE
    half = t.ppf((1 + level) / 2, n - 1) * values.std(ddof=1) / math.sqrt(n)
    return values.mean() - half, values.mean() + half


def bootstrap_interval(
    values: Values, level: float = LEVEL, *, draws: int = DRAWS, seed: int = SEED
) -> Interval:
    """Percentile bootstrap of the mean (Efron and Tibshirani 1993, section 13.3).

    It never leaves the range of the values, and is too narrow for a handful of them: at level 0.95 it holds
    the mean of a normal distribution in 76 % of samples of 3 and in 91 % of samples of 10.
    """
    from scipy.stats import bootstrap

    if len(values) < 2:
        return NONE
    interval = bootstrap(
        (values,), np.mean, n_resamples=draws, confidence_level=level, method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval  # fmt: skip
    return float(interval.low), float(interval.high)


def welch_interval(
    mean_a: float, std_a: float, n_a: float, mean_b: float, std_b: float, n_b: float, level: float = LEVEL
) -> tuple[float, float, float]:
    """(low, high, p) of mean_a - mean_b with unequal variances; `std` with ddof 1.

    Welch's test with the degrees of freedom of Welch and Satterthwaite (Welch 1947). NaN where a group has
    fewer than two values or no group varies.
    """
    from scipy.stats import t

    if not (n_a > 1 and n_b > 1):
        return math.nan, math.nan, math.nan
    square_a, square_b = std_a**2 / n_a, std_b**2 / n_b
    error = math.sqrt(square_a + square_b)
    if not error > 0:
        return math.nan, math.nan, math.nan
    freedom = error**4 / (square_a**2 / (n_a - 1) + square_b**2 / (n_b - 1))
    difference = mean_a - mean_b
    half = t.ppf((1 + level) / 2, freedom) * error
    return difference - half, difference + half, float(2 * t.sf(abs(difference) / error, freedom))


# --- Which classes are confused, and whether confidence is earned: more than right and wrong.

BINS = 10


def confusion(answers: pd.DataFrame) -> pd.DataFrame:
    """(C, C) float: mean count a run, a row for each true class and a column for each predicted one."""
    classes = list(answers["gold"].cat.categories)
    counts = pd.crosstab(answers["gold"].astype(str), answers["predicted"].astype(str))
    return counts.reindex(index=classes, columns=classes, fill_value=0) / answers["seed"].nunique()


def reliability(answers: pd.DataFrame, bins: int = BINS) -> pd.DataFrame:
    """Accuracy against confidence in `bins` bins of equal width; bins without an answer are left out.

    Columns: `confidence` and `accuracy` (means, 0 to 1), `share` of the answers.
    """
    # A bin holds its upper end: (0, 0.1], (0.1, 0.2], ... But that of C equally probable classes, 1/C, is
    # where confidence begins, and would often be alone in the bin below.
    first = bins // len(answers["gold"].cat.categories) + 1
    number = np.clip(np.ceil(answers["confidence"].to_numpy(dtype=float) * bins).astype(int), first, bins)
    groups = answers.astype({"correct": float}).groupby(number)
    return pd.DataFrame(
        {
            "confidence": groups["confidence"].mean(),
            "accuracy": groups["correct"].mean(),
            "share": groups.size() / len(answers),
        }
    )


def expected_calibration_error(answers: pd.DataFrame, bins: int = BINS) -> float:
    """Mean distance of accuracy and confidence, weighted by the share of each bin (0 to 1).

    ECE of Guo et al. 2017, "On Calibration of Modern Neural Networks", equation 3; of the predicted class.
    """
    table = reliability(answers, bins)
    return float((table["share"] * (table["accuracy"] - table["confidence"]).abs()).sum())
