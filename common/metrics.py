"""The registry of metrics, with kind of labels, direction, unit, digits and function of each.

A metric is a function of sums that training logs can add up, or of a whole test set; the latter is only
computed by `eval evaluate`. The sums depend on the kind of labels (`common.label_kinds`):

    one class per text    confusion matrices (accuracy, macro-F1, MCC), or the test set with predicted
                          probabilities (AUROC, Brier score, calibration error)
    multi-label           `LabelCounts` (micro-F1, macro-F1, subset accuracy)
    regression            `Moments` (Pearson correlation, RMSE), or the test set (Spearman correlation)

Training logs, `eval evaluate` and `analysis` use all registered metrics of a kind; `register` adds one
(docs/extending/metric.md).

Shapes: N examples, K classes, D weightings of the examples. `weights_DN` is the weight of each example: one
row of ones for the test set itself, a row of counts for a bootstrap sample.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from roberta_small.common.cli import nearest
from roberta_small.common.errors import UserError
from roberta_small.common.label_kinds import (
    KINDS,
    MULTI_LABEL,
    REGRESSION,
    SINGLE_LABEL,
    Labels,
    Targets,
    best_thresholds,
)
from roberta_small.common.statistics import BINS, ECE, expected_calibration_error

Array = NDArray[np.float64]
Counts = Array | NDArray[np.integer]
FromConfusion = Callable[[Counts], Array]
FromCounts = Callable[["LabelCounts"], Array]
FromMoments = Callable[["Moments"], Array]
FromPredictions = Callable[[Any, Array], Array]
Direction = Literal["auto", "highest", "lowest"]
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)

FOREIGN_LOWER_IS_BETTER = re.compile(r"(^|_)(loss|nll|ppl|perplexity|error|mse|rmse|mae|brier|ece|wer|cer)$")
"""Names of unregistered metrics, as logged by other trainers, for which lower is better."""
LOSS = "loss"
"""Name in logs of the mean training loss, in validation without class weights and label smoothing."""
ACCURACIES = frozenset({"accuracy", "best_accuracy", "subset_accuracy", "best_subset_accuracy"})
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


class TestSet(Protocol):
    """N examples with their labels and what is predicted for them."""

    @property
    def count(self) -> int:
        """N."""
        ...

    @property
    def kind(self) -> str:
        """The kind of the labels, one of `KINDS`."""
        ...

    @property
    def cells(self) -> int:
        """Number of elements of the statistics of one weighting."""
        ...

    def statistics(self, weights_DN: Array) -> Any:
        """The sums of which the logged metrics of this kind are functions, for each weighting."""
        ...


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
        return _sum_by(cells_N, self.classes**2, weights_DN).reshape(-1, self.classes, self.classes)

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

    @classmethod
    def of(
        cls, targets_NK: NDArray[np.bool_], predicted_NK: NDArray[np.bool_], weights_DN: Array
    ) -> LabelCounts:
        """The sums for each weighting, cells (D, K, 4)."""
        both = (targets_NK, ~targets_NK, targets_NK, ~targets_NK)
        guessed = (predicted_NK, predicted_NK, ~predicted_NK, ~predicted_NK)
        sums = [weights_DN @ (a & b).astype(float) for a, b in zip(both, guessed, strict=True)]
        exact_N = (targets_NK == predicted_NK).all(axis=1)
        return cls(np.stack(sums, axis=-1), weights_DN @ exact_N.astype(float))


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
        """The counts for each weighting."""
        return LabelCounts.of(self.targets, self.predicted, weights_DN)


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums over numeric labels t and predicted values p, with any leading dimensions.

    Differences from a constant can be summed instead of t and p themselves: no metric depends on it.
    """

    sums: Array
    """(..., 6): of 1, t, p, t², p² and t·p."""

    @classmethod
    def of(cls, targets_N: Array, values_N: Array, weights_DN: Array) -> Moments:
        """The sums for each weighting, (D, 6), of differences from the mean label."""
        t, p = (np.asarray(x, dtype=float) - np.mean(targets_N) for x in (targets_N, values_N))
        return cls(weights_DN @ np.stack([np.ones_like(t), t, p, t * t, p * p, t * p], axis=1))


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
        """The moments for each weighting."""
        return Moments.of(self.targets, self.values, weights_DN)


