"""Tests of differences against scipy, statsmodels and full enumeration."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from roberta_small.analysis.compare import beats, holm, paired, unpaired
from roberta_small.analysis.predictions import bootstrap_examples

A, B = np.array([79.25, 78.5, 80.0]), np.array([65.5, 66.75, 68.25])


def enumerated_sign_flips(differences):
    """The share of all sign patterns whose sum is as far from zero."""
    sums = [
        abs(sum(s * d for s, d in zip(signs, differences, strict=True)))
        for signs in itertools.product((1, -1), repeat=len(differences))
    ]
    return np.mean(np.array(sums) >= abs(sum(differences)) - 1e-9)


def test_welch_is_scipys():
    ours, expected = unpaired(A, B), stats.ttest_ind(A, B, equal_var=False)
    interval = expected.confidence_interval(0.95)
    assert (ours.low, ours.high, ours.p_t) == pytest.approx((interval.low, interval.high, expected.pvalue))


@pytest.mark.parametrize("n", [3, 5, 8])
def test_permutation_and_rank_tests_enumerate_every_flip(n):
    random = np.random.default_rng(n)
    a, b = random.normal(70.5, 1, size=n).round(2), random.normal(70, 1, size=n).round(2)
    ours = paired(a, b)
    assert ours.p_permutation == pytest.approx(enumerated_sign_flips(a - b))
    ranks = stats.rankdata(np.abs(a - b)) * np.sign(a - b)
    assert ours.p_rank == pytest.approx(enumerated_sign_flips(ranks))


def test_three_pairs_cannot_give_less_than_a_quarter():
    ours = paired(A, B)
    assert ours.p_permutation == ours.p_rank == ours.p_floor == 0.25
    assert unpaired(A, B).p_permutation == unpaired(A, B).p_floor == pytest.approx(0.1)


def test_unpaired_permutation_enumerates_every_relabelling():
    a, b = np.array([1.0, 4.0, 6.0, 7.0]), np.array([2.0, 3.0, 5.0, 0.0])
    pooled = np.concatenate([a, b])
    found = [
        pooled[list(chosen)].mean() - np.delete(pooled, list(chosen)).mean()
        for chosen in itertools.combinations(range(8), 4)
    ]
    assert unpaired(a, b).p_permutation == pytest.approx(np.mean(np.abs(found) >= a.mean() - b.mean() - 1e-9))
    assert unpaired(a, b).p_rank == pytest.approx(stats.mannwhitneyu(a, b, method="exact").pvalue)


def test_more_pairs_than_can_be_enumerated_are_drawn():
    random = np.random.default_rng(0)
    a, b = random.normal(70.3, 1, size=40), random.normal(70, 1, size=40)
    ours = paired(a, b)
    assert ours.p_permutation == pytest.approx(ours.p_t, abs=0.02)
    assert ours == paired(a, b)


def test_single_precision_does_not_break_ties():
    """Differences of 0.6, 0.6 and -0.6 are equal in size, whatever the storage adds in the eighth digit."""
    a, b = np.array([67.35, 60.6, 50.0]), np.array([66.75, 60.0, 50.6])
    stored = paired(a.astype(np.float32).astype(float), b.astype(np.float32).astype(float))
    assert stored == paired(a, b)
    assert stored.p_permutation == 1.0
    assert stored.difference == pytest.approx(0.2)


def test_swapping_the_groups_changes_only_the_sign():
    for test in (paired, unpaired):
        one, other = test(A, B), test(B, A)
        assert one.difference == -other.difference
        assert (one.low, one.high) == pytest.approx((-other.high, -other.low))
        assert (one.p_t, one.p_rank, one.p_permutation) == pytest.approx(
            (other.p_t, other.p_rank, other.p_permutation)
        )
    assert beats(A, B) == 1 - beats(B, A)


def test_no_difference_at_all():
    ours = paired(A, A)
    assert (ours.difference, ours.p_rank, ours.p_permutation) == (0.0, 1.0, 1.0)
    assert math.isnan(ours.p_t)
    assert math.isnan(ours.low)


def test_a_constant_difference_has_no_t_test():
    """It would claim p = 0 from two runs."""
    assert math.isnan(paired(A + 1, A).p_t)
    assert paired(A + 1, A).p_permutation == 0.25


@pytest.mark.parametrize("test", [paired, unpaired])
def test_one_run_each_is_a_difference_without_a_test(test):
    ours = test(A[:1], B[:1])
    assert ours.difference == pytest.approx(79.25 - 65.5)
    assert all(
        map(math.isnan, (ours.low, ours.high, ours.p_t, ours.p_rank, ours.p_permutation, ours.p_floor))
    )


def test_beats_counts_pairs_and_half_of_the_ties():
    assert beats(np.array([1.0, 2.0]), np.array([2.0, 0.0])) == (1 + 0.5 + 1) / 4
    assert beats(np.array([1.0, 2.0]), np.array([2.0, 0.0]), lower=True) == 1 - 2.5 / 4
    random = np.random.default_rng(0)
    a, b = random.normal(size=9), random.normal(size=7)
    assert beats(a, b) == pytest.approx(stats.mannwhitneyu(a, b).statistic / 63)


def test_holm_ignores_nan():
    np.testing.assert_allclose(holm([0.02, np.nan, 0.04]), [0.04, np.nan, 0.04])
    assert np.isnan(holm([np.nan])).all()
    assert len(holm([])) == 0


def test_the_bootstrap_of_examples_is_scipys():
    random = np.random.default_rng(0)
    differences = (random.random(500) < 0.8).astype(float) - (random.random(500) < 0.7)
    expected = stats.bootstrap(
        (differences,), np.mean, n_resamples=10_000, method="percentile", rng=np.random.default_rng(5)
    ).confidence_interval
    assert bootstrap_examples(differences) == pytest.approx(tuple(expected), abs=0.004)


def test_ranks_with_ties_and_zeros_are_exact_too():
    """Where scipy's tables give up, its normal approximation would go below the smallest p there is."""
    a = np.array([3.0, 3.0, 4.0, 2.0])
    differences = np.array([1.0, 1.0, 2.0, 0.0])
    ranks = stats.rankdata(differences[:3])  # zeros are left out, as Wilcoxon has it
    assert paired(a, a - differences).p_rank == pytest.approx(enumerated_sign_flips(ranks)) == 0.25
    assert unpaired(np.array([5.0, 5.0, 6.0]), np.array([1.0, 2.0, 2.0])).p_rank == pytest.approx(0.1)


@pytest.mark.parametrize("test", [paired, unpaired])
@pytest.mark.parametrize("seed", range(2))
def test_p_values_know_no_unit(test, seed):
    """Fractions or percentages, from zero or from fifty: the same p, the interval in the unit given."""
    random = np.random.default_rng(seed)
    a, b = (random.integers(600, 700, size=5) / 10 for _ in range(2))
    one, other = test(a, b), test(a / 100 + 0.2, b / 100 + 0.2)
    for name in ("p_t", "p_rank", "p_permutation", "p_floor"):
        assert getattr(one, name) == pytest.approx(getattr(other, name))
    for name in ("difference", "low", "high", "std"):
        assert getattr(one, name) == pytest.approx(100 * getattr(other, name))
    assert one.p_floor <= one.p_permutation <= 1
    assert one.low <= one.difference <= one.high
    assert (one.low <= 0 <= one.high) == (one.p_t >= 0.05)
