"""Two groups compared: pairing, families of tests, planning, power."""

import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestIndPower, TTestPower

from roberta_small.analysis.compare import against, compare_groups, power_of_t, seeds_needed, std_factors
from roberta_small.analysis.query import Query, Study
from roberta_small.analysis.read.long_table import load_runs
from roberta_small.analysis.scoring import best_checkpoints, scores
from roberta_small.common.errors import UserError
from tests.support.analysis.run_trees import write_run

GROUPS = ["fairseq/pretrained", "fairseq/random"]
BEST_TESTS = np.array([79.25, 78.5, 80.0]), np.array([65.5, 66.75, 68.25])


def compared(root, groups=GROUPS, **options):
    table = load_runs(root)
    return compare_groups(scores(table, best_checkpoints(table), "accuracy"), groups, **options)


def test_paired_by_seed(runs):
    (row,) = compared(runs, at=["best"]).to_dict("records")
    expected = stats.ttest_rel(*BEST_TESTS)
    assert (row["design"], row["n_a"], row["n_b"]) == ("paired", 3, 3)
    assert (row["mean_a"], row["mean_b"]) == pytest.approx((79.25, BEST_TESTS[1].mean()))
    assert row["difference"] == pytest.approx(79.25 - BEST_TESTS[1].mean())
    assert row["p_t"] == row["p_t_holm"] == pytest.approx(expected.pvalue)
    assert row["correlation"] == pytest.approx(np.corrcoef(*BEST_TESTS)[0, 1])
    assert row["p_a_beats_b"] == 1.0


def test_differences_to_a_baseline_have_its_sign_whatever_the_order_of_the_pair(runs):
    random, pretrained = GROUPS[::-1]
    forwards, backwards = (
        against(compared(runs, at=["best"], pairs=[pair]), random).iloc[0]
        for pair in ((pretrained, random), (random, pretrained))
    )
    assert forwards["group"] == backwards["group"] == pretrained
    columns = ["difference", "low", "high", "p"]
    assert forwards[columns].tolist() == pytest.approx(backwards[columns].tolist())
    expected = stats.ttest_rel(*BEST_TESTS)
    ends = expected.confidence_interval(0.95)
    assert forwards[["low", "high"]].tolist() == pytest.approx([ends.low, ends.high])
    assert against(compared(runs, at=["best"]), "fairseq/other").empty


def test_unpaired_seeds_are_dropped_and_listed(runs):
    write_run(runs, "random", 7, [99.0], [99.0])
    write_run(runs, "pretrained", 12, [10.0], [10.0])
    write_run(runs, "pretrained", 5, [10.0], [10.0])
    (row,) = compared(runs, at=["best"]).to_dict("records")
    assert (row["dropped_a"], row["dropped_b"]) == ("5 12", "7")
    assert row["difference"] == pytest.approx(79.25 - BEST_TESTS[1].mean())


def test_groups_without_two_common_seeds_are_unpaired(tmp_path):
    for seed, test in enumerate(BEST_TESTS[0], start=1):
        write_run(tmp_path, "pretrained", seed, [50.0], [test])
    for seed, test in enumerate(BEST_TESTS[1], start=3):
        write_run(tmp_path, "random", seed, [50.0], [test])
    (row,) = compared(tmp_path, at=["best"]).to_dict("records")
    assert (row["design"], row["n_a"], row["n_b"], row["dropped_a"]) == ("unpaired", 3, 3, "")
    assert row["p_t"] == pytest.approx(stats.ttest_ind(*BEST_TESTS, equal_var=False).pvalue)
    with pytest.raises(UserError, match=r"have 1 common seeds at best.*--pairing"):
        compared(tmp_path, at=["best"], pairing="paired")


def test_all_pairs_of_groups_at_all_points_are_one_family(runs):
    for seed in (1, 2, 3):
        write_run(runs, "other", seed, [50.0 + seed] * 3, [60.0 + seed**2, 60.0, 61.0 - seed])
    frame = compared(runs, [*GROUPS, "fairseq/other"])
    assert len(frame) == 3 * 4
    assert frame["at"].tolist() == ["1", "2", "3", "best"] * 3
    tested = frame["p_t"].notna()
    expected = multipletests(frame.loc[tested, "p_t"], method="holm")[1]
    np.testing.assert_allclose(frame.loc[tested, "p_t_holm"], expected)


def test_plan_is_that_of_statsmodels(runs):
    (row,) = compared(runs, at=["best"], detect=1.5).to_dict("records")
    std = np.std(BEST_TESTS[0] - BEST_TESTS[1], ddof=1)
    n = TTestPower().solve_power(effect_size=1.5 / std, alpha=0.05, power=0.8)
    assert row["seeds_needed"] == math.ceil(n)
    assert row["seeds_more"] == math.ceil(n) - 3
    assert row["seeds_needed_low"] < row["seeds_needed"] < row["seeds_needed_high"]


def test_one_run_each_is_compared_without_a_test(tmp_path):
    write_run(tmp_path, "pretrained", 1, [50.0], [60.0])
    write_run(tmp_path, "random", 1, [50.0], [55.0])
    (row,) = compared(tmp_path, at=["best"]).to_dict("records")
    assert (row["difference"], row["design"]) == (5.0, "unpaired")
    assert all(math.isnan(row[name]) for name in ("p_t", "low", "seeds_needed", "seeds_more", "p_t_holm"))


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
