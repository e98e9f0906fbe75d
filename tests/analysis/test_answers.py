"""Accuracy from prediction files, without duplicates, and two groups example by example."""

import numpy as np
import pytest
from answer_files import write_answers
from run_trees import write_run
from sklearn.metrics import accuracy_score
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.proportion import proportion_confint

from analysis.read.runs import find_runs
from analysis.stats.predictions import accuracies, compare_answers, read_answers
from common.data_folder import Overlap
from common.errors import UserError

RANDOM = np.random.default_rng(0)
GOLD = list(RANDOM.choice(["0", "1"], size=300))
GROUPS = ("fairseq/pretrained", "fairseq/random")


def guess(gold, right):
    """Answers of which a share is right."""
    return [g if RANDOM.random() < right else "10"[int(g)] for g in gold]


@pytest.fixture
def answered(tmp_path):
    """Two inits with two seeds; returns the folder and the predictions of each run."""
    given = {}
    for init, right in (("pretrained", 0.85), ("random", 0.7)):
        for seed in (1, 2):
            run = write_run(tmp_path, init, seed, [50.0], [51.0])
            given[init, seed] = guess(GOLD, right)
            write_answers(run, GOLD, given[init, seed])
    return tmp_path, given


def test_accuracy_is_scikit_learns(answered):
    root, given = answered
    frame = accuracies(read_answers(find_runs(root))).set_index(["init", "seed"])
    for key, predicted in given.items():
        assert frame.loc[key, "accuracy"] == pytest.approx(100 * accuracy_score(GOLD, predicted))
        right = sum(g == p for g, p in zip(GOLD, predicted, strict=True))
        low, high = proportion_confint(right, 300, method="wilson")
        assert frame.loc[key, ["low", "high"]].tolist() == pytest.approx([100 * low, 100 * high])


def test_accuracy_without_and_on_the_duplicates(answered):
    root, given = answered
    seen = frozenset({0, 7, 8, 299})
    frame = accuracies(read_answers(find_runs(root)), Overlap("test", "train", "exact", 300, seen))
    row = frame.set_index(["init", "seed"]).loc[("random", 2)]
    kept = [i for i in range(300) if i not in seen]
    predicted = given["random", 2]
    assert (row["unseen_n"], row["seen_n"]) == (296, 4)
    assert row["unseen_accuracy"] == pytest.approx(100 * np.mean([GOLD[i] == predicted[i] for i in kept]))
    assert row["seen_accuracy"] == pytest.approx(100 * np.mean([GOLD[i] == predicted[i] for i in seen]))
    whole = (row["unseen_accuracy"] * 296 + row["seen_accuracy"] * 4) / 300
    assert whole == pytest.approx(row["accuracy"])


def test_an_audit_without_duplicates_leaves_all(answered):
    frame = accuracies(
        read_answers(find_runs(answered[0])), Overlap("test", "train", "exact", 300, frozenset())
    )
    assert (frame["unseen_accuracy"] == frame["accuracy"]).all()
    assert frame["seen_accuracy"].isna().all()


def test_the_audit_of_another_test_set_is_refused(answered):
    with pytest.raises(UserError, match=r"fairseq/pretrained/seed1 answered line 299 .* knows 299 lines"):
        accuracies(read_answers(find_runs(answered[0])), Overlap("test", "train", "exact", 299, frozenset()))


def test_runs_without_a_file_are_absent(answered):
    root, _ = answered
    write_run(root, "random", 3, [50.0], [51.0])
    assert len(accuracies(read_answers(find_runs(root)))) == 4
    assert read_answers(find_runs(root), "valid").empty


def test_lines_without_a_known_class_do_not_count(tmp_path, caplog):
    run = write_run(tmp_path, "random", 1, [50.0], [51.0])
    write_answers(run, ["1", None, "0"], ["1", "1", "1"])
    (row,) = accuracies(read_answers(find_runs(tmp_path))).to_dict("records")
    assert (row["n"], row["accuracy"]) == (2, 50.0)
    write_answers(run, [None, None], ["1", "0"])
    assert read_answers(find_runs(tmp_path)).empty
    assert "predictions-test.jsonl: the true class is null on every line" in caplog.text


def test_groups_example_by_example(answered):
    root, given = answered
    frame = compare_answers(read_answers(find_runs(root)), *GROUPS).set_index("seed")
    assert frame.index.tolist() == [1, 2, "mean"]
    gold = np.array(GOLD)
    differences = []
    for seed in (1, 2):
        a, b = (np.array(given[init, seed]) == gold for init in ("pretrained", "random"))
        table = [[(a & b).sum(), (a & ~b).sum()], [(~a & b).sum(), (~a & ~b).sum()]]
        row = frame.loc[seed]
        assert (row["only_a"], row["only_b"]) == (table[0][1], table[1][0])
        assert row["p_mcnemar"] == pytest.approx(mcnemar(table, exact=True).pvalue)
        differences.append(100 * (a.mean() - b.mean()))
        assert row["difference"] == pytest.approx(differences[-1])
        assert row["low"] < row["difference"] < row["high"]
    assert frame.loc["mean", "difference"] == pytest.approx(np.mean(differences))
    assert np.isnan(frame.loc["mean", "p_mcnemar"])


def test_the_bootstrap_interval_of_the_mean_is_the_normal_one(answered):
    """300 examples: the percentiles are those of a normal distribution within their own noise."""
    root, given = answered
    row = compare_answers(read_answers(find_runs(root)), *GROUPS).iloc[-1]
    gold = np.array(GOLD)
    right = {key: np.array(predicted) == gold for key, predicted in given.items()}
    each = np.mean([100.0 * right["pretrained", s] - 100.0 * right["random", s] for s in (1, 2)], axis=0)
    half = 1.96 * each.std() / np.sqrt(300)
    assert (row["low"], row["high"]) == pytest.approx((each.mean() - half, each.mean() + half), abs=0.35)


def test_order_of_lines_does_not_matter(answered):
    root, _ = answered
    expected = compare_answers(read_answers(find_runs(root)), *GROUPS)
    path = root / "fairseq/random/seed1/predictions-test.jsonl"
    path.write_text("".join(reversed(path.read_text().splitlines(keepends=True))))
    assert compare_answers(read_answers(find_runs(root)), *GROUPS).equals(expected)


@pytest.mark.parametrize("change", ["fewer", "other"])
def test_other_examples_are_refused(answered, change):
    root, given = answered
    gold = GOLD[:-1] if change == "fewer" else ["10"[int(GOLD[0])], *GOLD[1:]]
    write_answers(root / "fairseq/random/seed2", gold, given["random", 2][: len(gold)])
    with pytest.raises(UserError, match="seed 2: their predictions are for other examples or classes"):
        compare_answers(read_answers(find_runs(root)), *GROUPS)


def test_seeds_with_other_test_sets_are_not_averaged(answered):
    root, given = answered
    for init in ("pretrained", "random"):
        write_answers(root / f"fairseq/{init}/seed2", GOLD[:-1], given[init, 2][:-1])
    with pytest.raises(UserError, match="answered different examples"):
        compare_answers(read_answers(find_runs(root)), *GROUPS)


def test_no_seed_in_common_is_no_comparison(answered):
    assert compare_answers(read_answers(find_runs(answered[0])), GROUPS[0], "fairseq/none").empty
