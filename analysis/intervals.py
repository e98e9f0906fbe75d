"""Intervals for a mean over seeds and for a difference of two means; that for a share is in `common.wilson`.

Arrays are (values,) float; every interval is (low, high), NaN where there are too few values.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

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
