"""Metrics of a classifier on a test set, each as a function of weights, so that a bootstrap is the same code.

N examples, K classes, D weightings of the examples: `weights_DN` says how often each example counts. One row
of ones is the test set itself; a bootstrap sample is a row that counts the draws.

    accuracy        percent
    macro_f1        mean of the classes' F1, 0 to 1; of those that occur or are predicted
    mcc             Matthews correlation, -1 to 1 (Gorodkin 2004, equation 8); 0 where undefined
    auroc           area under the ROC curve, 0 to 1; of more than two classes the mean of one class against
                    the rest, over the classes for which there are both; NaN where there is none
    brier           mean over examples of the squared error summed over classes, 0 to 2 (Brier 1950)
    calibration_error   expected calibration error, 0 to 1: over 15 equal bins of the top probability, the
                    mean of |accuracy - mean top probability|, weighted by size (Guo et al. 2017, equation 3)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from common.statistics import expected_calibration_error

Array = NDArray[np.float64]
NAMES = ("accuracy", "macro_f1", "mcc", "auroc", "brier", "calibration_error")
LEVEL = 0.95
DRAWS = 2000
SEED = 1
CELLS_AT_ONCE = 4_000_000


@dataclass(frozen=True)
class Interval:
    """A value and its percentile-bootstrap interval over the examples."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Scored:
    """A test set with the probabilities that a classifier gave."""

    gold: NDArray[np.int64]
    """(N,) index of the true class."""
    probabilities: Array
    """(N, K)."""

    @property
    def classes(self) -> int:
        """K."""
        return self.probabilities.shape[1]

    @cached_property
    def predicted(self) -> NDArray[np.int64]:
        """(N,) the most probable class, of equal ones the first."""
        return self.probabilities.argmax(axis=1)

    def confusion(self, weights_DN: Array) -> Array:
        """(D, K, K) counts, rows gold, columns predicted."""
        cells_N = self.gold * self.classes + self.predicted
        return _sum_by(cells_N, self.classes**2, weights_DN).reshape(-1, self.classes, self.classes)

    def auroc(self, weights_DN: Array) -> Array:
        """(D,) see the module."""
        columns = [1] if self.classes == 2 else range(self.classes)
        areas_DC = np.stack([self._area(k, weights_DN) for k in columns], axis=1)
        known_DC = ~np.isnan(areas_DC)
        counts_D = known_DC.sum(axis=1)
        sums_D = np.where(known_DC, areas_DC, 0).sum(axis=1)
        return np.divide(sums_D, counts_D, out=np.full(len(sums_D), np.nan), where=counts_D > 0)

    def _area(self, k: int, weights_DN: Array) -> Array:
        """(D,) share of the pairs, one of class k and one not, that are ordered rightly; ties half."""
        _, rank_N = np.unique(self.probabilities[:, k], return_inverse=True)
        ranks = int(rank_N.max()) + 1
        is_k_N = self.gold == k
        positive_DR = _sum_by(rank_N, ranks, weights_DN * is_k_N)
        negative_DR = _sum_by(rank_N, ranks, weights_DN * ~is_k_N)
        below_DR = negative_DR.cumsum(axis=1) - negative_DR
        ordered_D = (positive_DR * (below_DR + negative_DR / 2)).sum(axis=1)
        pairs_D = positive_DR.sum(axis=1) * negative_DR.sum(axis=1)
        return np.divide(ordered_D, pairs_D, out=np.full(len(pairs_D), np.nan), where=pairs_D > 0)

    def brier(self, weights_DN: Array) -> Array:
        """(D,) see the module."""
        truth_NK = np.eye(self.classes)[self.gold]
        error_N = ((self.probabilities - truth_NK) ** 2).sum(axis=1)
        return weights_DN @ error_N / weights_DN.sum(axis=1)

    def calibration_error(self, weights_DN: Array) -> Array:
        """(D,) see the module."""
        return expected_calibration_error(
            self.probabilities.max(axis=1), self.predicted == self.gold, weights_DN
        )

    def measure(self, weights_DN: Array) -> dict[str, Array]:
        """All metrics in `NAMES`, each (D,)."""
        matrix_DKK = self.confusion(weights_DN)
        return {
            "accuracy": 100 * np.trace(matrix_DKK, axis1=1, axis2=2) / weights_DN.sum(axis=1),
            "macro_f1": macro_f1(matrix_DKK),
            "mcc": mcc(matrix_DKK),
            "auroc": self.auroc(weights_DN),
            "brier": self.brier(weights_DN),
            "calibration_error": self.calibration_error(weights_DN),
        }

    def intervals(self, level: float = LEVEL, *, draws: int = DRAWS, seed: int = SEED) -> dict[str, Interval]:
        """Each metric with its interval: percentiles over `draws` test sets drawn with replacement.

        Draws for which a metric is undefined are left out of its interval.
        """
        count = len(self.gold)
        values = {name: float(v[0]) for name, v in self.measure(np.ones((1, count))).items()}
        drawn: dict[str, list[Array]] = {name: [] for name in NAMES}
        for weights_DN in _draw(count, draws, seed):
            for name, value_D in self.measure(weights_DN).items():
                drawn[name].append(value_D)
        tails = [50 * (1 - level), 50 * (1 + level)]
        return {name: Interval(values[name], *_percentiles(drawn[name], tails)) for name in NAMES}


