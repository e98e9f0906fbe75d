"""Statistics over data sets, compared with rliable, SciPy and direct counts."""

import math
from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy.stats import mannwhitneyu, trim_mean

from roberta_small.analysis.features.suite.statistics import (
    aggregate,
    average_ranks,
    balance,
    compare_pairs,
    improvement,
    interquartile_mean,
    normalized,
    profile,
    profiles,
)
from roberta_small.common.errors import UserError

X = np.array([
    [80.4, 79.6, 81.9, 80.3], [78.4, 81.1, 83.9, 82.8], [77.9, 76.2, 78.1, 80.1],
    [73.0, 79.3, 76.3, 77.8], [78.4, 79.1, 81.2, 83.1],
])  # fmt: skip
Y = np.array([
    [78.6, 83.1, 77.0, 80.1], [81.7, 79.3, 76.8, 76.2], [77.6, 79.7, 76.0, 78.4],
    [78.5, 80.6, 79.6, 80.1], [77.0, 78.6, 81.4, 83.5],
])  # fmt: skip
"""(5 runs, 4 data sets). The values of RLIABLE are of rliable 1.2.0 for these matrices, with 20,000 samples
(5,000 for P(X > Y)); it cannot be installed with pandas 3 on Python 3.11."""
THRESHOLDS = np.array([74.0, 77.0, 79.0, 80.5, 82.0, 85.0])
RLIABLE = {
    "iqm": {"x": (79.48, 78.46, 80.49), "y": (79.05, 78.13, 80.08)},
    "mean": {"x": 79.445, "y": 79.19},
    "profile": {"x": [0.95, 0.85, 0.6, 0.3, 0.15, 0.0], "y": [1.0, 0.75, 0.5, 0.25, 0.1, 0.0]},
    "band": {
        "x": [(0.85, 1.0), (0.7, 1.0), (0.4, 0.8), (0.15, 0.5), (0.0, 0.3), (0.0, 0.0)],
        "y": [(1.0, 1.0), (0.6, 0.9), (0.3, 0.7), (0.1, 0.45), (0.0, 0.25), (0.0, 0.0)],
    },
    "improvement": (0.525, 0.34, 0.71),
}


def frame(**matrices):
    """The frame of a suite: a group `NAME/random` for each (R, T) matrix; NaN is a missing run."""
    rows = [
        {
            "data_set": f"data{task}", "group": f"{name}/random", "arm": name, "init": "random",
            "seed": run + 1, "value": float(value),
        }
        for name, matrix in matrices.items()
        for (run, task), value in np.ndenumerate(np.asarray(matrix))
        if not math.isnan(value)
    ]  # fmt: skip
    return pd.DataFrame(rows).sort_values("data_set", kind="stable", ignore_index=True)


def test_the_interquartile_mean_is_that_of_rliable():
    data = aggregate(balance(frame(x=X, y=Y))).set_index("arm")
    for name in ("x", "y"):
        value, low, high = RLIABLE["iqm"][name]
        assert data.at[name, "iqm"] == pytest.approx(value, abs=1e-9)
        assert data.at[name, "mean"] == pytest.approx(RLIABLE["mean"][name], abs=1e-9)
        # The bootstrap distributions are the same, the samples are not.
        assert data.at[name, "iqm_low"] == pytest.approx(low, abs=0.08)
        assert data.at[name, "iqm_high"] == pytest.approx(high, abs=0.08)


def test_profiles_and_bands_are_those_of_rliable():
    data = profiles(balance(frame(x=X, y=Y)))
    for name, matrix in (("x", X), ("y", Y)):
        assert profile(matrix, THRESHOLDS) == pytest.approx(RLIABLE["profile"][name])
        rows = data[data["arm"] == name]
        # The profile is a step function: its value at a threshold is that at the largest known one below.
        at = np.searchsorted(rows["threshold"], THRESHOLDS, side="right") - 1
        assert rows["fraction"].to_numpy()[at] == pytest.approx(RLIABLE["profile"][name])
        band = rows[["low", "high"]].to_numpy()[at]
        assert band == pytest.approx(np.array(RLIABLE["band"][name]), abs=0.051)


def test_the_probability_of_improvement_is_that_of_rliable():
    value, low, high = RLIABLE["improvement"]
    (row,) = compare_pairs(balance(frame(x=X, y=Y))).to_dict("records")
    assert (row["a"], row["b"], row["n_a"], row["n_b"]) == ("x/random", "y/random", 5, 5)
    assert row["probability"] == pytest.approx(value, abs=1e-12)
    assert row["low"] == pytest.approx(low, abs=0.02)
    assert row["high"] == pytest.approx(high, abs=0.02)
    (other,) = compare_pairs(balance(frame(x=X, y=Y)), [("y/random", "x/random")]).to_dict("records")
    assert other["probability"] == pytest.approx(1 - value)
    (lower,) = compare_pairs(balance(frame(x=X, y=Y)), lower=True).to_dict("records")
    assert (lower["probability"], lower["low"], lower["high"]) == pytest.approx(
        (1 - value, 1 - row["high"], 1 - row["low"])
    )


