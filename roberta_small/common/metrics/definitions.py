"""The registered metrics. Shapes as in `sums`."""

from __future__ import annotations

from typing import Any

import numpy as np

from roberta_small.common.label_kinds import REGRESSION
from roberta_small.common.metrics.metric import Metric, register
from roberta_small.common.metrics.sums import Array, Counts, LabelCounts, Moments, Scored, ScoredValues
from roberta_small.common.statistics import BINS, ECE, expected_calibration_error, sum_by


def accuracy(matrix: Counts) -> Array:
    """(..., K, K) -> (...): percentage of correct predictions, as fairseq logs it; 0 without examples."""
    correct = np.trace(matrix, axis1=-2, axis2=-1).astype(float)
    return 100.0 * correct / np.maximum(matrix.sum(axis=(-2, -1)).astype(float), 1.0)


def macro_f1(matrix: Counts) -> Array:
    """(..., K, K) -> (...): mean F1, 0 to 1, of the classes that occur or are predicted; 0 without examples.

    Same as scikit-learn's `f1_score(average="macro")`.
    """
    correct: Counts = np.diagonal(matrix, axis1=-2, axis2=-1).astype(float)
    return _mean_f1(correct, matrix.sum(axis=-2) + matrix.sum(axis=-1))


def mcc(matrix: Counts) -> Array:
    """(..., K, K) -> (...): Matthews correlation, -1 to 1, for any number of classes.

    Gorodkin 2004, equation 8; 0 if all labels or all predictions are of one class, as in scikit-learn.
    """
    matrix = np.asarray(matrix, dtype=float)
    total, label_counts, predicted_counts = matrix.sum((-2, -1)), matrix.sum(-1), matrix.sum(-2)
    correct = np.trace(matrix, axis1=-2, axis2=-1)
    covariance = np.asarray(correct * total - (label_counts * predicted_counts).sum(-1))
    spread = (total**2 - (label_counts**2).sum(-1)) * (total**2 - (predicted_counts**2).sum(-1))
    root = np.sqrt(np.maximum(spread, 0))
    return np.divide(covariance, root, out=np.zeros_like(covariance), where=spread > 0)


def auroc(scored: Scored, weights_DN: Array) -> Array:
    """(D,) area under the ROC curve, 0 to 1.

    With more than two classes, the one-vs-rest areas are averaged over the classes for which both sides have
    examples; NaN if there is no such class.
    """
    columns = [1] if scored.classes == 2 else range(scored.classes)
    areas_DC = np.stack([_area(scored, k, weights_DN) for k in columns], axis=1)
    known_DC = ~np.isnan(areas_DC)
    counts_D = known_DC.sum(axis=1)
    sums_D = np.where(known_DC, areas_DC, 0).sum(axis=1)
    return np.divide(sums_D, counts_D, out=np.full(len(sums_D), np.nan), where=counts_D > 0)


def _area(scored: Scored, k: int, weights_DN: Array) -> Array:
    """(D,) fraction of correctly ranked pairs of an example of class k and one of another class.

    Ties count half; NaN without such pairs.
    """
    _, rank_N = np.unique(scored.probabilities[:, k], return_inverse=True)
    ranks = int(rank_N.max()) + 1
    is_k_N = scored.labels == k
    positive_DR = sum_by(rank_N, ranks, weights_DN * is_k_N)
    negative_DR = sum_by(rank_N, ranks, weights_DN * ~is_k_N)
    below_DR = negative_DR.cumsum(axis=1) - negative_DR
    ordered_D = (positive_DR * (below_DR + negative_DR / 2)).sum(axis=1)
    pairs_D = positive_DR.sum(axis=1) * negative_DR.sum(axis=1)
    return np.divide(ordered_D, pairs_D, out=np.full(len(pairs_D), np.nan), where=pairs_D > 0)


def brier(scored: Scored, weights_DN: Array) -> Array:
    """(D,) mean over examples of the squared error summed over classes, 0 to 2 (Brier 1950)."""
    truth_NK = np.eye(scored.classes)[scored.labels]
    error_N = ((scored.probabilities - truth_NK) ** 2).sum(axis=1)
    return weights_DN @ error_N / weights_DN.sum(axis=1)


def calibration_error(scored: Scored, weights_DN: Array) -> Array:
    """(D,) expected calibration error of the top probability, 0 to 1 (Guo et al. 2017, equation 3)."""
    confidence_N = scored.probabilities.max(axis=1)
    return expected_calibration_error(confidence_N, scored.predicted == scored.labels, weights_DN)


def _f1(correct: Counts, seen: Counts) -> Array:
    """F1 from numbers of the same shape: correct predictions, and labels plus predictions; 0 without any."""
    seen = np.asarray(seen, dtype=float)
    return np.divide(2.0 * correct, seen, out=np.zeros_like(seen), where=seen > 0)


def _mean_f1(correct: Counts, seen: Counts) -> Array:
    """(..., K) -> (...): the mean over the classes with labels or predictions."""
    return _f1(correct, seen).sum(axis=-1) / np.maximum((seen > 0).sum(axis=-1), 1)


def micro_f1(counts: LabelCounts) -> Array:
    """(...,): F1, 0 to 1, of all pairs of an example and a class; 0 without any label or prediction."""
    tp, fp, fn, _ = np.moveaxis(counts.cells.sum(axis=-2), -1, 0)
    return _f1(tp, 2 * tp + fp + fn)


