"""Scores of every run: their spread over seeds, means after each epoch, and the expected best of n seeds."""

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from roberta_small.analysis.read.long_table import load_runs
from roberta_small.analysis.scoring import (
    best_checkpoints,
    diverged,
    expected_best,
    expected_best_of_seeds,
    per_epoch,
    scores,
    spread_over_seeds,
    summarize,
)
from roberta_small.common.errors import UserError
from roberta_small.common.statistics import mean_std
from tests.support.analysis.run_trees import write_events, write_run


def scores_of(root, subset="test", **options):
    table = load_runs(root)
    return scores(table, best_checkpoints(table, **options), "accuracy", subset)


def test_scores_are_epochs_in_order_then_the_best(runs):
    values = scores_of(runs)
    random = values[values["group"] == "fairseq/random"]
    by_point = {at: rows["value"].tolist() for at, rows in random.groupby("at", sort=False)}
    assert list(by_point) == ["1", "2", "3", "best"]
    assert by_point["1"] == [50.5, 66.75, 51.0]
    assert by_point["best"] == [65.5, 66.75, 68.25]


def test_ten_epochs_come_in_the_order_of_numbers(tmp_path):
    write_run(tmp_path, "random", 1, [50.0] * 10, [51.0] * 10)
    assert scores_of(tmp_path)["at"].tolist() == [*map(str, range(1, 11)), "best"]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_values_that_are_not_finite_are_excluded(runs, bad):
    write_run(runs, "random", 4, [50.0], [bad])
    assert 4 not in set(scores_of(runs)["seed"])


def test_runs_without_a_value_are_listed(runs):
    write_run(runs, "random", 4, [50.0, 51.0], [float("nan")] * 2)
    write_run(runs, "random", 5, [50.0, 51.0], [50.0, 51.0], metric="loss")  # it never logged the metric
    table = load_runs(runs)
    assert diverged(table, scores_of(runs), "accuracy") == ["fairseq/random/seed4"]


def test_a_metric_that_is_never_a_number(tmp_path):
    write_run(tmp_path, "random", 1, [float("nan")], [float("nan")])
    with pytest.raises(UserError, match=r"'.*'.*'test'.*NaN"):
        scores_of(tmp_path)


@pytest.mark.parametrize("ddof", [0, 1])
def test_spread_against_numpy_scipy_and_statsmodels(runs, ddof):
    frame = spread_over_seeds(scores_of(runs), ddof=ddof, test_size=2000).set_index(["init", "at"])
    tests = np.array([65.5, 66.75, 68.25])
    row = frame.loc[("random", "best")]
    assert row[["n", "mean", "std", "median", "min", "max"]].tolist() == pytest.approx(
        [3, tests.mean(), tests.std(ddof=ddof), 66.75, 65.5, 68.25]
    )
    t = stats.ttest_1samp(tests, 0).confidence_interval(0.95)
    assert (row["t_low"], row["t_high"]) == pytest.approx((t.low, t.high))
    assert (row["bootstrap_low"], row["bootstrap_high"]) == (65.5, 68.25)
    low, high = proportion_confint(tests.mean() * 20, 2000, method="wilson")
    assert (row["examples_low"], row["examples_high"]) == pytest.approx((100 * low, 100 * high))


def test_which_interval_is_wider(runs):
    """Three seeds within 1.5 points: +-1.9 by t; 2,000 examples: +-1.8; 1,000,000 examples: +-0.1; 100: "
    "+-8."""
    for size, wider in ((100, "examples"), (2000, "seeds"), (1_000_000, "seeds")):
        frame = spread_over_seeds(scores_of(runs), test_size=size).set_index(["init", "at"])
        assert frame.loc[("pretrained", "best"), "wider"] == wider


def test_no_examples_interval_without_a_size_or_for_other_metrics(runs, tmp_path):
    assert spread_over_seeds(scores_of(runs))["examples_low"].isna().all()
    write_run(tmp_path / "loss", "random", 1, [0.5], [0.6], metric="loss")
    table = load_runs(tmp_path / "loss")
    frame = spread_over_seeds(scores(table, best_checkpoints(table, "loss"), "loss"), "loss", test_size=100)
    assert frame["examples_low"].isna().all()
    assert frame["wider"].isna().all()


def test_one_seed_has_no_interval(tmp_path):
    write_run(tmp_path, "random", 1, [50.0], [51.0])
    row = spread_over_seeds(scores_of(tmp_path), test_size=100).iloc[-1]
    assert (row["n"], row["mean"]) == (1, 51.0)
    assert np.isnan([row["std"], row["t_low"], row["bootstrap_low"]]).all()
    assert row["examples_low"] < 51 < row["examples_high"]
    assert row["wider"] is None


