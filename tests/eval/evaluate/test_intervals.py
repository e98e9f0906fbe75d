"""Metrics against scikit-learn, bootstrap intervals against SciPy, and the printed tables of `evaluate`."""

import math

import numpy as np
import pytest
from scipy.stats import bootstrap
from sklearn import metrics as sk
from sklearn.metrics import confusion_matrix, f1_score

from roberta_small.common.metrics import METRICS as NAMES
from roberta_small.common.metrics import Scored
from roberta_small.common.statistics import BINS
from roberta_small.eval.evaluate.report import (
    Group,
    Scores,
    conventions,
    intervals,
    measure,
    per_class,
    tables,
)


def example(count=200, classes=3, seed=0, digits=1):
    """Labels, and probabilities that correlate with them and have many ties."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(count, classes)).round(digits)
    labels = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    probabilities = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    return Scored(labels, probabilities)


def values(scored):
    return {name: value[0] for name, value in measure(scored, np.ones((1, len(scored.labels)))).items()}


def expected_calibration_error(labels, probabilities):
    total = 0.0
    for b in range(BINS):
        inside = [i for i, row in enumerate(probabilities) if b / BINS < max(row) <= (b + 1) / BINS]
        if inside:
            accuracy = sum(np.argmax(probabilities[i]) == labels[i] for i in inside) / len(inside)
            confidence = sum(max(probabilities[i]) for i in inside) / len(inside)
            total += len(inside) / len(labels) * abs(accuracy - confidence)
    return total


@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("seed", [0, 1])
def test_metrics_equal_scikit_learn(classes, seed):
    scored = example(classes=classes, seed=seed)
    labels, p, predicted = scored.labels, scored.probabilities, scored.probabilities.argmax(axis=1)
    auroc = (
        sk.roc_auc_score(labels, p[:, 1])
        if classes == 2
        else sk.roc_auc_score(labels, p, multi_class="ovr", average="macro")
    )
    found = values(scored)
    expected = {
        "accuracy": 100 * sk.accuracy_score(labels, predicted),
        "macro_f1": sk.f1_score(labels, predicted, average="macro"),
        "mcc": sk.matthews_corrcoef(labels, predicted),
        "auroc": auroc,
        "brier": sk.brier_score_loss(labels, p, scale_by_half=False),
        "calibration_error": expected_calibration_error(labels, p),
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-12)
    matrix = scored.confusion(np.ones((1, len(labels))))[0]
    assert np.array_equal(matrix, sk.confusion_matrix(labels, predicted))
    columns = np.array(sk.precision_recall_fscore_support(labels, predicted, zero_division=0))
    for k, row in enumerate(per_class(matrix)):
        assert list(row.values()) == pytest.approx(columns[:, k])


def test_metrics_of_classes_that_never_occur():
    scored = Scored(np.array([0, 0, 1]), np.array([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.1, 0.8, 0.1]]))
    assert per_class(scored.confusion(np.ones((1, 3)))[0])[2] == {
        "precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 0,
    }  # fmt: skip
    assert values(scored)["macro_f1"] == sk.f1_score([0, 0, 1], [0, 1, 1], average="macro")
    assert values(scored)["auroc"] == 1.0  # classes 0 and 1, each against the rest
    one = Scored(np.array([0, 0]), np.array([[0.6, 0.4], [0.2, 0.8]]))
    assert math.isnan(values(one)["auroc"])
    assert values(one)["mcc"] == 0.0


def test_weights_equal_repeated_examples():
    scored = example(classes=3)
    weights = np.random.default_rng(5).integers(0, 3, size=(4, 200)).astype(float)
    found = measure(scored, weights)
    for row in range(4):
        index = np.repeat(np.arange(200), weights[row].astype(int))
        resampled = Scored(scored.labels[index], scored.probabilities[index])
        assert {name: found[name][row] for name in NAMES} == pytest.approx(values(resampled))


def test_interval_equals_the_bootstrap_of_scipy():
    scored = example(count=300, classes=2)
    correct = (scored.predicted == scored.labels) * 100.0
    theirs = bootstrap(
        (correct,), np.mean, n_resamples=20_000, method="percentile", rng=np.random.default_rng(3)
    ).confidence_interval
    ours = intervals(scored, draws=20_000)["accuracy"]
    assert ours.value == correct.mean()
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.4)
    assert intervals(scored, draws=50) == intervals(scored, draws=50)


@pytest.mark.parametrize(("right", "ends"), [(True, (77.19, 100.0)), (False, (0.0, 22.81))])
def test_all_right_or_all_wrong_have_wilsons_interval(right, ends):
    """Wilson 1927: z² / (n + z²) for 0 of 13, which is 0.2281 at the level 0.95."""
    labels = np.arange(13) % 2
    probabilities = np.where(np.eye(2, dtype=bool)[labels if right else 1 - labels], 0.75, 0.25)
    found = intervals(Scored(labels, probabilities), draws=200)
    assert (found["accuracy"].low, found["accuracy"].high) == pytest.approx(ends, abs=0.01)
    assert found["accuracy"].wilson
    assert np.isnan(found["macro_f1"].low)
    assert not any(one.low == one.high for one in found.values())


def test_the_printed_tables_and_the_json_name_wilsons_interval():
    labels = np.arange(13) % 2
    for right, named in ((13, True), (12, False)):
        predicted = np.where(np.arange(13) < right, labels, 1 - labels)
        scores = Scores.compute(
            "run", Scored(labels, 0.25 + 0.5 * np.eye(2)[predicted]), ["0", "1"], draws=200
        )
        text = tables([Group("", [scores], None)], conventions(200))
        assert ("Wilson" in text) == named
        assert (scores.as_json()["metrics"]["accuracy"].get("interval") == "Wilson") == named
        assert "interval" not in scores.as_json()["metrics"]["brier"]


def half_right(classes, examples=3000, seed=1):
    """Labels and predictions of which about half are right."""
    random = np.random.default_rng(seed)
    labels = random.integers(classes, size=examples)
    probabilities = random.dirichlet(np.ones(classes), examples)
    right = random.random(examples) < 0.5
    probabilities[right, labels[right]] += 1
    return Scored(labels, probabilities / probabilities.sum(axis=1, keepdims=True))


def printed(classes):
    """The tables as lists of rows, each a list of cells, and what was scored."""
    test = half_right(classes)
    scores = Scores.compute("run", test, [f"class {k}" for k in range(classes)], draws=2)
    text = tables([Group("", [scores], None)], conventions(2))
    blocks = [block.splitlines() for block in text.split("\n\n")]
    return [
        [[cell.strip() for cell in line.strip("|").split("|")] for line in block if line.startswith("|")]
        for block in blocks
    ], test


def test_few_classes_have_their_confusion_matrix():
    blocks, test = printed(3)
    (heading, _, *rows) = blocks[1]
    assert heading[-3:] == [f"predicted class {k}" for k in range(3)]
    matrix = confusion_matrix(test.labels, test.predicted)
    assert [[int(cell) for cell in row[-3:]] for row in rows] == matrix.tolist()


def test_twenty_classes_have_a_row_each_and_their_confusions():
    blocks, _ = printed(20)
    _, by_class, confusions = blocks[:3]
    assert len(by_class) == 2 + 20
    assert all(len(row) == 5 for row in by_class)
    assert len(confusions) == 2 + 10


def test_of_two_hundred_classes_the_worst_and_the_best_are_printed():
    blocks, test = printed(200)
    tables_of_classes = [rows for rows in blocks[1:] if rows and rows[0][0] == "true class"]
    worst, best, confusions = tables_of_classes
    f1 = f1_score(test.labels, test.predicted, average=None, labels=range(200))
    shown = [float(row[3]) for row in worst[2:]] + [float(row[3]) for row in best[2:]]
    ordered = np.sort(f1)
    np.testing.assert_allclose(shown, np.r_[ordered[:10], ordered[-10:][::-1]], atol=5e-4)
    assert len(confusions) == 2 + 10
    assert max(len(line) for rows in tables_of_classes for line in map(" | ".join, rows)) < 100