def macro_f1(matrix_DKK: Array) -> Array:
    """(D,) from confusion matrices; equals scikit-learn's `f1_score(average="macro")`."""
    correct_DK = np.diagonal(matrix_DKK, axis1=1, axis2=2)
    seen_DK = matrix_DKK.sum(axis=1) + matrix_DKK.sum(axis=2)
    f1_DK = np.divide(2 * correct_DK, seen_DK, out=np.zeros_like(seen_DK), where=seen_DK > 0)
    return f1_DK.sum(axis=1) / (seen_DK > 0).sum(axis=1)


def mcc(matrix_DKK: Array) -> Array:
    """(D,) Matthews correlation from confusion matrices, as scikit-learn has it."""
    total_D = matrix_DKK.sum(axis=(1, 2))
    gold_DK, predicted_DK = matrix_DKK.sum(axis=2), matrix_DKK.sum(axis=1)
    correct_D = np.trace(matrix_DKK, axis1=1, axis2=2)
    covariance_D = correct_D * total_D - (gold_DK * predicted_DK).sum(axis=1)
    spread_D = (total_D**2 - (gold_DK**2).sum(axis=1)) * (total_D**2 - (predicted_DK**2).sum(axis=1))
    return np.divide(covariance_D, np.sqrt(spread_D), out=np.zeros_like(covariance_D), where=spread_D > 0)


def per_class(matrix_KK: Array) -> list[dict[str, float]]:
    """Precision, recall and F1 (0 to 1; 0 where undefined) and the number of examples of each class."""
    rows = []
    for k in range(len(matrix_KK)):
        correct, gold, predicted = matrix_KK[k, k], matrix_KK[k].sum(), matrix_KK[:, k].sum()
        rows.append(
            {
                "precision": float(correct / predicted) if predicted else 0.0,
                "recall": float(correct / gold) if gold else 0.0,
                "f1": float(2 * correct / (gold + predicted)) if gold + predicted else 0.0,
                "support": int(gold),
            }
        )
    return rows


def _sum_by(group_N: NDArray[np.int64], groups: int, weights_DN: Array) -> Array:
    """(D, groups): the weights summed over the examples of each group."""
    count = len(group_N)
    membership = sparse.csr_array((np.ones(count), group_N, np.arange(count + 1)), shape=(count, groups))
    return np.asarray(weights_DN @ membership)


def _draw(count: int, draws: int, seed: int) -> Iterator[Array]:
    """Weights of bootstrap samples in portions, so that memory stays bounded."""
    rng = np.random.default_rng(seed)
    portion = max(1, CELLS_AT_ONCE // count)
    for start in range(0, draws, portion):
        size = min(portion, draws - start)
        picked = rng.integers(count, size=(size, count)) + np.arange(size)[:, None] * count
        yield np.bincount(picked.ravel(), minlength=size * count).reshape(size, count).astype(float)


def _percentiles(portions: list[Array], tails: list[float]) -> tuple[float, float]:
    values_D = np.concatenate(portions)
    values_D = values_D[~np.isnan(values_D)]
    if not len(values_D):
        return float("nan"), float("nan")
    low, high = np.percentile(values_D, tails)
    return float(low), float(high)
