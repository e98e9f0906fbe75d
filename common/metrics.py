"""The registry of classification metrics, with direction, unit, digits and function of each.

A metric is a function of confusion matrices (accuracy, macro-F1, MCC; also logged in training) or of a test
set with predicted probabilities (AUROC, Brier score, calibration error; only computed by `eval evaluate`).
Training logs, `eval evaluate` and `analysis` use all registered metrics; `register` adds one
(docs/extending/metric.md).

Shapes: N examples, K classes, D weightings of the examples. `weights_DN` is the weight of each example: one
row of ones for the test set itself, a row of counts for a bootstrap sample.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from roberta_small.common.cli import nearest
from roberta_small.common.errors import UserError
from roberta_small.common.statistics import BINS, ECE, expected_calibration_error

Array = NDArray[np.float64]
Counts = Array | NDArray[np.integer]
FromConfusion = Callable[[Counts], Array]
FromPredictions = Callable[["Scored", Array], Array]
Direction = Literal["auto", "highest", "lowest"]
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)

FOREIGN_LOWER_IS_BETTER = re.compile(r"(^|_)(loss|nll|ppl|perplexity|error|mse|rmse|mae|brier|ece|wer|cer)$")
"""Names of unregistered metrics, as logged by other trainers, for which lower is better."""
LOSS = "loss"
"""Name in logs of the mean cross-entropy."""
ACCURACIES = frozenset({"accuracy", "best_accuracy"})
"""Names in logs of the percentage of correct predictions, to which binomial intervals and tests apply."""

NOT_QUALITY = re.compile(
    # fairseq
    "bsz|clip|cuda_gb_(allocated|reserved)|epoch|gb_free|gnorm|loss_scale|lr|nsentences|ntokens|num_updates|"
    "sample_size|train_wall|ups|update|wall|wpb|wps|"
    # Transformers
    "grad_norm|jit_compilation_time|learning_rate|model_preparation_time|num_input_tokens_seen|num_tokens|"
    "(train_)?runtime|(train_)?(samples|steps|tokens)_per_second|total_flos"
)
"""Names in logs that describe speed, sizes and the optimizer; not suggested as metrics of a model."""


@dataclass(frozen=True, eq=False)
class Scored:
    """A test set with the probabilities predicted for it."""

    labels: NDArray[np.int64]
    """(N,) index of the true class."""
    probabilities: Array
    """(N, K)."""

    @property
    def classes(self) -> int:
        """K."""
        return self.probabilities.shape[1]

    @cached_property
    def predicted(self) -> NDArray[np.int64]:
        """(N,) the most probable class; the first of equally probable ones."""
        return self.probabilities.argmax(axis=1)

    def confusion(self, weights_DN: Array) -> Array:
        """(D, K, K) weighted counts; rows are true classes, columns predicted ones."""
        cells_N = self.labels * self.classes + self.predicted
        return _sum_by(cells_N, self.classes**2, weights_DN).reshape(-1, self.classes, self.classes)


@dataclass(frozen=True)
class Metric:
    """A metric, with exactly one of `from_confusion` and `from_predictions`."""

    name: str
    """Tag in training logs, key in JSON, `metric` in the long table: `macro_f1`."""
    higher_is_better: bool
    unit: str = ""
    """"%" for values from 0 to 100, else empty."""
    digits: int = 4
    """Decimals in tables and figures."""
    from_confusion: FromConfusion | None = None
    """(..., K, K) counts or sums of weights, rows true classes, columns predicted ones -> (...); 0 where
    undefined, such as for an empty matrix, without a warning."""
    from_predictions: FromPredictions | None = None
    """A test set of N examples and weights (D, N) -> (D,); NaN where undefined."""
    heading: str = ""
    """Column heading in the table of `eval evaluate`; default: the name with spaces."""
    description: str = ""
    """Definition and source; written to the JSON of `eval evaluate`."""
    chance: Callable[[int], float] | None = None
    """Number of classes -> value of uniform guessing on balanced classes; None if it is not defined."""

    @property
    def perfect(self) -> float:
        """The best value of a metric with `chance`."""
        return 100.0 if self.unit == "%" else 1.0

    def __post_init__(self) -> None:
        if (self.from_confusion is None) == (self.from_predictions is None):
            raise ValueError(
                f"metric {self.name!r}: specify exactly one of from_confusion and from_predictions"
            )

    def measure(self, scored: Scored, weights_DN: Array) -> Array:
        """(D,) the metric for each weighting of the examples."""
        if self.from_confusion is not None:
            return self.from_confusion(scored.confusion(weights_DN))
        assert self.from_predictions is not None  # __post_init__
        return self.from_predictions(scored, weights_DN)


METRICS: dict[str, Metric] = {}
"""All metrics by name; logs and tables use the order of registration."""


def register(metric: Metric) -> Metric:
    """Register a metric and return it. Raises `ValueError` if its name is taken."""
    if METRICS.setdefault(metric.name, metric) is not metric:
        raise ValueError(f"metric {metric.name!r} is already registered")
    return metric


def find(name: str) -> Metric | None:
    """The metric of this name or log tag, or None; fairseq logs the best value so far as `best_accuracy`."""
    return METRICS.get(name) or METRICS.get(name.removeprefix("best_"))


def measures_quality(name: str) -> bool:
    """Whether a name in logs may be a metric of a model, in contrast to speed, sizes and the optimizer."""
    return name in METRICS or NOT_QUALITY.fullmatch(name) is None


def logged() -> list[Metric]:
    """The metrics computed from a confusion matrix, which are logged in training."""
    return [metric for metric, _ in _with_confusion()]


def _with_confusion() -> list[tuple[Metric, FromConfusion]]:
    return [(one, one.from_confusion) for one in METRICS.values() if one.from_confusion is not None]


def check_selectable(name: str) -> None:
    """Raise `UserError` unless classifiers log the metric in validation."""
    known = [*(metric.name for metric in logged()), LOSS]
    if name not in known:
        raise UserError(
            f"--best-checkpoint-metric {name}: not logged in validation{nearest(name, known)}; choose from "
            f"{', '.join(known)}"
        )


def measure_confusion(matrix_KK: NDArray[np.integer]) -> dict[str, float]:
    """The value of each metric of `logged()`; rows are true classes, columns predicted ones."""
    return {metric.name: float(measure(matrix_KK)) for metric, measure in _with_confusion()}


def lower_is_better(name: str, direction: Direction = "auto") -> bool:
    """Whether lower values are better.

    `direction` "auto" uses the registry and, for unregistered metrics, the name (`loss`, `ppl`, `ece`, ...);
    "highest" and "lowest" override both.
    """
    if direction not in DIRECTIONS:
        raise ValueError(f"direction is {direction!r}, not one of {DIRECTIONS}")
    if direction != "auto":
        return direction == "lowest"
    metric = find(name)
    return FOREIGN_LOWER_IS_BETTER.search(name) is not None if metric is None else not metric.higher_is_better


def in_percent(name: str) -> bool:
    """Whether values are percentages, from 0 to 100."""
    metric = find(name)
    return metric is not None and metric.unit == "%"


_decimals: ContextVar[int | None] = ContextVar("decimals", default=None)


@contextmanager
def decimals(count: int | None) -> Iterator[None]:
    """Within the block, `digits` is `count` for every metric; None changes nothing."""
    token = _decimals.set(count)
    try:
        yield
    finally:
        _decimals.reset(token)


def digits(name: str) -> int:
    """Decimals in tables and figures; 4 for unregistered metrics. `decimals` overrides them."""
    if (count := _decimals.get()) is not None:
        return count
    metric = find(name)
    return 4 if metric is None else metric.digits


def label(name: str) -> str:
    """The name in tables and figures, with the unit: `accuracy (%)`."""
    metric = find(name)
    unit = f" ({metric.unit})" if metric is not None and metric.unit else ""
    return name.replace("_", " ") + unit


def number(value: float, name: str) -> str:
    """The value with the decimals of the metric, or a dash for NaN."""
    return "–" if value != value else f"{value:.{digits(name)}f}"


def accuracy(matrix: Counts) -> Array:
    """(..., K, K) -> (...): percentage of correct predictions, as fairseq logs it; 0 without examples."""
    correct = np.trace(matrix, axis1=-2, axis2=-1).astype(float)
    return 100.0 * correct / np.maximum(matrix.sum(axis=(-2, -1)).astype(float), 1.0)


def macro_f1(matrix: Counts) -> Array:
    """(..., K, K) -> (...): mean F1, 0 to 1, of the classes that occur or are predicted; 0 without examples.

    Same as scikit-learn's `f1_score(average="macro")`.
    """
    correct = np.diagonal(matrix, axis1=-2, axis2=-1).astype(float)
    seen = (matrix.sum(axis=-2) + matrix.sum(axis=-1)).astype(float)
    f1 = np.divide(2 * correct, seen, out=np.zeros_like(seen), where=seen > 0)
    return f1.sum(axis=-1) / np.maximum((seen > 0).sum(axis=-1), 1)


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
    positive_DR = _sum_by(rank_N, ranks, weights_DN * is_k_N)
    negative_DR = _sum_by(rank_N, ranks, weights_DN * ~is_k_N)
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


def _sum_by(group_N: NDArray[np.int64], groups: int, weights_DN: Array) -> Array:
    """(D, groups) sum of the weights of each group of examples."""
    from scipy import sparse

    count = len(group_N)
    membership = sparse.csr_array((np.ones(count), group_N, np.arange(count + 1)), shape=(count, groups))
    return np.asarray(weights_DN @ membership)


register(
    Metric(
        "accuracy",
        higher_is_better=True,
        unit="%",
        digits=2,
        from_confusion=accuracy,
        description="percent",
        chance=lambda classes: 100 / classes,
    )
)
register(
    Metric(
        "macro_f1",
        higher_is_better=True,
        from_confusion=macro_f1,
        heading="macro-F1",
        description="mean F1 of the classes that occur or are predicted",
        chance=lambda classes: 1 / classes,
    )
)
register(
    Metric(
        "mcc",
        higher_is_better=True,
        from_confusion=mcc,
        heading="MCC",
        description="Matthews correlation; 0 if all labels or all predictions are of one class",
        chance=lambda classes: 0.0,
    )
)
register(
    Metric(
        "auroc",
        higher_is_better=True,
        from_predictions=auroc,
        heading="AUROC",
        description="two classes: area under the ROC curve; more: mean of each class against the rest",
    )
)
register(
    Metric(
        "brier",
        higher_is_better=False,
        from_predictions=brier,
        heading="Brier",
        description="mean squared error summed over the classes, 0 to 2",
    )
)
register(
    Metric(
        "calibration_error",
        higher_is_better=False,
        from_predictions=calibration_error,
        heading=ECE,
        description=f"expected calibration error, {BINS} bins of equal width of the top probability",
    )
)