@pytest.mark.parametrize("ddof", [0, 1])
def test_summaries_equal_the_mean_and_std_of_common(ddof):
    random = np.random.default_rng(1)
    frame = pd.DataFrame({"group": np.repeat([1, 2, 3], [1, 5, 40]), "value": random.normal(80, 3, 46)})
    frame.loc[3, "value"] = np.nan
    for row in summarize(frame, ["group"], "value", ddof=ddof).itertuples():
        values = frame.loc[frame["group"] == row.group, "value"]
        expected = mean_std(values.to_numpy(), ddof)
        assert (row.mean, row.std) == pytest.approx(expected, rel=0, abs=1e-12, nan_ok=True)
        assert row.n == values.count()


@pytest.mark.parametrize("ddof", [0, 1])
def test_per_epoch_is_numpys(runs, ddof):
    stats = per_epoch(load_runs(runs), ddof=ddof).set_index(["init", "epoch"])
    by_epoch = {1: [50.5, 66.75, 51.0], 2: [65.5, 60.0, 60.0], 3: [64.0, 61.0, 68.25]}
    for epoch, tests in by_epoch.items():
        row = stats.loc[("random", epoch)]
        assert row["n"] == 3
        assert row["mean"] == pytest.approx(np.mean(tests))
        assert row["std"] == pytest.approx(np.std(tests, ddof=ddof))


def test_only_values_at_a_validation_count(tmp_path):
    """Seed 1 lost the log of its second validation: its later test values have no epoch."""
    run = write_run(tmp_path, "random", 1, [50.0], [51.0, 99.0, 99.0])
    write_run(tmp_path, "random", 2, [50.0, 60.0], [53.0, 61.0])
    write_events(run / "tensorboard" / "test", [(100, "accuracy", 10.0)], suffix=".extra")
    stats = per_epoch(load_runs(tmp_path))
    assert stats[["epoch", "n", "mean"]].to_numpy().tolist() == [[1, 2, 52.0], [2, 1, 61.0]]


def test_no_value_at_a_validation(tmp_path):
    run = write_run(tmp_path, "random", 1, [50.0], [])
    write_events(run / "tensorboard" / "test", [(100, "accuracy", 10.0)], suffix=".extra")
    with pytest.raises(UserError, match=r"'accuracy'.*'test'.*validation"):
        per_epoch(load_runs(tmp_path))


def over_all_subsets(chosen_by, reported, n, best=max):
    """The mean of `reported` at the best `chosen_by`, ties shared, over all subsets of n."""
    values = []
    for subset in itertools.combinations(range(len(chosen_by)), n):
        top = best(chosen_by[i] for i in subset)
        values.append(np.mean([reported[i] for i in subset if chosen_by[i] == top]))
    return np.mean(values)


@pytest.mark.parametrize("lower", [False, True])
def test_the_expected_best_is_the_mean_over_all_subsets(lower):
    random = np.random.default_rng(0)
    valid, test = random.normal(size=7), random.normal(size=7)
    expected = [over_all_subsets(valid, test, n, min if lower else max) for n in range(1, 8)]
    np.testing.assert_allclose(expected_best(valid, test, lower=lower), expected)


def test_runs_of_equal_validation_win_equally_often():
    valid, test = np.array([67.0, 67.0, 65.5, 67.0]), np.array([1.0, 2.0, 8.0, 6.0])
    ours = expected_best(valid, test)
    assert ours[-1] == pytest.approx(3.0)  # the mean of the three tied runs
    assert ours[0] == pytest.approx(test.mean())
    for order in itertools.permutations(range(4)):
        np.testing.assert_allclose(expected_best(valid[list(order)], test[list(order)]), ours)


def test_the_expected_best_of_a_tree(runs):
    frame = expected_best_of_seeds(best_checkpoints(load_runs(runs)))
    assert frame["seeds_tried"].tolist() == [1, 2, 3] * 2
    random = frame[frame["init"] == "random"]
    # valid 62, 65 and 62.5 with test 65.5, 66.75 and 68.25: 65 is best in two of three pairs, 62.5 in one
    assert random["valid"].tolist() == pytest.approx([189.5 / 3, (65 + 65 + 62.5) / 3, 65])
    assert random["test"].tolist() == pytest.approx([200.5 / 3, (2 * 66.75 + 68.25) / 3, 66.75])


def test_diverged_runs_have_no_expected_best(runs):
    write_run(runs, "random", 4, [float("nan")], [50.0])
    frame = expected_best_of_seeds(best_checkpoints(load_runs(runs)))
    assert frame.groupby("init")["seeds"].first().tolist() == [3, 3]
    empty = best_checkpoints(load_runs(runs)).assign(valid=np.nan)
    assert isinstance(expected_best_of_seeds(empty), pd.DataFrame)
    assert expected_best_of_seeds(empty).empty