def scored(labels: Labels, targets: Targets, outputs_NK: Array) -> Scored | ScoredLabels | ScoredValues:
    """The test set of N examples with outputs of `Labels.outputs`."""
    if labels.kind.name == MULTI_LABEL:
        return ScoredLabels(targets, outputs_NK, labels.assigned(outputs_NK))
    if labels.kind.name == REGRESSION:
        return ScoredValues(targets, outputs_NK[:, 0])
    return Scored(targets, outputs_NK)


@dataclass(frozen=True)
class Metric:
    """A metric of one kind of labels, with exactly one of the functions `from_...`."""

    name: str
    """Tag in training logs, key in JSON, `metric` in the long table: `macro_f1`."""
    higher_is_better: bool
    unit: str = ""
    """"%" for values from 0 to 100, else empty."""
    digits: int = 4
    """Decimals in tables and figures."""
    from_confusion: FromConfusion | None = None
    """(..., K, K) counts or sums of weights, rows true classes, columns predicted ones -> (...); 0 where
    undefined, such as for an empty matrix, without a warning. For one class per text."""
    from_counts: FromCounts | None = None
    """`LabelCounts` with any leading dimensions -> (...); 0 where undefined. For multi-label data."""
    from_moments: FromMoments | None = None
    """`Moments` with any leading dimensions -> (...); 0 where undefined. For regression."""
    from_predictions: FromPredictions | None = None
    """A test set of N examples (`Scored`, `ScoredLabels` or `ScoredValues`) and weights (D, N) -> (D,); NaN
    where undefined."""
    kind: str = SINGLE_LABEL
    """The kind of labels; it follows from `from_confusion`, `from_counts` and `from_moments`."""
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
        of_sums = {
            SINGLE_LABEL: self.from_confusion,
            MULTI_LABEL: self.from_counts,
            REGRESSION: self.from_moments,
        }
        given = [kind for kind, function in of_sums.items() if function is not None]
        if len(given) + (self.from_predictions is not None) != 1:
            raise ValueError(
                f"metric {self.name!r}: specify exactly one of from_confusion, from_counts, from_moments and "
                "from_predictions"
            )
        object.__setattr__(self, "kind", given[0] if given else self.kind)
        if self.kind not in KINDS:
            raise ValueError(f"metric {self.name!r}: kind {self.kind!r} is not one of {', '.join(KINDS)}")

    @property
    def from_statistics(self) -> Callable[[Any], Array] | None:
        """The function of the sums of this kind of labels; None for a metric that is not logged."""
        return self.from_confusion or self.from_counts or self.from_moments

    def measure(self, scored: TestSet, weights_DN: Array) -> Array:
        """(D,) the metric for each weighting of the examples."""
        if self.from_statistics is not None:
            return self.from_statistics(scored.statistics(weights_DN))
        assert self.from_predictions is not None  # __post_init__
        return self.from_predictions(scored, weights_DN)


_by_kind: dict[str, dict[str, Metric]] = {name: {} for name in KINDS}
METRICS = _by_kind[SINGLE_LABEL]
"""The metrics of data with one class per text by name; logs and tables use the order of registration."""


def metrics_of(kind: str) -> Mapping[str, Metric]:
    """All metrics of a kind of labels, as `METRICS`."""
    return MappingProxyType(_by_kind[kind])


def register(metric: Metric) -> Metric:
    """Register a metric and return it.

    Raises `ValueError` if its name is taken: by a metric of the same kind of labels, or by one of another
    kind that is shown in another way.
    """
    for others in _by_kind.values():
        other = others.get(metric.name, metric)
        same = (other.higher_is_better, other.unit, other.digits) == (
            metric.higher_is_better,
            metric.unit,
            metric.digits,
        )
        if other is not metric and (other.kind == metric.kind or not same):
            raise ValueError(f"metric {metric.name!r} is already registered")
    _by_kind[metric.kind][metric.name] = metric
    return metric


def find(name: str) -> Metric | None:
    """The metric of this name or log tag, or None; fairseq logs the best value so far as `best_accuracy`.

    Metrics of several kinds of labels with the same name have the same direction, unit and digits.
    """
    for known in (name, name.removeprefix("best_")):
        for metrics in _by_kind.values():
            if known in metrics:
                return metrics[known]
    return None


