"""Power of the t test, and the number of seeds needed to detect a difference."""

from __future__ import annotations

import math

from roberta_small.common.statistics import Interval

ALPHA = 0.05
POWER = 0.8
MOST_SEEDS = 100_000


def power_of_t(n: int, difference: float, std: float, *, paired: bool = True, alpha: float = ALPHA) -> float:
    """Power of the two-sided t test with `n` pairs, or `n` runs in each group.

    The test statistic has a noncentral t distribution (Cohen 1988, chapter 2). Paired: noncentrality
    difference / std * sqrt(n) and n - 1 degrees of freedom, with the `std` of the differences. Unpaired:
    difference / std * sqrt(n / 2) and 2n - 2 degrees of freedom, with the `std` of each group.
    """
    from scipy.stats import nct, t

    freedom = n - 1 if paired else 2 * n - 2
    shift = abs(difference) / std * math.sqrt(n if paired else n / 2)
    critical = t.ppf(1 - alpha / 2, freedom)
    wrong_sign = nct.cdf(-critical, freedom, shift)
    # scipy's cdf is NaN far in the tail, where the probability of the wrong sign is negligible.
    return float(nct.sf(critical, freedom, shift) + (0.0 if math.isnan(wrong_sign) else wrong_sign))


def seeds_needed(
    difference: float, std: float, *, paired: bool = True, alpha: float = ALPHA, power: float = POWER
) -> float:
    """The smallest number of pairs (unpaired: of runs in each group), at least 2, with this `power`.

    NaN if `std` is zero or NaN, infinite beyond 100,000.
    """
    if not std > 0 or difference == 0:
        return math.nan if not std > 0 else math.inf

    def enough(n: int) -> bool:
        return power_of_t(n, difference, std, paired=paired, alpha=alpha) >= power

    too_few, n = 1, 2
    while not enough(n):
        if n >= MOST_SEEDS:
            return math.inf
        too_few, n = n, 2 * n
    while n - too_few > 1:
        middle = (too_few + n) // 2
        too_few, n = (too_few, middle) if enough(middle) else (middle, n)
    return float(n)


def std_factors(freedom: int, level: float = 0.95) -> Interval:
    """Factors of an estimated standard deviation for the ends of the interval of the true one.

    sqrt(freedom / chi2) for normally distributed values and `freedom` degrees of freedom.
    """
    from scipy.stats import chi2

    low, high = chi2.ppf([(1 + level) / 2, (1 - level) / 2], freedom)
    return math.sqrt(freedom / low), math.sqrt(freedom / high)
