"""common/ranking.py: the best group of runs, and what cannot be compared."""

import pytest

from roberta_small.common import manifest
from roberta_small.common.errors import UserError
from roberta_small.common.ranking import rank
from roberta_small.common.run import Run

LABELS = "a" * 64


def finished(
    root, arm, seed, valid, *, seconds=1.0, metric="accuracy", labels=LABELS, test=50.0, path="data"
):
    run = Run.below(root, arm, "random", seed)
    run.folder.mkdir(parents=True)
    scores = {"valid": valid} if test is None else {"test": test, "valid": valid}
    best = {"metric": metric, "epoch": 1, "subset": "valid", "scores": scores, "labels": labels}
    content = {"schema": 1, "status": "finished", "arm": arm, "init": "random", "seed": seed, "recipe": "r"}
    manifest.write(
        run.folder, content | {"command": [], "data": {"path": path}, "seconds": seconds, "best": best}
    )
    return run


def test_the_mean_over_seeds_decides_and_then_the_best_seed(tmp_path):
    lucky = [finished(tmp_path, "a", seed, valid) for seed, valid in ((1, 90.0), (2, 70.0))]
    steady = [finished(tmp_path, "b", seed, valid, test=60.0) for seed, valid in ((1, 81.0), (2, 83.0))]
    first, second = rank([*lucky, *steady])
    assert (first.runs, second.runs) == ((steady[1], steady[0]), tuple(lucky))
    assert (first.valid, first.scores) == (82.0, {"valid": 82.0, "test": 60.0})
    assert list(first.scores) == ["valid", "test"]


def test_on_a_tie_the_faster_method_and_the_smaller_seed(tmp_path):
    slow = finished(tmp_path, "a", 1, 80.0, seconds=9.0)
    fast = [finished(tmp_path, "b", seed, 80.0, seconds=2.0) for seed in (3, 2)]
    assert [group.runs for group in rank([slow, *fast])] == [(fast[1], fast[0]), (slow,)]


def test_a_loss_is_better_if_it_is_lower(tmp_path):
    runs = [finished(tmp_path, "a", seed, value, metric="loss") for seed, value in ((1, 0.7), (2, 0.3))]
    assert rank(runs)[0].runs == (runs[1], runs[0])


def test_a_subset_that_a_seed_lacks_is_left_out(tmp_path):
    runs = [finished(tmp_path, "a", seed, 80.0, test=test) for seed, test in ((1, 50.0), (2, None))]
    assert rank(runs)[0].scores == {"valid": 80.0}


@pytest.mark.parametrize(
    ("changes", "fact"),
    [
        ({"metric": "macro_f1"}, "metric"),
        ({"labels": "b" * 64}, "validation set"),
        ({"labels": None, "path": "other"}, "validation set"),
    ],
)
def test_runs_that_cannot_be_compared(tmp_path, changes, fact):
    runs = [finished(tmp_path, "a", 1, 80.0), finished(tmp_path, "b", 1, 80.0, **changes)]
    with pytest.raises(UserError, match=fact):
        rank(runs)


def test_a_run_of_an_earlier_version_cannot_be_compared(tmp_path):
    run = finished(tmp_path, "a", 1, 80.0)
    content = manifest.read(run.folder)
    del content["best"]
    manifest.write(run.folder, content)
    with pytest.raises(UserError, match="no best"):
        rank([run])


def test_of_no_run_there_is_no_best():
    assert rank([]) == []