@pytest.mark.parametrize("seed", range(5))
def test_random_scores_agree_with_independent_implementations(seed):
    random = np.random.default_rng(seed)
    runs, others, tasks = random.integers(1, 8, size=3)
    x, y = (np.round(random.normal(70, 2, size=(n, tasks)), 0) for n in (runs, others))
    assert interquartile_mean(x) == pytest.approx(trim_mean(x.ravel(), 0.25))
    tau = np.array([68.0, 70.0, 71.5])
    counted = [sum(value > t for value in x.ravel()) / x.size for t in tau]
    assert profile(x, tau) == pytest.approx(counted)
    u = [
        mannwhitneyu(x[:, t], y[:, t], alternative="greater").statistic / (runs * others)
        for t in range(tasks)
    ]
    assert improvement(x, y) == pytest.approx(np.mean(u))


def test_ranks():
    # data0: 90, 80, 70; data1: 60, 60, 50; data2: 1, 2, 3
    means = np.array([[90.0, 60.0, 1.0], [80.0, 60.0, 2.0], [70.0, 50.0, 3.0]])
    assert average_ranks(means) == pytest.approx([(1 + 1.5 + 3) / 3, (2 + 1.5 + 2) / 3, (3 + 3 + 1) / 3])
    assert average_ranks(means, lower=True) == pytest.approx([(3 + 2.5 + 1) / 3, (2 + 2.5 + 2) / 3, 5 / 3])
    assert average_ranks(np.stack([means, -means])).shape == (2, 3)


def test_the_interval_of_the_interquartile_mean_is_that_of_all_resamples():
    """Two runs on two data sets have 16 equally probable resamples."""
    x = np.array([[60.0, 81.0], [70.0, 88.0]])
    all_means = [
        trim_mean([x[i, 0], x[j, 0], x[k, 1], x[m, 1]], 0.25) for i, j, k, m in product(range(2), repeat=4)
    ]
    row = aggregate(balance(frame(x=x))).iloc[0]
    assert (row["iqm_low"], row["iqm_high"]) == (min(all_means), max(all_means))


def test_a_group_with_a_single_run_has_no_interval():
    data = aggregate(balance(frame(x=X[:1], y=Y))).set_index("arm")
    assert data.loc["x", ["iqm_low", "iqm_high", "rank_low", "rank_high"]].isna().all()
    assert data.loc["y", ["iqm_low", "iqm_high", "rank_low", "rank_high"]].notna().all()
    (pair,) = compare_pairs(balance(frame(x=X[:1], y=Y))).to_dict("records")
    assert math.isnan(pair["low"])
    shown = profiles(balance(frame(x=X[:1], y=Y)))
    assert shown.loc[shown["arm"] == "x", "low"].isna().all()


def test_only_the_same_seeds_of_groups_with_runs_everywhere_are_compared():
    nan = math.nan
    values = frame(
        whole=[[1.0, 2.0], [3.0, 4.0]],
        partial=[[5.0, 6.0], [7.0, nan], [nan, 8.0]],
        missing=[[9.0, nan]],
        disjoint=[[1.0, nan], [nan, 2.0]],
    )
    found = balance(values)
    assert found.groups == ("whole/random", "partial/random")
    assert found.matrices()["partial/random"].tolist() == [[5.0, 6.0]]
    assert found.matrices()["whole/random"].tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert found.incomplete == {"missing/random": ("data1",)}
    assert found.unmatched == ("disjoint/random",)
    assert found.dropped == {"partial/random": {"data0": (2,), "data1": (3,)}}
    assert balance(frame(missing=[[1.0, nan]], other=[[nan, 1.0]])).groups == ()


def test_normalized_scores():
    values = frame(x=[[50.0, 5.0], [75.0, 100.0]])
    found = normalized(values, {"data0": 50.0, "data1": 5.0}, 100.0)
    assert sorted(found["value"]) == pytest.approx([0.0, 0.0, 0.5, 1.0])
    with pytest.raises(UserError, match="data1=100"):
        normalized(values, {"data0": 50.0, "data1": 100.0}, 100.0)


def test_a_metric_without_scale_has_only_ranks():
    data = aggregate(balance(frame(x=X, y=Y)), lower=True, scale=False)
    assert data[["mean", "iqm", "iqm_low"]].isna().all(axis=None)
    assert data["rank"].notna().all()
