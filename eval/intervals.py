"""Every registered metric of a test set with its bootstrap interval, and scores by class.

Shapes: N examples, K classes, D weightings of the examples (see `common.metrics`, which defines the metrics).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from roberta_small.common.metrics import ACCURACIES, METRICS, Array, Scored
from roberta_small.common.statistics import LEVEL, SEED, wilson_interval

DRAWS = 2000
"""Fewer than in `common.statistics`: every metric of every checkpoint is computed for each draw."""
MAX_CELLS = 4_000_000
"""Largest number of elements of the weights (D, N) or of the confusion matrices (D, K, K)."""


@dataclass(frozen=True)
class Interval:
    """A value and its percentile bootstrap interval over the examples."""

    value: float
    low: float
    high: float
    wilson: bool = False
    """Whether it is Wilson's interval instead: for an accuracy of 0 or 100 %."""


def measure(scored: Scored, weights_DN: Array) -> dict[str, Array]:
    """Every registered metric for each weighting: name -> (D,)."""
    matrix_DKK = scored.confusion(weights_DN)
    return {
        name: metric.measure(scored, weights_DN)
        if metric.from_confusion is None
        else metric.from_confusion(matrix_DKK)
        for name, metric in METRICS.items()
    }


def intervals(
    scored: Scored, level: float = LEVEL, *, draws: int = DRAWS, seed: int = SEED
) -> dict[str, Interval]:
    """Each metric with its percentile bootstrap interval from `draws` resampled test sets.

    Resampled sets on which a metric is undefined are left out of its interval. If all predictions are right,
    or all wrong, all resampled sets have the same accuracy, whose interval is then Wilson's; those of other
    metrics with the same value in all sets are NaN.
    """
    count = len(scored.labels)
    values = {name: float(v[0]) for name, v in measure(scored, np.ones((1, count))).items()}
    drawn: dict[str, list[Array]] = {name: [] for name in values}
    for weights_DN in _bootstrap_weights(count, scored.classes, draws, seed):
        for name, value_D in measure(scored, weights_DN).items():
            drawn[name].append(value_D)
    tails = [50 * (1 - level), 50 * (1 + level)]
    found = {name: Interval(value, *_percentiles(drawn[name], tails)) for name, value in values.items()}
    if values["accuracy"] not in (0, 100):
        return found
    return {name: _with_width(name, one, count, level) for name, one in found.items()}


def per_class(matrix_KK: Array) -> list[dict[str, float]]:
    """Precision, recall and F1 (0 to 1; 0 where undefined) and the number of examples of each class."""
    rows = []
    for k in range(len(matrix_KK)):
        correct, present, predicted = matrix_KK[k, k], matrix_KK[k].sum(), matrix_KK[:, k].sum()
        rows.append(
            {
                "precision": float(correct / predicted) if predicted else 0.0,
                "recall": float(correct / present) if present else 0.0,
                "f1": float(2 * correct / (present + predicted)) if present + predicted else 0.0,
                "support": int(present),
            }
        )
    return rows


def most_confused(matrix_KK: Array) -> list[tuple[int, int, int]]:
    """(true class, predicted class, examples) of every error, most frequent first."""
    wrong_KK = np.asarray(matrix_KK).astype(np.int64)
    np.fill_diagonal(wrong_KK, 0)
    true_E, predicted_E = np.nonzero(wrong_KK)
    number_E = wrong_KK[true_E, predicted_E]
    order_E = np.argsort(-number_E, kind="stable")
    columns = (true_E[order_E], predicted_E[order_E], number_E[order_E])
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _bootstrap_weights(count: int, classes: int, draws: int, seed: int) -> Iterator[Array]:
    """Yield the example weights of bootstrap samples, (D, N), in portions of bounded size.

    A portion also bounds the confusion matrices, (D, K, K). It does not change the samples.
    """
    rng = np.random.default_rng(seed)
    portion = max(1, MAX_CELLS // max(count, classes**2))
    for start in range(0, draws, portion):
        size = min(portion, draws - start)
        picked = rng.integers(count, size=(size, count)) + np.arange(size)[:, None] * count
        yield np.bincount(picked.ravel(), minlength=size * count).reshape(size, count).astype(float)


def _with_width(name: str, interval: Interval, count: int, level: float) -> Interval:
    """The interval, or its replacement if all resampled sets of `count` examples have the same value."""
    if interval.low != interval.high:  # also if they are NaN
        return interval
    if name not in ACCURACIES:
        return Interval(interval.value, float("nan"), float("nan"))
    low, high = wilson_interval(interval.value / 100, count, level)
    return Interval(interval.value, 100 * low, 100 * high, wilson=True)


def _percentiles(portions: list[Array], tails: list[float]) -> tuple[float, float]:
    values_D = np.concatenate(portions)
    values_D = values_D[~np.isnan(values_D)]
    if not len(values_D):
        return float("nan"), float("nan")
    low, high = np.percentile(values_D, tails)
    return float(low), float(high)
