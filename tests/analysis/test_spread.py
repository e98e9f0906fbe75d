"""Scores of every run and their spread: hand-computed on a small tree."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from roberta_small.analysis.read.long_table import load_runs
from roberta_small.analysis.scoring import best_checkpoints, diverged, scores, spread_over_seeds, summarize
from roberta_small.common.errors import UserError
from roberta_small.common.statistics import mean_std
from tests.support.analysis.run_trees import write_run


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
