"""The results of an evaluation: every metric with its bootstrap interval, as JSON and as Markdown tables.

Shapes: N examples, K classes, D weightings of the examples (see `common.metrics`, which defines the metrics).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_small.common.metrics import ACCURACIES, METRICS, Array, Metric, Scored, digits
from roberta_small.common.statistics import LEVEL, SEED, mean_std, wilson_interval
from roberta_small.common.tables import markdown

DRAWS = 2000
"""Fewer than in `common.statistics`: every metric of every checkpoint is computed for each draw."""
MAX_CELLS = 4_000_000
"""Largest number of elements of the weights (D, N) or of the confusion matrices (D, K, K)."""
FEW_CLASSES = 8
"""Maximum number of classes whose confusion matrix is printed."""
MANY_CLASSES = 30
"""Maximum number of classes that are all printed; of more, the worst and the best ones."""
EXTREMES = 10
"""Number of the worst and of the best classes, and of the most frequent confusions, that are printed."""
MAX_DIGITS = 3
"""In the printed table, which has six columns of values with intervals; the JSON has full precision."""
WILSON = (
    "In brackets, for an accuracy of 0 or 100 %: Wilson's interval, because the bootstrap interval has no "
    "width; other metrics whose bootstrap interval has no width have none.\n"
)
CONVENTIONS = {
    "confusion": "rows true classes, columns predicted ones",
    "std": "sample standard deviation over the checkpoints (ddof 1)",
    "ensemble": "mean of the probabilities",
}


def conventions(draws: int) -> dict[str, str]:
    """The definitions of the values, for the JSON report."""
    interval = f"percentile bootstrap over the examples, level {LEVEL}, {draws:,} draws, seed {SEED}"
    definitions = {name: metric.description for name, metric in METRICS.items()}
    return {"interval": interval, **definitions, **CONVENTIONS}


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


def most_confused(matrix_KK: Array | NDArray[np.int64]) -> list[tuple[int, int, int]]:
    """(true class, predicted class, examples) of every error, most frequent first."""
    wrong_KK = np.asarray(matrix_KK).astype(np.int64)
    np.fill_diagonal(wrong_KK, 0)
    true_E, predicted_E = np.nonzero(wrong_KK)
    number_E = wrong_KK[true_E, predicted_E]
    order_E = np.argsort(-number_E, kind="stable")
    columns = (true_E[order_E], predicted_E[order_E], number_E[order_E])
    return list(zip(*(column.tolist() for column in columns), strict=True))


@dataclass(frozen=True)
class Scores:
    """The metrics of one checkpoint or ensemble."""

    name: str
    intervals: dict[str, Interval]
    classes: list[str]
    matrix: np.ndarray
    """(K, K), rows true classes, columns predicted ones."""

    @classmethod
    def compute(cls, name: str, scored: Scored, classes: list[str], *, draws: int = DRAWS) -> Scores:
        """Compute all metrics of a scored test set."""
        matrix_KK = scored.confusion(np.ones((1, len(scored.labels))))[0]
        return cls(name, intervals(scored, draws=draws), classes, matrix_KK)

    def as_json(self) -> dict[str, Any]:
        """The entry of the JSON report; undefined values are null."""
        metrics = {
            name: {key: _finite(getattr(interval, key)) for key in ("value", "low", "high")}
            | ({"interval": "Wilson"} if interval.wilson else {})
            for name, interval in self.intervals.items()
        }
        return {
            "name": self.name,
            "metrics": metrics,
            "per_class": dict(zip(self.classes, per_class(self.matrix), strict=True)),
            "confusion": self.matrix.astype(int).tolist(),
        }

    def cells(self) -> list[str]:
        """The cells of a table row."""
        return [self.name, *(_cell(name, self.intervals[name]) for name in METRICS)]


@dataclass(frozen=True)
class Group:
    """Checkpoints that differ only in their seed, with their mean and ensemble."""

    name: str
    """`arm/init`, or empty."""
    members: list[Scores]
    ensemble: Scores | None
    """None for a single checkpoint."""

    def mean(self) -> dict[str, dict[str, float | None]]:
        """Mean and sample standard deviation of each metric over the members."""
        found = {}
        for name in METRICS:
            values = np.array([member.intervals[name].value for member in self.members])
            # A metric that is undefined for one member has no mean.
            mean, std = (math.nan, math.nan) if np.isnan(values).any() else mean_std(values)
            found[name] = {"mean": _finite(mean), "std": _finite(std)}
        return found

    def rows(self) -> list[list[str]]:
        """The rows of the table."""
        rows = [member.cells() for member in self.members]
        if self.ensemble is None:
            return rows
        title = f"{self.name} mean ± std ({len(self.members)})".strip()
        means = [f"{_number(name, m['mean'])} ± {_number(name, m['std'])}" for name, m in self.mean().items()]
        return [*rows, [title, *means], self.ensemble.cells()]

    def as_json(self) -> dict[str, Any]:
        """The entry of the JSON report."""
        return {
            "group": self.name,
            "checkpoints": [member.as_json() for member in self.members],
            "mean": self.mean(),
            "ensemble": self.ensemble.as_json() if self.ensemble else None,
        }


def tables(groups: Sequence[Group], meaning: dict[str, str]) -> str:
    """Markdown: a row per checkpoint, mean and ensemble; for a single checkpoint also scores by class.

    With many classes: the classes with the lowest and highest F1, and the most frequent confusions.
    """
    rows = [row for group in groups for row in group.rows()]
    parts = [markdown(["", *map(_heading, METRICS.values())], rows)]
    if len(groups) == 1 and groups[0].ensemble is None:
        parts += _class_tables(groups[0].members[0])
    parts.append(f"In brackets: {meaning['interval']}. ECE: {meaning['calibration_error']}.\n")
    scores = [one for group in groups for one in (*group.members, group.ensemble) if one is not None]
    if any(interval.wilson for one in scores for interval in one.intervals.values()):
        parts.append(WILSON)
    return "\n".join(parts)


def _class_tables(scores: Scores) -> list[str]:
    """Scores by class and confusions, as many as are readable."""
    numbers, classes = per_class(scores.matrix), scores.classes
    cells = [
        [name, *(f"{row[key]:.3f}" for key in ("precision", "recall", "f1")), f"{row['support']:,}"]
        for name, row in zip(classes, numbers, strict=True)
    ]
    heading = ["true class", "precision", "recall", "F1", "examples"]
    if len(classes) <= FEW_CLASSES:
        counts = [[f"{int(number):,}" for number in row] for row in scores.matrix]
        rows = [[*row, *more] for row, more in zip(cells, counts, strict=True)]
        return [markdown([*heading, *(f"predicted {name}" for name in classes)], rows)]
    return [*_scores_by_class(cells, numbers, heading), _confusions(scores)]


def _scores_by_class(
    cells: list[list[str]], numbers: Sequence[dict[str, float]], heading: list[str]
) -> list[str]:
    """The rows of all classes, or of many classes those with the lowest and the highest F1."""
    if len(cells) <= MANY_CLASSES:
        return [markdown(heading, cells)]
    known = [k for k, row in enumerate(numbers) if row["support"]]
    ordered = sorted(known, key=lambda k: numbers[k]["f1"])
    without = len(cells) - len(known)
    note = f" ({without} without examples)" if without else ""
    parts = [
        f"Of {len(cells)} classes{note}, those with the lowest F1, and with the highest; all are in --out:\n"
    ]
    for some in (ordered[:EXTREMES], ordered[-EXTREMES:][::-1]):
        parts.append(markdown(heading, [cells[k] for k in some]))
    return parts


def _confusions(scores: Scores) -> str:
    """The most frequent errors."""
    support_K = scores.matrix.sum(axis=1)
    rows = [
        [scores.classes[true], scores.classes[predicted], f"{number:,}", f"{number / support_K[true]:.1%}"]
        for true, predicted, number in most_confused(scores.matrix)[:EXTREMES]
    ]
    return markdown(["true class", "predicted class", "examples", "of the true class"], rows, "llr")


def _heading(metric: Metric) -> str:
    heading = metric.heading or metric.name.replace("_", " ")
    return f"{heading} ({metric.unit})" if metric.unit else heading


def _cell(name: str, interval: Interval) -> str:
    value, low, high = (_number(name, x) for x in (interval.value, interval.low, interval.high))
    return f"{value} [{low}, {high}]"


def _number(name: str, value: float | None) -> str:
    if value is None or math.isnan(value):
        return "–"
    return f"{value:.{min(digits(name), MAX_DIGITS)}f}"


def _finite(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


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