def macro_f1_of_labels(counts: LabelCounts) -> Array:
    """(...,): mean F1, 0 to 1, of the classes that occur or are predicted; 0 without any."""
    tp, fp, fn, _ = np.moveaxis(counts.cells, -1, 0)
    return _mean_f1(tp, 2 * tp + fp + fn)


def subset_accuracy(counts: LabelCounts) -> Array:
    """(...,): percentage of the examples of which all classes are predicted correctly."""
    return 100.0 * np.asarray(counts.exact, dtype=float) / np.maximum(counts.examples, 1.0)


def pearson(moments: Moments) -> Array:
    """(...,): Pearson correlation, -1 to 1; 0 if all labels or all values are equal."""
    n, t, p, tt, pp, tp = np.moveaxis(np.asarray(moments.sums, dtype=float), -1, 0)
    covariance, variance_t, variance_p = n * tp - t * p, n * tt - t * t, n * pp - p * p
    # Rounding leaves a small variance of equal values.
    varies = (variance_t > 1e-12 * n * tt) & (variance_p > 1e-12 * n * pp)
    root = np.sqrt(np.maximum(variance_t, 0)) * np.sqrt(np.maximum(variance_p, 0))
    found = np.divide(covariance, root, out=np.zeros_like(root), where=varies & (root > 0))
    return np.clip(found, -1, 1)


def rmse(moments: Moments) -> Array:
    """(...,): root of the mean squared error, in the unit of the labels; 0 without examples."""
    n, _, _, tt, pp, tp = np.moveaxis(np.asarray(moments.sums, dtype=float), -1, 0)
    return np.sqrt(np.maximum(tt + pp - 2 * tp, 0) / np.maximum(n, 1))


def spearman(scored: ScoredValues, weights_DN: Array) -> Array:
    """(D,) Spearman correlation: Pearson correlation of the ranks, ties with their mean rank.

    NaN if all labels or all values are equal.
    """
    t_DN, p_DN = _ranks(scored.targets, weights_DN), _ranks(scored.values, weights_DN)
    total_D1 = weights_DN.sum(axis=1, keepdims=True)
    for ranks_DN in (t_DN, p_DN):
        ranks_DN -= (weights_DN * ranks_DN).sum(axis=1, keepdims=True) / total_D1
    variance_D = (weights_DN * t_DN**2).sum(axis=1) * (weights_DN * p_DN**2).sum(axis=1)
    covariance_D = (weights_DN * t_DN * p_DN).sum(axis=1)
    root_D = np.sqrt(variance_D)
    return np.divide(covariance_D, root_D, out=np.full(len(root_D), np.nan), where=root_D > 1e-9)


def _ranks(values_N: Array, weights_DN: Array) -> Array:
    """(D, N) rank of each example; one with weight w counts as w examples with the same value."""
    _, group_N = np.unique(values_N, return_inverse=True)
    weight_DG = sum_by(group_N, int(group_N.max()) + 1, weights_DN)
    middle_DG = weight_DG.cumsum(axis=1) - weight_DG + (weight_DG + 1) / 2
    return middle_DG[:, group_N]


def _add(name: str, heading: str, description: str, *, higher_is_better: bool = True, **more: Any) -> None:
    register(
        Metric(name, higher_is_better=higher_is_better, heading=heading, description=description, **more)
    )


FRACTION: dict[str, Any] = {"limits": (0.0, 1.0)}
CORRELATION: dict[str, Any] = {"limits": (-1.0, 1.0)}
PERCENT: dict[str, Any] = {"unit": "%", "digits": 2, "limits": (0.0, 100.0)}
MACRO = "macro-F1", "mean F1 of the classes that occur or are predicted"

_add("accuracy", "", "percent", from_confusion=accuracy, **PERCENT)
_add("macro_f1", *MACRO, from_confusion=macro_f1, **FRACTION)
about = "Matthews correlation; 0 if all labels or all predictions are of one class"
_add("mcc", "MCC", about, from_confusion=mcc, **CORRELATION)
about = "two classes: area under the ROC curve; more: mean of each class against the rest"
_add("auroc", "AUROC", about, from_predictions=auroc, **FRACTION)
about = "mean squared error summed over the classes, 0 to 2"
_add("brier", "Brier", about, higher_is_better=False, from_predictions=brier, limits=(0.0, 2.0))
about = f"expected calibration error, {BINS} bins of equal width of the top probability"
_add("calibration_error", ECE, about, higher_is_better=False, from_predictions=calibration_error, **FRACTION)
_add("micro_f1", "micro-F1", "F1 over all pairs of an example and a class", from_counts=micro_f1, **FRACTION)
_add("macro_f1", *MACRO, from_counts=macro_f1_of_labels, **FRACTION)
about = "percentage of examples of which all classes are predicted correctly"
_add("subset_accuracy", "", about, from_counts=subset_accuracy, **PERCENT)
about = "Pearson correlation; 0 if all labels or all predicted values are equal"
_add("pearson", "Pearson", about, from_moments=pearson, **CORRELATION)
about = "Spearman correlation; equal values have their mean rank"
_add("spearman", "Spearman", about, from_predictions=spearman, kind=REGRESSION, **CORRELATION)
about = "root of the mean squared error, in the unit of the labels"
_add("rmse", "RMSE", about, higher_is_better=False, from_moments=rmse, limits=(0.0, float("inf")))
