"""Accuracy, confusion and calibration against scikit-learn, and their figures."""

import itertools
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.calibration import calibration_curve
from sklearn.metrics import confusion_matrix

from roberta_small.analysis.features.accuracy import (
    accuracy_table,
    confused_pairs,
    draw_confused_pairs,
    draw_confusion,
    draw_predictions_of,
    draw_reliability,
)
from roberta_small.analysis.predictions import read_predictions
from roberta_small.analysis.query import NO_STUDY
from roberta_small.analysis.read.runs import find_runs
from roberta_small.common.predictions import Prediction, file_name, write
from roberta_small.common.statistics import BINS, confusion, expected_calibration_error, reliability
from tests.support.analysis.run_trees import write_run

CLASSES = ["bad", "good", "so so"]


@pytest.fixture
def predictions(tmp_path):
    """Two seeds with 200 predictions each, some of them unlabelled."""
    random = np.random.default_rng(1)
    for seed in (1, 2):
        run = write_run(tmp_path, "random", seed, [50.0], [50.0])
        probabilities_NC = random.dirichlet([0.7] * 3, 200).round(6)
        labels = random.choice(CLASSES, 200)
        write(
            run / file_name("test"),
            [
                Prediction(
                    index,
                    None if index % 50 == 0 else str(labels[index]),
                    dict(zip(CLASSES, map(float, row / row.sum()), strict=True)),
                )
                for index, row in enumerate(probabilities_NC)
            ],
        )
    return read_predictions(find_runs(tmp_path))


@pytest.mark.parametrize("counted", [60.05, 64.1])
@pytest.mark.parametrize(("difference", "noted"), [(0.1, False), (-0.1, False), (0.15, True), (-0.15, True)])
def test_note_on_an_accuracy_that_differs_from_the_log_by_more_than_a_tenth(counted, difference, noted):
    """The log is in single precision."""
    run = {"arm": ["fairseq"], "init": ["random"], "seed": [1]}
    data = pd.DataFrame({**run, "n": 2000, "accuracy": counted, "low": 50.0, "high": 70.0})
    logged = pd.DataFrame({**run, "value": float(np.float32(counted + difference))})
    notes = accuracy_table(data, logged, "test", None).notes
    assert any("0.1 points" in note and "fairseq/random/seed1" in note for note in notes) is noted


def test_confusion_agrees_with_sklearn(predictions):
    assert len(predictions) == 2 * 196
    expected = confusion_matrix(predictions["label"], predictions["predicted"], labels=CLASSES) / 2
    counts = confusion(predictions)
    assert list(counts) == list(counts.index) == CLASSES
    np.testing.assert_array_equal(counts, expected)


def test_a_class_that_never_occurs_has_its_row_and_column(predictions):
    some = predictions[(predictions["label"] != "good") & (predictions["predicted"] != "good")]
    expected = confusion_matrix(some["label"], some["predicted"], labels=CLASSES) / 2
    np.testing.assert_array_equal(confusion(some), expected)


def test_reliability_agrees_with_sklearn(predictions):
    accuracy, confidence = calibration_curve(predictions["correct"], predictions["confidence"], n_bins=BINS)
    table = reliability(predictions["confidence"], predictions["correct"])
    np.testing.assert_allclose(table["accuracy"], accuracy)
    np.testing.assert_allclose(table["confidence"], confidence)
    assert table["fraction"].sum() == pytest.approx(1)


def test_a_bin_includes_its_upper_end_only():
    table = reliability([0.5, 0.55, 0.6, 0.7], [True, False, True, True])
    assert table.index.tolist() == [7, 8, 10]
    assert table["fraction"].tolist() == [0.25, 0.5, 0.25]


def test_calibration_error_by_hand():
    confidence, correct = [0.55, 0.6, 0.95, 1.0], [True, False, True, True]
    # Two bins of two predictions: |0.5 - 0.575| and |1 - 0.975|.
    found = expected_calibration_error(confidence, correct)
    assert found == pytest.approx([0.5 * 0.075 + 0.5 * 0.025])
    weights = np.array([[1.0, 1, 1, 1], [2, 2, 0, 0]])
    found = expected_calibration_error(confidence, correct, weights)
    assert found == pytest.approx([0.05, 0.075])


