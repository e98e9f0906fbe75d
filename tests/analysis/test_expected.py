"""The expected best of n seeds against the mean over all subsets."""

import itertools

import numpy as np
import pandas as pd
import pytest

from roberta_small.analysis.read.long_table import load_runs
from roberta_small.analysis.scoring import best_checkpoints, expected_best, expected_best_of_seeds
from tests.support.analysis.run_trees import write_run


def over_all_subsets(chosen_by, reported, n, best=max):
    """The mean of `reported` at the best `chosen_by`, ties shared, over all subsets of n."""
    values = []
    for subset in itertools.combinations(range(len(chosen_by)), n):
        top = best(chosen_by[i] for i in subset)
        values.append(np.mean([reported[i] for i in subset if chosen_by[i] == top]))
    return np.mean(values)


@pytest.mark.parametrize("lower", [False, True])
def test_is_the_mean_over_all_subsets(lower):
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


def test_frame_of_a_tree(runs):
    frame = expected_best_of_seeds(best_checkpoints(load_runs(runs)))
    assert frame["seeds_tried"].tolist() == [1, 2, 3] * 2
    random = frame[frame["init"] == "random"]
    # valid 62, 65 and 62.5 with test 65.5, 66.75 and 68.25: 65 is best in two of three pairs, 62.5 in one
    assert random["valid"].tolist() == pytest.approx([189.5 / 3, (65 + 65 + 62.5) / 3, 65])
    assert random["test"].tolist() == pytest.approx([200.5 / 3, (2 * 66.75 + 68.25) / 3, 66.75])


def test_diverged_runs_are_excluded(runs):
    write_run(runs, "random", 4, [float("nan")], [50.0])
    frame = expected_best_of_seeds(best_checkpoints(load_runs(runs)))
    assert frame.groupby("init")["seeds"].first().tolist() == [3, 3]
    empty = best_checkpoints(load_runs(runs)).assign(valid=np.nan)
    assert isinstance(expected_best_of_seeds(empty), pd.DataFrame)
    assert expected_best_of_seeds(empty).empty