def measures_quality(name: str) -> bool:
    """Whether a name in logs may be a metric of a model, in contrast to speed, sizes and the optimizer."""
    return any(name in metrics for metrics in _by_kind.values()) or NOT_QUALITY.fullmatch(name) is None


def logged(kind: str = SINGLE_LABEL) -> list[Metric]:
    """The metrics of a kind of labels that are computed from sums, which are logged in training."""
    return [metric for metric in _by_kind[kind].values() if metric.from_statistics is not None]


def check_selectable(name: str, kind: str = SINGLE_LABEL) -> None:
    """Raise `UserError` unless the metric is logged in validation for this kind of labels."""
    known = [*(metric.name for metric in logged(kind)), LOSS]
    if name not in known:
        raise UserError(
            f"--best-checkpoint-metric {name}: not logged in validation{nearest(name, known)}; choose from "
            f"{', '.join(known)}"
        )


def measure_statistics(kind: str, statistics: Any) -> dict[str, float]:
    """The value of each metric of `logged(kind)`, from a confusion matrix, `LabelCounts` or `Moments`."""
    return {
        metric.name: float(metric.from_statistics(statistics))
        for metric in logged(kind)
        if metric.from_statistics is not None
    }


def measure_confusion(matrix_KK: NDArray[np.integer]) -> dict[str, float]:
    """The value of each metric of `logged()`; rows are true classes, columns predicted ones."""
    return measure_statistics(SINGLE_LABEL, matrix_KK)


def chosen_thresholds(labels: Labels, targets: Targets, outputs_NK: Array) -> dict[str, float]:
    """The threshold of each class that is best on these examples; empty unless the data are multi-label."""
    if labels.kind.name != MULTI_LABEL:
        return {}
    return dict(zip(labels.classes, best_thresholds(outputs_NK, targets), strict=True))


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


def _f1(true_positive: Counts, false_positive: Counts, false_negative: Counts) -> tuple[Array, NDArray[Any]]:
    """F1 from counts of the same shape, 0 where undefined, and where it is defined."""
    seen = np.asarray(2 * true_positive + false_positive + false_negative, dtype=float)
    return np.divide(2 * true_positive, seen, out=np.zeros_like(seen), where=seen > 0), seen > 0


def micro_f1(counts: LabelCounts) -> Array:
    """(...,): F1, 0 to 1, of all pairs of an example and a class; 0 without any label or prediction."""
    tp, fp, fn, _ = np.moveaxis(counts.cells.sum(axis=-2), -1, 0)
    return _f1(tp, fp, fn)[0]


def macro_f1_of_labels(counts: LabelCounts) -> Array:
    """(...,): mean F1, 0 to 1, of the classes that occur or are predicted; 0 without any."""
    f1, defined = _f1(*np.moveaxis(counts.cells, -1, 0)[:3])
    return f1.sum(axis=-1) / np.maximum(defined.sum(axis=-1), 1)


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
    weight_DG = _sum_by(group_N, int(group_N.max()) + 1, weights_DN)
    middle_DG = weight_DG.cumsum(axis=1) - weight_DG + (weight_DG + 1) / 2
    return middle_DG[:, group_N]


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
register(
    Metric(
        "micro_f1",
        higher_is_better=True,
        from_counts=micro_f1,
        heading="micro-F1",
        description="F1 over all pairs of an example and a class",
    )
)
register(
    Metric(
        "macro_f1",
        higher_is_better=True,
        from_counts=macro_f1_of_labels,
        heading="macro-F1",
        description="mean F1 of the classes that occur or are predicted",
    )
)
register(
    Metric(
        "subset_accuracy",
        higher_is_better=True,
        unit="%",
        digits=2,
        from_counts=subset_accuracy,
        description="percentage of examples of which all classes are predicted correctly",
    )
)
register(
    Metric(
        "pearson",
        higher_is_better=True,
        from_moments=pearson,
        heading="Pearson",
        description="Pearson correlation; 0 if all labels or all predicted values are equal",
    )
)
register(
    Metric(
        "spearman",
        higher_is_better=True,
        from_predictions=spearman,
        kind=REGRESSION,
        heading="Spearman",
        description="Spearman correlation; equal values have their mean rank",
    )
)
register(
    Metric(
        "rmse",
        higher_is_better=False,
        from_moments=rmse,
        heading="RMSE",
        description="root of the mean squared error, in the unit of the labels",
    )
)