def many(classes, examples=4000):
    """Predictions of many classes, most of them right, in the columns of `read_predictions`."""
    random = np.random.default_rng(1)
    names = [f"class number {k}" for k in range(classes)]
    labels = random.integers(classes, size=examples)
    predicted = np.where(random.random(examples) < 0.7, labels, random.integers(classes, size=examples))
    return pd.DataFrame(
        {
            "group": "fairseq/random",
            "seed": 1,
            "label": pd.Categorical.from_codes(labels, names),
            "predicted": pd.Categorical.from_codes(predicted, names),
            "correct": labels == predicted,
            "confidence": random.uniform(0.2, 1, examples),
        }
    )


def test_cells_of_twenty_classes_contain_whole_percentages():
    predictions = many(20)
    figure = draw_confusion(predictions)
    panel = figure.axes[0]
    names = list(predictions["label"].cat.categories)
    rows = confusion_matrix(predictions["label"], predictions["predicted"], labels=names, normalize="true")
    expected = [f"{100 * fraction:.0f}" for fraction in rows.ravel() if fraction >= 0.005]
    assert [text.get_text() for text in panel.texts] == expected
    assert len(panel.get_yticklabels()) == 20
    assert_labels_do_not_overlap(figure)


def test_of_many_classes_those_with_the_most_errors_are_shown():
    predictions = many(200)
    figure = draw_confusion(predictions)
    wrong = predictions[~predictions["correct"]]
    errors = wrong["label"].value_counts() + wrong["predicted"].value_counts()
    shown = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert shown[-1] == "other classes"
    assert len(shown) == 25
    assert errors[shown[:-1]].min() >= errors.drop(shown[:-1]).max()
    image = np.ma.filled(figure.axes[0].images[0].get_array(), np.nan)
    merged = [
        [name if name in shown else "other classes" for name in predictions[column]]
        for column in ("label", "predicted")
    ]
    np.testing.assert_allclose(image, confusion_matrix(*merged, labels=shown, normalize="true"))
    assert_labels_do_not_overlap(figure)


def test_confused_pairs_are_the_largest_cells_beside_the_diagonal():
    predictions = many(20)
    pairs = confused_pairs(confusion(predictions))
    matrix = confusion_matrix(predictions["label"], predictions["predicted"])
    np.fill_diagonal(matrix, 0)
    assert [number for _, _, number in pairs] == sorted(matrix[matrix > 0].tolist(), reverse=True)
    panel = draw_confused_pairs(predictions).axes[0]
    assert [bar.get_width() for bar in panel.patches] == [number for _, _, number in pairs[:15]]


def test_only_many_classes_have_a_figure_of_confused_pairs(predictions):
    for frame, drawn in ((predictions, False), (many(9), True)):
        figures = draw_predictions_of(SimpleNamespace(predictions=frame, study=NO_STUDY))
        assert ("confused_pairs" in dict(figures)) == drawn


def assert_labels_do_not_overlap(figure):
    figure.canvas.draw()
    panel = figure.axes[0]
    for labels, side in ((panel.get_yticklabels(), "y"), (panel.get_xticklabels(), "x")):
        boxes = [label.get_window_extent() for label in labels]
        spans = sorted(((box.y0, box.y1) if side == "y" else (box.x0, box.x1)) for box in boxes)
        assert all(low[1] <= high[0] + 1 for low, high in itertools.pairwise(spans)), side


def test_the_reliability_diagram_draws_the_table(predictions):
    (panel,) = draw_reliability(predictions).axes
    accuracy = next(line for line in panel.get_lines() if line.get_label() == "accuracy")
    np.testing.assert_allclose(
        accuracy.get_ydata(), reliability(predictions["confidence"], predictions["correct"])["accuracy"]
    )
    errors = [
        expected_calibration_error(group["confidence"], group["correct"])
        for _, group in predictions.groupby("seed")
    ]
    assert not accuracy.get_clip_on()  # a marker at 1 would be cut in half
    assert f"ECE ({BINS} bins) {100 * np.mean(errors):.1f} points" in panel.get_title()
