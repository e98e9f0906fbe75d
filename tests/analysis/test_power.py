"""Power against statsmodels and against simulation."""

import math

import pytest
from statsmodels.stats.power import TTestIndPower, TTestPower

from roberta_small.analysis.compare import power_of_t, seeds_needed, std_factors
from roberta_small.analysis.query import Query, Study


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("n", [2, 3, 10, 30])
@pytest.mark.parametrize("effect", [0.2, 0.5, 1.0])
def test_power_is_statsmodels(paired, n, effect):
    if paired:
        expected = TTestPower().power(effect, n, 0.05, alternative="two-sided")
    else:
        expected = TTestIndPower().power(effect, n, 0.05, alternative="two-sided")
    assert power_of_t(n, effect, 1.0, paired=paired) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("difference", [0.3, 1.0, 2.0])
def test_the_number_is_the_first_that_suffices(paired, difference):
    n = int(seeds_needed(difference, 1.5, paired=paired))
    assert power_of_t(n, difference, 1.5, paired=paired) >= 0.8
    assert n == 2 or power_of_t(n - 1, difference, 1.5, paired=paired) < 0.8


def test_the_difference_to_detect_is_a_point_of_what_is_in_percent():
    assert Study(Query(), metric="accuracy").difference == 1.0
    assert Study(Query(), metric="mcc").difference == 0.01


def test_no_plan_without_spread_or_difference():
    assert math.isnan(seeds_needed(1.0, 0.0))
    assert math.isnan(seeds_needed(1.0, math.nan))
    assert seeds_needed(0.001, 10.0) == math.inf
    assert seeds_needed(100.0, 1e-3) == 2


def test_a_standard_deviation_of_three_values_is_nearly_unknown():
    """sqrt(2 / 7.3778) and sqrt(2 / 0.0506): chi-square with two degrees of freedom, from a table."""
    assert std_factors(2) == pytest.approx((0.5207, 6.285), rel=1e-3)
