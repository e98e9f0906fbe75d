"""Mean and standard deviation, intervals, confusion counts and calibration.

Shapes: N examples, C classes, D weightings of the examples (bootstrap samples).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

Values = NDArray[np.float64]
Interval = tuple[float, float]

LEVEL = 0.95
DRAWS = 10_000
SEED = 1
NONE: Interval = (math.nan, math.nan)
BINS = 15
"""Number of bins of the expected calibration error; they have equal width."""
ECE = f"ECE ({BINS} bins)"
"""Name of the expected calibration error in tables and figures."""


def mean_std(values: Sequence[float] | Values, ddof: int = 1) -> tuple[float, float]:
    """(mean, standard deviation) of `values`, ignoring NaN; the standard deviation divides by n - ddof.

    `ddof` 1 is the sample standard deviation, 0 that of the population. The mean of no values is NaN, and so
    is the standard deviation of `ddof` or fewer values.
    """
    x = np.asarray(values, dtype=float)
    x = x[~np.isnan(x)]
    mean = float(x.mean()) if len(x) else math.nan
    return mean, float(x.std(ddof=ddof)) if len(x) > ddof else math.nan


def wilson_interval(fraction: float, n: float, level: float = LEVEL) -> Interval:
    """(low, high) for the `fraction` (0 to 1) of correct predictions among `n`; NaN for n = 0.

    Wilson's score interval (Wilson 1927; Brown, Cai and DasGupta 2001, equation 4). `fraction * n` need not
    be an integer: the mean over several seeds is accepted.
    """
    if not n > 0 or math.isnan(fraction):
        return math.nan, math.nan
    z2 = NormalDist().inv_cdf((1 + level) / 2) ** 2
    middle = (fraction + z2 / (2 * n)) / (1 + z2 / n)
    half = math.sqrt(z2) / (1 + z2 / n) * math.sqrt(fraction * (1 - fraction) / n + z2 / (4 * n * n))
    return middle - half, middle + half


def t_interval(values: Values, level: float = LEVEL) -> Interval:
    """Student's t interval for the mean of normally distributed values.

    (NaN, NaN) for fewer than two values and if all values are equal.
    """
    from scipy.stats import t

    n = len(values)
    if n < 2 or np.ptp(values) == 0:
        return NONE
    half = t.ppf((1 + level) / 2, n - 1) * values.std(ddof=1) / math.sqrt(n)
    return values.mean() - half, values.mean() + half


def bootstrap_interval(values: Values, level: float = LEVEL, *, draws: int = DRAWS) -> Interval:
    """Percentile bootstrap interval of the mean (Efron and Tibshirani 1993, section 13.3).

    It stays within the range of the values and is too narrow for small samples: at level 0.95 it covers the
    mean of a normal distribution in 76 % of samples of size 3 and in 91 % of samples of size 10. (NaN, NaN)
    for fewer than two values and if all values are equal.
    """
    from scipy.stats import bootstrap

    if len(values) < 2 or np.ptp(values) == 0:
        return NONE
    interval = bootstrap(
        (values,), np.mean, n_resamples=draws, confidence_level=level, method="percentile",
        rng=np.random.default_rng(SEED),
    ).confidence_interval  # fmt: skip
    return float(interval.low), float(interval.high)


def welch_interval(
    mean_a: float, std_a: float, n_a: float, mean_b: float, std_b: float, n_b: float, level: float = LEVEL
) -> tuple[float, float, float]:
    """(low, high, p) of mean_a - mean_b with unequal variances; both `std` with ddof 1.

    Welch's t test with the degrees of freedom of Welch and Satterthwaite (Welch 1947). NaN if a group has
    fewer than two values or if both standard deviations are 0.
    """
    if not (n_a > 1 and n_b > 1):
        return math.nan, math.nan, math.nan
    square_a, square_b = std_a**2 / n_a, std_b**2 / n_b
    error = math.sqrt(square_a + square_b)
    if not error > 0:
        return math.nan, math.nan, math.nan
    freedom = error**4 / (square_a**2 / (n_a - 1) + square_b**2 / (n_b - 1))
    return _t_test(mean_a - mean_b, error, freedom, level)


def one_std_interval(
    mean: float, std: float, n: float, other_mean: float, other_n: float = math.inf, level: float = LEVEL
) -> tuple[float, float, float]:
    """(low, high, p) of mean - other_mean if the standard deviation of the other group is unknown.

    The other group is assumed to have the same `std` (with ddof 1): Student's t test with the n - 1 degrees
    of freedom of the known group. With an infinite `other_n`, `other_mean` is exact, and this is the
    one-sample t test. NaN for fewer than two values and if `std` is 0.
    """
    if not (n > 1 and std > 0):
        return math.nan, math.nan, math.nan
    return _t_test(mean - other_mean, std * math.sqrt(1 / n + 1 / other_n), n - 1, level)


def _t_test(difference: float, error: float, freedom: float, level: float) -> tuple[float, float, float]:
    from scipy.stats import t

    half = t.ppf((1 + level) / 2, freedom) * error
    return difference - half, difference + half, float(2 * t.sf(abs(difference) / error, freedom))


def confusion(predictions: pd.DataFrame) -> pd.DataFrame:
    """(C, C) float: mean count per run, a row for each true class and a column for each predicted one.

    `predictions` has the columns `label`, `predicted` (categorical with all C classes) and `seed`.
    """
    import pandas as pd

    classes = list(predictions["label"].cat.categories)
    counts = pd.crosstab(predictions["label"].astype(str), predictions["predicted"].astype(str))
    return counts.reindex(index=classes, columns=classes, fill_value=0) / predictions["seed"].nunique()


def sum_by(group_N: NDArray[np.int64], groups: int, weights_DN: Values) -> Values:
    """(D, groups) sum of the weights of each group of examples."""
    from scipy import sparse

    count = len(group_N)
    membership = sparse.csr_array((np.ones(count), group_N, np.arange(count + 1)), shape=(count, groups))
    return np.asarray(weights_DN @ membership)


def confidence_bins(confidence_N: Values, bins: int = BINS) -> NDArray[np.int64]:
    """(N,) 0-based bin of each confidence; bins have equal width and include their upper end."""
    return np.clip(np.ceil(np.asarray(confidence_N, dtype=float) * bins).astype(int) - 1, 0, bins - 1)


def reliability(confidence_N: Values, correct_N: NDArray[np.bool_], bins: int = BINS) -> pd.DataFrame:
    """Accuracy against confidence in `bins` bins; empty bins are omitted.

    `confidence_N` is the probability of the predicted class, `correct_N` whether that class is the label.
    Index: the bin, counted from 0. Columns: `confidence` and `accuracy` (means, 0 to 1), `fraction` (of the
    examples).
    """
    import pandas as pd

    frame = pd.DataFrame(
        {"confidence": np.asarray(confidence_N, float), "accuracy": np.asarray(correct_N, float)}
    )
    groups = frame.groupby(confidence_bins(frame["confidence"].to_numpy(), bins))
    return groups.mean().assign(fraction=groups.size() / len(frame))


def expected_calibration_error(
    confidence_N: Values, correct_N: NDArray[np.bool_], weights_DN: Values | None = None, bins: int = BINS
) -> Values:
    """(D,) mean over the bins of |accuracy - mean confidence|, weighted by their size; 0 to 1.

    `confidence_N` is the probability of the predicted class, `correct_N` whether that class is the label,
    `weights_DN` the weight of each example (default: one row of ones). Guo et al. 2017, "On Calibration of
    Modern Neural Networks", equation 3.
    """
    confidence_N = np.asarray(confidence_N, dtype=float)
    weights_DN = np.ones((1, len(confidence_N))) if weights_DN is None else weights_DN
    excess_DN = weights_DN * (np.asarray(correct_N, dtype=float) - confidence_N)
    sums_DB = sum_by(confidence_bins(confidence_N, bins), bins, excess_DN)
    return np.abs(sums_DB).sum(axis=1) / weights_DN.sum(axis=1)
