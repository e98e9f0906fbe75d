"""Intervals against statsmodels, SciPy and tables in textbooks."""

import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from roberta_small.common.statistics import bootstrap_interval, t_interval, welch_interval, wilson_interval


@pytest.mark.parametrize(("correct", "n"), [(0, 10), (1, 10), (1316, 2000), (10, 10), (163, 200)])
def test_wilson_interval_equals_statsmodels(correct, n):
    expected = proportion_confint(correct, n, alpha=0.05, method="wilson")
    assert wilson_interval(correct / n, n) == pytest.approx(expected, abs=1e-12)


def test_wilson_interval_of_a_fraction_between_two_counts():
    low, high = wilson_interval(0.5001, 2000)
    assert wilson_interval(0.5, 2000)[0] < low < wilson_interval(0.5005, 2000)[0]
    assert low < 0.5001 < high


def test_wilson_interval_without_trials_is_nan():
    assert all(map(math.isnan, wilson_interval(0.5, 0)))
    assert all(map(math.isnan, wilson_interval(math.nan, 10)))


THREE = np.array([79.25, 78.5, 80.0])


@pytest.mark.parametrize("level", [0.9, 0.95])
def test_t_is_scipys(level):
    expected = stats.ttest_1samp(THREE, 0).confidence_interval(level)
    assert t_interval(THREE, level) == pytest.approx((expected.low, expected.high))


def test_the_bootstrap_of_three_is_that_of_all_27_resamples():
    means = np.array([np.mean([a, b, c]) for a in THREE for b in THREE for c in THREE])
    low, high = bootstrap_interval(THREE, draws=20_000)
    # 1/27 = 3.7 % of the resamples lie at each end: more than 2.5 %, so the ends are the extremes.
    assert (low, high) == (means.min(), means.max()) == (78.5, 80.0)


@pytest.mark.parametrize("n", [2, 3, 30])
def test_welch_is_scipys(n):
    random = np.random.default_rng(n)
    a, b = random.normal(70, 1, size=n), random.normal(69, 3, size=n + 1)
    expected = stats.ttest_ind(a, b, equal_var=False)
    interval = expected.confidence_interval(0.95)
    ours = welch_interval(a.mean(), a.std(ddof=1), len(a), b.mean(), b.std(ddof=1), len(b))
    assert ours == pytest.approx((interval.low, interval.high, expected.pvalue))


def test_too_few_values_have_no_interval():
    assert all(map(math.isnan, t_interval(THREE[:1])))
    assert all(map(math.isnan, t_interval(np.full(3, 50.0))))  # a width of zero would claim certainty
    assert all(map(math.isnan, bootstrap_interval(THREE[:1])))
    assert all(map(math.isnan, bootstrap_interval(np.full(3, 100.0))))
    assert all(map(math.isnan, welch_interval(1.0, 1.0, 1, 2.0, 1.0, 3)))
    assert all(map(math.isnan, welch_interval(1.0, 0.0, 3, 2.0, 0.0, 3)))


@pytest.mark.parametrize(("n", "share"), [(3, 0.76), (10, 0.91)])
def test_coverage_of_the_bootstrap(n, share):
    random = np.random.default_rng(0)
    samples = (random.normal(size=n) for _ in range(600))
    held = [low < 0 < high for low, high in (bootstrap_interval(x, draws=500) for x in samples)]
    assert np.mean(held) == pytest.approx(share, abs=0.04)
