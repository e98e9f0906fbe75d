"""Test sets with their predictions, and the sums over them of which metrics are functions.

Shapes: N examples, K classes, D weightings of the examples. `weights_DN` is the weight of each example: one
row of ones for the test set itself, a row of counts for a bootstrap sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from roberta_small.common.label_kinds import MULTI_LABEL, REGRESSION, SINGLE_LABEL, Labels, Targets
from roberta_small.common.statistics import sum_by

Array = NDArray[np.float64]
Counts = Array | NDArray[np.integer]


@dataclass(frozen=True, eq=False)
class Scored:
    """A test set with one class per text, and the probabilities predicted for it."""

    labels: NDArray[np.int64]
    """(N,) index of the true class."""
    probabilities: Array
    """(N, K)."""
    kind = SINGLE_LABEL

    @property
    def count(self) -> int:
        """N."""
        return len(self.labels)

    @property
    def classes(self) -> int:
        """K."""
        return self.probabilities.shape[1]

    @property
    def cells(self) -> int:
        """Number of elements of a confusion matrix."""
        return self.classes**2

    @cached_property
    def predicted(self) -> NDArray[np.int64]:
        """(N,) the most probable class; the first of equally probable ones."""
        return self.probabilities.argmax(axis=1)

    def confusion(self, weights_DN: Array) -> Array:
        """(D, K, K) weighted counts; rows are true classes, columns predicted ones."""
        cells_N = self.labels * self.classes + self.predicted
        return sum_by(cells_N, self.classes**2, weights_DN).reshape(-1, self.classes, self.classes)

    statistics = confusion


@dataclass(frozen=True, eq=False)
class LabelCounts:
    """Counts, or sums of weights, of multi-label predictions, with any leading dimensions."""

    cells: Counts
    """(..., K, 4): true positives, false positives, false negatives and true negatives of each class."""
    exact: Counts
    """(...,): examples of which all classes are predicted correctly."""

    @property
    def examples(self) -> Array:
        """(...,): number of examples."""
        return np.asarray(self.cells[..., 0, :].sum(axis=-1), dtype=float)


@dataclass(frozen=True, eq=False)
class ScoredLabels:
    """A test set with any number of classes per text."""

    targets: NDArray[np.bool_]
    """(N, K)."""
    probabilities: Array
    """(N, K)."""
    predicted: NDArray[np.bool_]
    """(N, K)."""
    kind = MULTI_LABEL

    @property
    def count(self) -> int:
        """N."""
        return len(self.targets)

    @property
    def cells(self) -> int:
        """Number of counts."""
        return 4 * self.targets.shape[1]

    def statistics(self, weights_DN: Array) -> LabelCounts:
        """The counts for each weighting, cells (D, K, 4)."""
        true, guessed = self.targets, self.predicted
        cells = (true & guessed, ~true & guessed, true & ~guessed, ~true & ~guessed)
        exact_N = (true == guessed).all(axis=1)
        counts = np.stack([weights_DN @ cell_NK.astype(float) for cell_NK in cells], axis=-1)
        return LabelCounts(counts, weights_DN @ exact_N.astype(float))


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums over numeric labels t and predicted values p, with any leading dimensions.

    Differences from a constant can be summed instead of t and p themselves: no metric depends on it.
    """

    sums: Array
    """(..., 6): of 1, t, p, t², p² and t·p."""


@dataclass(frozen=True, eq=False)
class ScoredValues:
    """A test set with numeric labels."""

    targets: Array
    """(N,)."""
    values: Array
    """(N,), predicted."""
    kind = REGRESSION
    cells = 6

    @property
    def count(self) -> int:
        """N."""
        return len(self.targets)

    def statistics(self, weights_DN: Array) -> Moments:
        """The moments for each weighting, (D, 6), of differences from the mean label."""
        t, p = (np.asarray(x, dtype=float) - np.mean(self.targets) for x in (self.targets, self.values))
        return Moments(weights_DN @ np.stack([np.ones_like(t), t, p, t * t, p * p, t * p], axis=1))


TestSet = Scored | ScoredLabels | ScoredValues
"""N examples with their labels and what is predicted for them.

`kind` is the kind of the labels, `count` N, `statistics(weights_DN)` the sums of which the logged metrics of
this kind are functions, for each weighting, and `cells` the number of their elements for one of them.
"""


def scored(labels: Labels, targets: Targets, outputs_NK: Array) -> TestSet:
    """The test set of N examples with outputs of `Labels.outputs`."""
    if labels.kind.name == MULTI_LABEL:
        return ScoredLabels(targets, outputs_NK, labels.assigned(outputs_NK))
    if labels.kind.name == REGRESSION:
        return ScoredValues(targets, outputs_NK[:, 0])
    return Scored(targets, outputs_NK)
