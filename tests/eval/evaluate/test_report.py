"""The printed tables of `eval evaluate` for few, twenty and two hundred classes."""

import numpy as np
from sklearn.metrics import confusion_matrix, f1_score

from roberta_small.common.metrics import Scored
from roberta_small.eval.evaluate.report import Group, Scores, conventions, tables


def scored(classes, examples=3000, seed=1):
    """Labels and predictions of which about half are right."""
    random = np.random.default_rng(seed)
    labels = random.integers(classes, size=examples)
    probabilities = random.dirichlet(np.ones(classes), examples)
    right = random.random(examples) < 0.5
    probabilities[right, labels[right]] += 1
    return Scored(labels, probabilities / probabilities.sum(axis=1, keepdims=True))


def printed(classes):
    """The tables as lists of rows, each a list of cells, and what was scored."""
    test = scored(classes)
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
