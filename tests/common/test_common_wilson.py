"""Wilson's interval against statsmodels."""

import math

import pytest
from statsmodels.stats.proportion import proportion_confint

from common.statistics import wilson_interval


@pytest.mark.parametrize(("right", "n"), [(0, 10), (1, 10), (1316, 2000), (10, 10), (163, 200)])
def test_wilson_is_statsmodels(right, n):
    expected = proportion_confint(right, n, alpha=0.05, method="wilson")
    assert wilson_interval(right / n, n) == pytest.approx(expected, abs=1e-12)


def test_wilson_takes_shares_between_two_counts():
    low, high = wilson_interval(0.5001, 2000)
    assert wilson_interval(0.5, 2000)[0] < low < wilson_interval(0.5005, 2000)[0]
    assert low < 0.5001 < high


def test_of_nothing_tried_there_is_no_interval():
    assert all(map(math.isnan, wilson_interval(0.5, 0)))
    assert all(map(math.isnan, wilson_interval(math.nan, 10)))
