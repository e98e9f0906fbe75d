"""Comparison of two groups of runs: difference, interval, tests, and the number of seeds needed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from tqdm import tqdm

from roberta_small.analysis.scoring import select_points
from roberta_small.common.errors import UserError
from roberta_small.common.metrics import cut
from roberta_small.common.statistics import (
    LEVEL,
    SEED,
    Interval,
    Values,
    mean_std,
    t_interval,
    welch_interval,
)

Pairing = Literal["auto", "paired", "unpaired"]
PAIRINGS: tuple[Pairing, ...] = get_args(Pairing)
ALPHA = 0.05
POWER = 0.8
MOST_SEEDS = 100_000
TESTS = ("p_t", "p_rank", "p_permutation")
EXACT_UP_TO = 200_000
"""Maximum number of permutations that a test enumerates: 17 pairs, two groups of 10."""
PERMUTATIONS = 20_000
"""Number of permutations drawn if there are more."""


def compare_groups(
    values: pd.DataFrame,
    groups: Sequence[str] = (),
    *,
    pairs: Sequence[tuple[str, str]] | None = None,
    at: Sequence[str] | None = None,
    pairing: Pairing = "auto",
    lower: bool = False,
    detect: float = 1.0,
    metric: str = "",
) -> pd.DataFrame:
    """Comparisons of all pairs of `groups`, or of `pairs`, at each point in `at` (epochs, "best").

    `values` is the frame of `scores`. With `pairing` "auto" or "paired", runs are paired by seed if at
    least two seeds are common; only these runs are used, and `dropped_a`, `dropped_b` (str) list the other
    seeds. Otherwise the comparison is unpaired and uses all runs.

    Columns: `a`, `b`, `at`, `design` ("paired", "unpaired"), `n_a`, `n_b`, `mean_a`, `mean_b`, `dropped_a`,
    `dropped_b`; the fields of `Difference` (`difference` is mean_a - mean_b, `low` and `high` its interval);
    `p_t_holm`, `p_rank_holm`, `p_permutation_holm` (Holm's correction of each test over all rows);
    `correlation` of the pairs; `p_a_beats_b`; `detect`, `seeds_needed` to detect a difference of `detect`
    with the power `POWER`, `seeds_more` (in addition to the present ones); `std_low`, `std_high` (factors for
    the ends of the 95 % interval of `std`), `seeds_needed_low`, `seeds_needed_high` (for these ends).
    The interval of the difference is `cut` at what `metric` allows.

    Raises `UserError` for an unknown group or point, fewer than two groups, and with "paired" if fewer than
    two seeds are common.
    """
    known = list(dict.fromkeys(values["group"]))
    if pairs is None:
        pairs = list(combinations(dict.fromkeys(groups), 2))
    else:
        groups = [group for pair in pairs for group in pair]
    if len(set(groups)) < 2:
        raise UserError(f"--groups or --pair: give at least two different groups of {', '.join(known)}")
    for group in groups:
        if group not in known:
            raise UserError(
                f"--groups or --pair: no selected run of '{group}' has the metric; available: "
                f"{', '.join(known) or 'none'}"
            )
    select_points(values, at)
    points = list(dict.fromkeys(values["at"])) if at is None else list(dict.fromkeys(at))
    rows = []
    for a, b in tqdm(pairs, desc="comparing", delay=1, leave=False, disable=None):
        for point in points:
            here = values[values["at"] == point]
            of_a, of_b = (here[here["group"] == group].set_index("seed")["value"] for group in (a, b))
            row = _compare_two(of_a, of_b, (a, b, point), pairing, lower)
            row["low"], row["high"] = cut(row["low"], row["high"], metric, row["mean_a"], row["mean_b"])
            rows.append(row | _plan(row, detect))
    frame = pd.DataFrame(rows)
    for test in TESTS:
        frame[f"{test}_holm"] = holm(frame[test].to_list())
    return frame


def against(comparison: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """The rows of `compare_groups` with this group, as differences of the other group minus it.

    Columns: `group`, `at`, `difference`, `low`, `high`, and `p`, that of the t test with Holm's correction
    over all rows of `comparison`.
    """
    rows = comparison[(comparison["a"] == baseline) | (comparison["b"] == baseline)]
    minus = rows["b"] == baseline  # the others have the opposite sign
    found = {
        "group": rows["a"].where(minus, rows["b"]),
        "at": rows["at"],
        "difference": rows["difference"].where(minus, -rows["difference"]),
        "low": rows["low"].where(minus, -rows["high"]),
        "high": rows["high"].where(minus, -rows["low"]),
        "p": rows["p_t_holm"],
    }
    return pd.DataFrame(found).reset_index(drop=True)


def _compare_two(
    a: pd.Series, b: pd.Series, names: tuple[str, str, str], pairing: Pairing, lower: bool
) -> dict[str, Any]:
    """One row of `compare_groups`; `a` and `b` are scores with the seed as index."""
    matched = sorted(set(a.index) & set(b.index))
    if pairing == "paired" and len(matched) < 2:
        raise UserError(
            f"{names[0]} and {names[1]} have {len(matched)} common seeds at {names[2]}, and a paired "
            "comparison needs two; omit --pairing paired"
        )
    pairs = pairing != "unpaired" and len(matched) >= 2
    dropped = [sorted(set(group.index) - set(matched)) if pairs else [] for group in (a, b)]
    if pairs:
        a, b = a[matched], b[matched]
    x, y = a.to_numpy(dtype=float), b.to_numpy(dtype=float)
    row: dict[str, Any] = dict(zip(("a", "b", "at"), names, strict=True))
    row["design"] = "paired" if pairs else "unpaired"
    means = {"mean_a": x.mean() if len(x) else math.nan, "mean_b": y.mean() if len(y) else math.nan}
    row |= {"n_a": len(x), "n_b": len(y), **means}
    row |= {f"dropped_{side}": " ".join(map(str, seeds)) for side, seeds in zip("ab", dropped, strict=True)}
    return {
        **row,
        **vars((paired if pairs else unpaired)(x, y)),
        "correlation": a.corr(b) if pairs and len(x) > 2 and a.nunique() > 1 < b.nunique() else math.nan,
        "p_a_beats_b": beats(x, y, lower=lower),
    }


def _plan(row: dict[str, Any], detect: float) -> dict[str, float]:
    """The seeds needed, also for both ends of the interval of the standard deviation."""
    is_paired, known = row["design"] == "paired", row["std"] > 0
    freedom = row["n_a"] - 1 if is_paired else row["n_a"] + row["n_b"] - 2
    low, high = std_factors(freedom) if known else (math.nan, math.nan)
    factors = {"seeds_needed": 1.0, "seeds_needed_low": low, "seeds_needed_high": high}
    needed = {
        name: seeds_needed(detect, row["std"] * factor, paired=is_paired) for name, factor in factors.items()
    }
    more = max(0.0, needed["seeds_needed"] - min(row["n_a"], row["n_b"])) if known else math.nan
    return {"detect": detect, **needed, "seeds_more": more, "std_low": low, "std_high": high}


@dataclass(frozen=True)
class Difference:
    """mean(a) - mean(b) with its interval, and the p-values of three tests."""

    difference: float
    low: float
    high: float
    std: float
    """With ddof 1. Paired: of the differences; unpaired: the root of the mean of both variances."""
    p_t: float
    p_rank: float
    p_permutation: float
    p_floor: float
    """The smallest p-value that the permutation test can have with this number of runs."""


def paired(a: Values, b: Values) -> Difference:
    """Paired t test, Wilcoxon's signed-rank test and sign-flip test; a[i] and b[i] are a pair.

    The p-value of the sign-flip test (Fisher 1935, section 21) is the fraction of the 2^n ways to swap the
    members of the pairs with a difference at least as large as the observed one.
    """
    from scipy.stats import permutation_test, ttest_1samp, wilcoxon

    (a, b), unit = in_whole_units(a, b)
    differences = a - b
    n = len(differences)
    if n < 2:
        return unpaired(a * unit, b * unit)  # a difference without a test
    low, high = t_interval(differences * unit)
    if not differences.any():
        return Difference(0.0, low, high, 0.0, math.nan, 1.0, 1.0, 2.0 ** (1 - n))
    flips = permutation_test(
        (differences,), np.mean, permutation_type="samples", vectorized=True, **_permutations(2**n)
    )
    return Difference(
        difference=float(differences.mean() * unit),
        low=low,
        high=high,
        std=mean_std(differences)[1] * unit,
        # The t statistic is undefined if all differences are equal.
        p_t=float(ttest_1samp(differences, 0).pvalue) if np.ptp(differences) else math.nan,
        p_rank=float(wilcoxon(differences, method=_ranking(np.abs(differences), 2**n)).pvalue),
        p_permutation=float(flips.pvalue),
        p_floor=2.0 ** (1 - n),
    )


def unpaired(a: Values, b: Values) -> Difference:
    """Welch's t test, the Mann-Whitney rank-sum test and the permutation test of the group labels.

    With fewer than two runs in a group, only the difference is computed.
    """
    from scipy.stats import mannwhitneyu, permutation_test

    (a, b), unit = in_whole_units(a, b)
    if min(len(a), len(b)) < 2:
        difference = float((a * unit).mean() - (b * unit).mean()) if len(a) and len(b) else math.nan
        return Difference(difference, *[math.nan] * 7)
    low, high, p_t = welch_interval(*mean_std(a), len(a), *mean_std(b), len(b))
    relabellings = math.comb(len(a) + len(b), len(a))
    labels = permutation_test(
        (a, b),
        lambda x, y, axis: np.mean(x, axis=axis) - np.mean(y, axis=axis),
        vectorized=True,
        **_permutations(relabellings),
    )
    return Difference(
        difference=float((a.mean() - b.mean()) * unit),
        low=low * unit,
        high=high * unit,
        std=math.sqrt((a.var(ddof=1) + b.var(ddof=1)) / 2) * unit,
        p_t=p_t,
        p_rank=float(mannwhitneyu(a, b, method=_ranking(np.concatenate([a, b]), relabellings)).pvalue),
        p_permutation=float(labels.pvalue),
        p_floor=min(1.0, 2 / relabellings),
    )


def beats(a: Values, b: Values, *, lower: bool = False) -> float:
    """P(a run of A beats a run of B): the fraction of all pairs of runs, with ties counted half.

    The common language effect size (McGraw and Wong 1992), generalized as A by Vargha and Delaney 2000.
    `lower`: the smaller value is better. NaN if a group is empty.
    """
    if not (len(a) and len(b)):
        return math.nan
    (a, b), _ = in_whole_units(a, b)
    signs = np.sign(a[:, None] - b[None, :])
    return float((1 + signs.mean() * (-1 if lower else 1)) / 2)


def holm(p_values: Sequence[float]) -> Values:
    """Adjusted p-values (Holm 1979) of one family of tests; NaN values are ignored and stay NaN."""
    p = np.asarray(p_values, dtype=float)
    adjusted = np.full(len(p), np.nan)
    order = [index for index in np.argsort(p) if not math.isnan(p[index])]
    steps = p[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1)
    return adjusted


def _permutations(total: int) -> dict[str, object]:
    """scipy's options: enumerate all `total` permutations, or draw some of them."""
    resamples = total if total <= EXACT_UP_TO else PERMUTATIONS
    return {"n_resamples": resamples, "batch": 10_000, "rng": np.random.default_rng(SEED)}


def _ranking(ranked: Values, total: int) -> object:
    """scipy's method for a rank test.

    Its exact distributions exclude ties and zero differences, and the normal approximation is poor for a few
    runs: such cases use permutations.
    """
    from scipy.stats import PermutationMethod

    if total > EXACT_UP_TO or (len(np.unique(ranked)) == len(ranked) and ranked.all()):
        return "auto"
    return PermutationMethod(**_permutations(total))


def in_whole_units(*groups: Values) -> tuple[list[Values], float]:
    """The values as integer multiples of a unit, the sixth significant digit of the largest, and that unit.

    Logs are in single precision: 54.45 is read as 54.450000763. Ranks and permutations depend on ties, and
    equal differences are exactly equal as integers.
    """
    largest = max((float(np.abs(group).max()) for group in groups if len(group)), default=0.0)
    digits = 5 - math.floor(math.log10(largest)) if largest > 0 else 0
    return [np.rint(np.asarray(group, dtype=float) * 10.0**digits) for group in groups], 10.0**-digits


def power_of_t(n: int, difference: float, std: float, *, paired: bool = True) -> float:
    """Power of the two-sided t test at `ALPHA` with `n` pairs, or `n` runs in each group.

    The test statistic has a noncentral t distribution (Cohen 1988, chapter 2). Paired: noncentrality
    difference / std * sqrt(n) and n - 1 degrees of freedom, with the `std` of the differences. Unpaired:
    difference / std * sqrt(n / 2) and 2n - 2 degrees of freedom, with the `std` of each group.
    """
    from scipy.stats import nct, t

    freedom = n - 1 if paired else 2 * n - 2
    shift = abs(difference) / std * math.sqrt(n if paired else n / 2)
    critical = t.ppf(1 - ALPHA / 2, freedom)
    wrong_sign = nct.cdf(-critical, freedom, shift)
    # scipy's cdf is NaN far in the tail, where the probability of the wrong sign is negligible.
    return float(nct.sf(critical, freedom, shift) + (0.0 if math.isnan(wrong_sign) else wrong_sign))


def seeds_needed(difference: float, std: float, *, paired: bool = True) -> float:
    """The smallest number of pairs (unpaired: of runs in each group), at least 2, with the power `POWER`.

    NaN if `std` is zero or NaN, infinite beyond 100,000.
    """
    if not std > 0 or difference == 0:
        return math.nan if not std > 0 else math.inf

    def enough(n: int) -> bool:
        return power_of_t(n, difference, std, paired=paired) >= POWER

    too_few, n = 1, 2
    while not enough(n):
        if n >= MOST_SEEDS:
            return math.inf
        too_few, n = n, 2 * n
    while n - too_few > 1:
        middle = (too_few + n) // 2
        too_few, n = (too_few, middle) if enough(middle) else (middle, n)
    return float(n)


def std_factors(freedom: int) -> Interval:
    """Factors of an estimated standard deviation for the ends of the 95 % interval of the true one.

    sqrt(freedom / chi2) for normally distributed values and `freedom` degrees of freedom.
    """
    from scipy.stats import chi2

    low, high = chi2.ppf([(1 + LEVEL) / 2, (1 - LEVEL) / 2], freedom)
    return math.sqrt(freedom / low), math.sqrt(freedom / high)
