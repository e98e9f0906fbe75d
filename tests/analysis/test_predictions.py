"""Prediction files: accuracy, with and without duplicates; comparison of two groups; size of the test set."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import accuracy_score
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.proportion import proportion_confint

from roberta_small.analysis.features.comparison import examples_table
from roberta_small.analysis.predictions import accuracies, compare_predictions, find_size, read_predictions
from roberta_small.analysis.read.runs import find_runs
from roberta_small.common.data_folder import Overlap, keys_digest, keys_of
from roberta_small.common.errors import UserError
from roberta_small.common.files import sha256
from tests.support.analysis.prediction_files import write_predictions
from tests.support.analysis.printed_tables import parsed
from tests.support.analysis.run_trees import write_run
from tests.support.data_folders import write_data

RANDOM = np.random.default_rng(0)
LABELS = list(RANDOM.choice(["0", "1"], size=300))
TEXTS = [f"text {number}" for number in range(300)]
GROUPS = ("fairseq/pretrained", "fairseq/random")


def predict(labels, accuracy):
    """Predictions with this expected accuracy."""
    return [label if RANDOM.random() < accuracy else "10"[int(label)] for label in labels]


@pytest.fixture
def run_tree(tmp_path):
    """Two inits with two seeds; returns the folder and the predictions of each run."""
    predicted_by = {}
    for init, accuracy in (("pretrained", 0.85), ("random", 0.7)):
        for seed in (1, 2):
            run = write_run(tmp_path, init, seed, [50.0], [51.0])
            predicted_by[init, seed] = predict(LABELS, accuracy)
            write_predictions(run, LABELS, predicted_by[init, seed])
    return tmp_path, predicted_by


def test_accuracy_is_scikit_learns(run_tree):
    root, predicted_by = run_tree
    frame = accuracies(read_predictions(find_runs(root))).set_index(["init", "seed"])
    for key, predicted in predicted_by.items():
        assert frame.loc[key, "accuracy"] == pytest.approx(100 * accuracy_score(LABELS, predicted))
        right = sum(g == p for g, p in zip(LABELS, predicted, strict=True))
        low, high = proportion_confint(right, 300, method="wilson")
        assert frame.loc[key, ["low", "high"]].tolist() == pytest.approx([100 * low, 100 * high])


def test_the_audit_of_another_test_set_is_an_error(run_tree):
    root, predicted_by = run_tree
    run = root / "fairseq/random/seed1"
    write_predictions(run, LABELS, predicted_by["random", 1], texts=TEXTS)
    own, *others = (
        Overlap("test", "train", "exact", len(lines), frozenset({3}), keys_digest(keys_of([lines])))
        for lines in (TEXTS, TEXTS[::-1], TEXTS[:-1])
    )
    assert accuracies(read_predictions(find_runs(run)), own)["unseen_n"].item() == 299
    for other in others:
        with pytest.raises(
            UserError, match=rf"fairseq/random/seed1 .*test.* {other.size} lines.*audit\.json"
        ):
            accuracies(read_predictions(find_runs(run)), other)


def test_unlabelled_lines_are_skipped(tmp_path, caplog):
    run = write_run(tmp_path, "random", 1, [50.0], [51.0])
    write_predictions(run, ["1", None, "0"], ["1", "1", "1"])
    (row,) = accuracies(read_predictions(find_runs(tmp_path))).to_dict("records")
    assert (row["n"], row["accuracy"]) == (2, 50.0)
    write_predictions(run, [None, None], ["1", "0"])
    assert read_predictions(find_runs(tmp_path)).empty
    assert str(run / "predictions-test.jsonl") in caplog.text


def test_paired_comparison_against_statsmodels(run_tree):
    root, predicted_by = run_tree
    frame = compare_predictions(read_predictions(find_runs(root)), *GROUPS).set_index("seed")
    assert frame.index.tolist() == [1, 2, "mean"]
    labels = np.array(LABELS)
    differences = []
    for seed in (1, 2):
        a, b = (np.array(predicted_by[init, seed]) == labels for init in ("pretrained", "random"))
        table = [[(a & b).sum(), (a & ~b).sum()], [(~a & b).sum(), (~a & ~b).sum()]]
        row = frame.loc[seed]
        assert (row["only_a"], row["only_b"]) == (table[0][1], table[1][0])
        assert row["p_mcnemar"] == pytest.approx(mcnemar(table, exact=True).pvalue)
        differences.append(100 * (a.mean() - b.mean()))
        assert row["difference"] == pytest.approx(differences[-1])
        assert row["low"] < row["difference"] < row["high"]
    assert frame.loc["mean", "difference"] == pytest.approx(np.mean(differences))
    assert np.isnan(frame.loc["mean", "p_mcnemar"])


@pytest.mark.parametrize("change", ["fewer", "label", "texts"])
def test_other_examples_are_not_paired(run_tree, change, capsys, caplog):
    """Without keys, length and labels decide, otherwise the texts; also between seeds, for their mean."""
    root, predicted_by = run_tree
    for (init, seed), predicted in predicted_by.items():
        write_predictions(root / f"fairseq/{init}/seed{seed}", LABELS, predicted, texts=TEXTS)
    labels = {"fewer": LABELS[:-1], "label": ["10"[int(LABELS[0])], *LABELS[1:]]}.get(change, LABELS)
    others = [*TEXTS[:-1], "another text"] if change == "texts" else None
    second = predicted_by["random", 2][: len(labels)]
    write_predictions(root / "fairseq/random/seed2", labels, second, texts=others)
    with pytest.raises(UserError, match=r"fairseq/pretrained/seed1 and fairseq/random/seed2.*--data-seed"):
        compare_predictions(read_predictions(find_runs(root)), *GROUPS)
    assert list(parsed(capsys, "compare", root, "--groups", *GROUPS)) == ["comparison", "plan"]
    assert "fairseq/random/seed2" in caplog.text


def test_examples_are_paired_by_text_if_all_runs_have_keys(run_tree):
    """The test set of one run is in another order; two texts are the same, with different labels."""
    root, predicted_by = run_tree
    expected = compare_predictions(read_predictions(find_runs(root)), *GROUPS)
    texts = [*TEXTS]
    texts[LABELS.index("0")] = texts[LABELS.index("1")]
    for (init, seed), predicted in predicted_by.items():
        rows = list(zip(LABELS, predicted, texts, strict=True))
        labels, answers, own = zip(*(rows[::-1] if (init, seed) == ("random", 2) else rows), strict=True)
        write_predictions(root / f"fairseq/{init}/seed{seed}", labels, answers, texts=own)
    pd.testing.assert_frame_equal(compare_predictions(read_predictions(find_runs(root)), *GROUPS), expected)
    write_predictions(root / "fairseq/random/seed2", LABELS, predicted_by["random", 2])  # without keys
    pd.testing.assert_frame_equal(compare_predictions(read_predictions(find_runs(root)), *GROUPS), expected)


@pytest.mark.parametrize(
    ("predicted", "ends"),
    [
        (["0"] * 13, (-22.81, 22.81)),  # both always right
        (["1"] * 13, (54.38, 100.0)),  # a always right, b always wrong
    ],
)
def test_without_variation_the_interval_has_a_width(tmp_path, predicted, ends):
    """z² / (n + z²) is 0.2281 for n = 13 (Wilson 1927), the largest fraction of examples that differ."""
    for init, answers in (("a", ["0"] * 13), ("b", predicted)):
        write_predictions(write_run(tmp_path, init, 1, [50.0], [50.0]), ["0"] * 13, answers)
    frame = compare_predictions(read_predictions(find_runs(tmp_path)), "fairseq/a", "fairseq/b")
    assert frame[["low", "high"]].iloc[0].tolist() == pytest.approx(ends, abs=0.01)
    assert frame["interval"].tolist() == ["Wilson"]
    assert any("Wilson" in note for note in examples_table(frame, "test").notes)


def test_size_from_prediction_files(runs):
    write_predictions(runs / "fairseq/random/seed2", ["0", "1", "1"], ["0", "0", "0"])
    assert find_size(find_runs(runs)) == 3
    assert find_size(find_runs(runs), "valid") is None


def size_of_data(root, digest=None):
    """The size of the test set of a run whose manifest records this folder of data."""
    digests = {"label/test.idx": digest or sha256(root / "data/label/test.idx")}
    data = {"path": str(root / "data"), "sha256": digests}
    write_run(root / "runs", "random", 1, [50.0], [51.0], data=data)
    return find_size(find_runs(root / "runs"))


@pytest.mark.parametrize(("digest", "size"), [(None, 7), ("0" * 64, None)])
def test_size_from_the_data_folder_of_the_manifest_if_it_is_unchanged(tmp_path, digest, size):
    """A folder that fairseq's own builder wrote."""
    write_data(tmp_path / "data", sizes={"test": 7})
    assert size_of_data(tmp_path, digest) == size


@pytest.mark.parametrize("content", [b"", b"something else entirely, long enough"])
def test_no_size_from_another_format(tmp_path, content):
    index = tmp_path / "data/label/test.idx"
    index.parent.mkdir(parents=True)
    index.write_bytes(content)
    assert size_of_data(tmp_path) is None


def test_runs_with_different_sizes_are_an_error(runs):
    write_predictions(runs / "fairseq/random/seed2", ["0", "1", "1"], ["0", "0", "0"])
    write_predictions(runs / "fairseq/random/seed3", ["0", "1"], ["0", "0"])
    with pytest.raises(UserError, match=r"random/seed2 .*3 .*random/seed3 .*2; .*--test-size"):
        find_size(find_runs(runs))
