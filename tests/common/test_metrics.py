"""The metric registry: a metric registered from outside reaches training logs, `evaluate` and `analysis`.

The values of the metrics in `common/metrics/` are tested in tests/eval/evaluate/test_intervals.py.
"""

import json

import numpy as np
import pytest
import torch
from sklearn import metrics as sklearn

from roberta_small.common import predictions
from roberta_small.common.metrics import METRICS, Metric, cut, register
from roberta_small.common.predictions import Prediction
from roberta_small.common.tables import render
from tests.support.analysis.run_trees import write_run

CLASSES = ("neg", "neutral", "pos")


def kappa_distance(matrix):
    """(..., K, K) -> (...): 100 * (1 - Cohen's kappa)."""
    total = matrix.sum((-2, -1))
    agreed = np.trace(matrix, axis1=-2, axis2=-1) / total
    expected = (matrix.sum(-1) * matrix.sum(-2)).sum(-1) / total**2
    return 100 * (1 - (agreed - expected) / (1 - expected))


@pytest.fixture
def toy():
    metric = register(
        Metric("toy", higher_is_better=False, unit="%", digits=1, from_confusion=kappa_distance)
    )
    yield metric
    METRICS.pop("toy")


def sample(count=60, seed=0):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(count, 3))
    labels = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    return labels, np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)


def reference(labels, predicted):
    return 100 * (1 - sklearn.cohen_kappa_score(labels, predicted))


def test_registered_metric_is_in_training_logs(toy):
    from fairseq.logging import metrics

    from roberta_small.fairseq_plugin.tasks.criterion import SentenceClassificationCriterion
    from roberta_small.fairseq_plugin.tasks.objectives import OBJECTIVES, cell_counts

    labels, p = sample()
    cells = cell_counts(torch.tensor(labels), torch.tensor(p).argmax(dim=1), 3)
    with metrics.aggregate(new_root=True) as meters:
        log = {"loss": 1.0, "sample_size": 60, OBJECTIVES["single_label_classification"].meter: cells}
        SentenceClassificationCriterion.reduce_metrics([log])
    assert meters.get_smoothed_values()["toy"] == pytest.approx(reference(labels, p.argmax(axis=1)))


def test_registered_metric_is_in_evaluations(toy, tmp_path, capsys):
    from roberta_small.eval.__main__ import main

    labels, p = sample()
    predictions.write(
        tmp_path / "predictions-test.jsonl",
        [
            Prediction(n, CLASSES[k], dict(zip(CLASSES, row.tolist(), strict=True)))
            for n, (k, row) in enumerate(zip(labels, p, strict=True))
        ],
    )
    out = tmp_path / "evaluation.json"
    words = ["evaluate", "--from-predictions", "--draws", "20", "--out", str(out)]
    assert main([*words, "--checkpoint", str(tmp_path)]) == 0
    (scores,) = json.loads(out.read_text())["groups"][0]["checkpoints"]
    expected = reference(labels, p.argmax(axis=1))
    assert scores["metrics"]["toy"]["value"] == pytest.approx(expected)
    shown = capsys.readouterr().out
    assert "toy (%)" in shown
    assert f"{expected:.1f} [" in shown


def test_registered_metric_has_its_direction_unit_and_digits_in_tables(toy, tmp_path):
    from roberta_small.analysis.features.runs import table1
    from roberta_small.analysis.read.long_table import load_runs
    from roberta_small.analysis.scoring import best_checkpoints

    write_run(tmp_path, "random", 1, [50.0, 12.34, 40.0], [60.0, 23.45, 70.0], metric="toy")
    table = load_runs(tmp_path)
    assert best_checkpoints(table, "toy")["epoch"].tolist() == [2]
    shown = render([table1(table, "toy")])
    assert "toy (%)" in shown
    assert "| 23.4" in shown or "| 23.5" in shown
    assert "23.45" not in shown


def test_intervals_are_cut_at_the_limits_of_the_metric():
    assert cut(-22.55, 189.22, "accuracy") == (0.0, 100.0)
    assert cut(-130.0, 90.0, "accuracy", 40.0, 60.0) == (-100.0, 90.0)
    assert cut(-1.0, 3.0, "rmse") == (0.0, 3.0)
    assert cut(-9.0, 10.0, "macro_f1", 70.0, 69.5) == (-9.0, 10.0)  # logged in percent
