"""Wilson's interval against statsmodels."""

import math

import pytest
from statsmodels.stats.proportion import proportion_confint

from roberta_small.common.statistics import wilson_interval


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
