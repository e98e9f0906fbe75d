"""Linear models of fixed features: the fit of the methods tfidf and frozen, and what both write of it.

A logistic regression, for multi-label data one for each class, for numeric labels a ridge regression; the
strength of the penalty is chosen on valid.

N texts, V features, K classes, or 1 for regression.
"""

from __future__ import annotations

import json
import logging
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multiclass import OneVsRestClassifier
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from threadpoolctl import threadpool_limits

from roberta_small.common import predictions
from roberta_small.common.label_kinds import Labels, Targets, chosen_thresholds
from roberta_small.common.metrics import LOSS, logged, number, scored
from roberta_small.common.run import TENSORBOARD

STRENGTHS = tuple(10 ** (half / 2) for half in range(-4, 9))
"""C, the inverse strength of the L2 penalty: 0.01 to 10,000."""
TOLERANCE = 1e-6
"""scikit-learn's default of 1e-4 stops before the optimum if C is large."""
MAX_ITERATIONS = 5000
STEP = 1
"""The fit is logged as one step."""
EPSILON = np.finfo(float).eps
"""The least probability of a true class in the loss."""
CERTAIN = 20.0
"""Logit of a class that all training texts have."""


@dataclass(frozen=True)
class Linear:
    """A linear model fitted on train, with C chosen on valid."""

    weights: NDArray[np.float64]
    """(K, V), of two exclusive classes (1, V): those of the second one."""
    bias: NDArray[np.float64]
    """(K,), or (1,) as `weights`."""
    labels: Labels
    """With the thresholds of multi-label data."""
    strength: float
    valid_scores: dict[float, float]
    """The metric of the kind of labels for each of `STRENGTHS`."""

    def outputs(self, features_NV: Any) -> NDArray[np.float64]:
        """Probabilities (N, K), or values (N, 1)."""
        logits_NK = np.asarray(features_NV @ self.weights.T) + self.bias
        if self.labels.kind.exclusive and logits_NK.shape[1] == 1:
            logits_NK = np.hstack([np.zeros_like(logits_NK), logits_NK])
        return self.labels.outputs(logits_NK)

    @property
    def rows(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Weights (K, V) and biases (K,), with a row for each of two exclusive classes."""
        if len(self.weights) == self.labels.size:
            return self.weights, self.bias
        return np.stack([-self.weights[0], self.weights[0]]) / 2, np.array([-self.bias[0], self.bias[0]]) / 2

    def of_inputs(self, mean_V: NDArray[np.float64], length: float) -> Linear:
        """The model of x that computes what this one does of (x - `mean_V`) / `length`."""
        weights_KV = self.weights / length
        return replace(self, weights=weights_KV, bias=self.bias - weights_KV @ mean_V)

    def record(self) -> dict[str, Any]:
        """A JSON object: the chosen strength and the scores of all."""
        metric = self.labels.kind.metric
        return {
            "C": self.strength,
            f"valid_{metric}": [{"C": c, metric: score} for c, score in self.valid_scores.items()],
        }

    def print_scores(self) -> None:
        """A line for each strength."""
        metric = self.labels.kind.metric
        for strength, value in self.valid_scores.items():
            shown = f"valid {metric} {number(value, metric)}"
            print(f"C {strength:<8.3g} {shown}{'  chosen' * (strength == self.strength)}")


def fit(features: Mapping[str, Any], targets: Mapping[str, Targets], labels: Labels, by: str) -> Linear:
    """Fit on train for each of `STRENGTHS` and choose by a logged metric on valid; the smallest C wins a tie.

    `features` (N, V) and `targets` (`common.label_kinds`) are those of train and valid. A correlation is the
    same for values that a strong penalty pulls towards the mean, so that numbers are chosen by the loss.
    """
    with threadpool_limits(1):  # for products of this size, more threads only wait for each other
        train_NV, kind = features["train"], labels.kind
        # For many classes, Newton's method from the solution of the strength before is seven times faster.
        how: dict[str, Any] = {"solver": "newton-cg", "warm_start": True} if len(labels.classes) > 2 else {}
        exclusive = LogisticRegression(tol=TOLERANCE, max_iter=MAX_ITERATIONS, **how)
        found: dict[float, float] = {}
        best, merit = None, -np.inf
        for strength in STRENGTHS:
            model: Any
            if kind.exclusive:
                model = exclusive.set_params(C=strength).fit(train_NV, targets["train"])
            elif kind.has_classes:
                one = LogisticRegression(C=strength, tol=TOLERANCE, max_iter=MAX_ITERATIONS)
                with warnings.catch_warnings(action="ignore"):  # a class that all texts have, or none
                    model = OneVsRestClassifier(one).fit(train_NV, targets["train"].astype(int))
            else:
                solver = "auto" if isinstance(train_NV, np.ndarray) else "sparse_cg"
                model = Ridge(alpha=1 / strength, tol=TOLERANCE, max_iter=MAX_ITERATIONS, solver=solver)
                model.fit(train_NV, (targets["train"] - labels.scaling.mean) / labels.scaling.scale)
            fitted = Linear(*_coefficients(model), labels, strength, found)
            reached = scores(labels, targets["valid"], fitted.outputs(features["valid"]))
            found[strength] = reached[kind.metric]
            value = -reached[LOSS] if by == LOSS or not kind.has_classes else reached[by]
            if best is None or value > merit:
                best, merit = fitted, value
        assert best is not None
        thresholds = chosen_thresholds(labels, targets["valid"], best.outputs(features["valid"]))
        return replace(best, labels=labels.with_thresholds(thresholds))


def _coefficients(model: LogisticRegression | OneVsRestClassifier | Ridge) -> tuple[NDArray, NDArray]:
    """Weights and biases as in `Linear`, in arrays of their own."""
    if not isinstance(model, OneVsRestClassifier):
        return np.atleast_2d(model.coef_).copy(), np.atleast_1d(model.intercept_).copy()
    weights, biases = [], []
    size = next((one.coef_.shape[1] for one in model.estimators_ if hasattr(one, "coef_")), 0)
    for one in model.estimators_:
        if hasattr(one, "coef_"):
            weights.append(one.coef_[0])
            biases.append(float(one.intercept_[0]))
        else:  # a class that all training texts have, or none
            weights.append(np.zeros(size))
            biases.append(CERTAIN if one.predict(np.zeros((1, size)))[0] else -CERTAIN)
    return np.stack(weights), np.array(biases)


def scores(labels: Labels, targets: Targets, outputs_NK: NDArray[np.float64]) -> dict[str, float]:
    """The metrics of a training log.

    As in training, a class of multi-label data is predicted from a probability of 0.5 on, and the loss is in
    bits: the mean over examples and classes, or of the squared error of standardized values divided by ln 2.
    """
    test_set = scored(replace(labels, thresholds=()), targets, outputs_NK)
    statistics = test_set.statistics(np.ones((1, len(targets))))
    found = {
        metric.name: float(metric.from_statistics(statistics)[0])
        for metric in logged(labels.kind.name)
        if metric.from_statistics is not None
    }
    if labels.kind.exclusive:
        losses = -np.log(np.maximum(outputs_NK[np.arange(len(targets)), targets], EPSILON))
    elif labels.kind.has_classes:
        p_NK = np.clip(outputs_NK, np.finfo(float).tiny, 1 - EPSILON)
        losses = -np.where(targets, np.log(p_NK), np.log1p(-p_NK))
    else:
        losses = ((outputs_NK[:, 0] - targets) / labels.scaling.scale) ** 2
    return {**found, LOSS: float(losses.mean()) / np.log(2)}


def write_split(
    folder: Path,
    name: str,
    labels: Labels,
    targets: Targets,
    outputs_NK: NDArray[np.float64],
    keys: list[str] | None,
) -> None:
    """Write the event file of a split, log its scores as fairseq-train does, and write its predictions.

    `keys` are those of the texts (`common.predictions`), if they are known. Train has no predictions.
    """
    found = scores(labels, targets, outputs_NK)
    writer = EventFileWriter(str(folder / TENSORBOARD / name))
    summary = Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in found.items()])
    writer.add_event(Event(wall_time=time.time(), step=STEP, summary=summary))
    writer.close()
    prefix = "" if name == "train" else f"{name}_"
    record = {"epoch": 1} | {f"{prefix}{key}": f"{value:.6g}" for key, value in found.items()}
    logging.getLogger(name).info(json.dumps(record | {f"{prefix}num_updates": str(STEP)}))
    if name != "train":
        rows = predictions.from_outputs(labels, outputs_NK, targets)
        predictions.write(folder / predictions.file_name(name), rows, keys)
