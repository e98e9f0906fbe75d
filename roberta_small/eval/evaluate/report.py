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

from roberta_small.common.label_kinds import MULTI_LABEL, REGRESSION, SINGLE_LABEL
from roberta_small.common.metrics import (
    ACCURACIES,
    Array,
    Scored,
    ScoredLabels,
    TestSet,
    digits,
    find,
    metrics_of,
)
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
CONFUSION = {"confusion": "rows true classes, columns predicted ones"}
THRESHOLDS = {"thresholds": "one per class with the highest F1 on valid; of an ensemble, the mean"}
CONVENTIONS = {
    "std": "sample standard deviation over the checkpoints (ddof 1)",
    "ensemble": "mean of the probabilities",
}
OF_KIND = {SINGLE_LABEL: CONFUSION, MULTI_LABEL: THRESHOLDS, REGRESSION: {"ensemble": "mean of the values"}}


def conventions(draws: int, kind: str = SINGLE_LABEL) -> dict[str, str]:
    """The definitions of the values for a kind of labels, for the JSON report."""
    interval = f"percentile bootstrap over the examples, level {LEVEL}, {draws:,} draws, seed {SEED}"
    definitions = {name: metric.description for name, metric in metrics_of(kind).items()}
    return {"interval": interval, **definitions, **CONVENTIONS, **OF_KIND[kind]}


@dataclass(frozen=True)
class Interval:
    """A value and its percentile bootstrap interval over the examples."""

    value: float
    low: float
    high: float
    wilson: bool = False
    """Whether it is Wilson's interval instead: for an accuracy of 0 or 100 %."""


def measure(scored: TestSet, weights_DN: Array) -> dict[str, Array]:
    """Every registered metric for each weighting: name -> (D,)."""
    statistics = scored.statistics(weights_DN)
    return {
        name: metric.measure(scored, weights_DN)
        if metric.from_statistics is None
        else metric.from_statistics(statistics)
        for name, metric in metrics_of(scored.kind).items()
    }


def intervals(scored: TestSet, *, draws: int = DRAWS) -> dict[str, Interval]:
    """Each metric with its percentile bootstrap interval from `draws` resampled test sets.

    Resampled sets on which a metric is undefined are left out of its interval. If all predictions are right,
    or all wrong, all resampled sets have the same accuracy, whose interval is then Wilson's; those of other
    metrics with the same value in all sets are NaN.
    """
    count = scored.count
    values = {name: float(v[0]) for name, v in measure(scored, np.ones((1, count))).items()}
    drawn: dict[str, list[Array]] = {name: [] for name in values}
    for weights_DN in bootstrap_weights(count, scored.cells, draws, SEED):
        for name, value_D in measure(scored, weights_DN).items():
            drawn[name].append(value_D)
    tails = [50 * (1 - LEVEL), 50 * (1 + LEVEL)]
    extreme = any(values.get(name) in (0, 100) for name in ACCURACIES)
    found = {}
    for name, value in values.items():
        value_D = np.concatenate(drawn[name])
        ends = [math.nan, math.nan] if np.isnan(value_D).all() else np.nanpercentile(value_D, tails).tolist()
        found[name] = Interval(value, *ends)
        if extreme and ends[0] == ends[1] and name in ACCURACIES:
            low, high = wilson_interval(value / 100, count, LEVEL)
            found[name] = Interval(value, 100 * low, 100 * high, wilson=True)
        elif extreme and ends[0] == ends[1]:
            found[name] = Interval(value, math.nan, math.nan)
    return found


def per_class(matrix_KK: Array) -> list[dict[str, float]]:
    """Precision, recall and F1 (0 to 1; 0 where undefined) and the number of examples of each class."""
    sums = np.diagonal(matrix_KK), matrix_KK.sum(axis=1), matrix_KK.sum(axis=0)
    return list(map(_class_scores, *sums))


def _class_scores(correct: float, present: float, predicted: float) -> dict[str, float]:
    return {
        "precision": float(correct / predicted) if predicted else 0.0,
        "recall": float(correct / present) if present else 0.0,
        "f1": float(2 * correct / (present + predicted)) if present + predicted else 0.0,
        "support": int(present),
    }


def most_confused(matrix_KK: Array | NDArray[np.int64]) -> list[tuple[int, int, int]]:
    """(true class, predicted class, examples) of every error, most frequent first."""
    wrong_KK = np.asarray(matrix_KK).astype(np.int64)
    np.fill_diagonal(wrong_KK, 0)
    true_E, predicted_E = np.nonzero(wrong_KK)
    columns = (true_E, predicted_E, wrong_KK[true_E, predicted_E])
    cells = zip(*(column.tolist() for column in columns), strict=True)
    return sorted(cells, key=lambda cell: -cell[2])


@dataclass(frozen=True)
class Scores:
    """The metrics of one checkpoint or ensemble."""

    name: str
    intervals: dict[str, Interval]
    classes: list[str]
    """Empty for regression."""
    matrix: np.ndarray | None
    """(K, K), rows true classes, columns predicted ones; None unless an example has one class."""
    rows: list[dict[str, float]]
    """The scores of each class (`per_class`)."""

    @classmethod
    def compute(cls, name: str, scored: TestSet, classes: list[str], *, draws: int = DRAWS) -> Scores:
        """Compute all metrics of a scored test set."""
        found, ones = intervals(scored, draws=draws), np.ones((1, scored.count))
        if isinstance(scored, Scored):
            matrix_KK = scored.confusion(ones)[0]
            return cls(name, found, classes, matrix_KK, per_class(matrix_KK))
        if isinstance(scored, ScoredLabels):
            cells_K4 = scored.statistics(ones).cells[0]
            rows = [_class_scores(tp, tp + fn, tp + fp) for tp, fp, fn, _ in cells_K4]
            return cls(name, found, classes, None, rows)
        return cls(name, found, classes, None, [])

    def as_json(self) -> dict[str, Any]:
        """The entry of the JSON report; undefined values are null."""
        metrics = {
            name: {key: _finite(getattr(interval, key)) for key in ("value", "low", "high")}
            | ({"interval": "Wilson"} if interval.wilson else {})
            for name, interval in self.intervals.items()
        }
        content: dict[str, Any] = {"name": self.name, "metrics": metrics}
        if self.rows:
            content["per_class"] = dict(zip(self.classes, self.rows, strict=True))
        if self.matrix is not None:
            content["confusion"] = self.matrix.astype(int).tolist()
        return content

    def cells(self) -> list[str]:
        """The cells of a table row."""
        shown = [
            [_number(name, x) for x in (interval.value, interval.low, interval.high)]
            for name, interval in self.intervals.items()
        ]
        return [self.name, *(f"{value} [{low}, {high}]" for value, low, high in shown)]


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
        for name in self.members[0].intervals:
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
    names, headings = list(groups[0].members[0].intervals), [""]
    for name in names:
        metric = find(name)
        heading = (metric.heading if metric else "") or name.replace("_", " ")
        headings.append(f"{heading} ({metric.unit})" if metric and metric.unit else heading)
    parts = [markdown(headings, rows)]
    if len(groups) == 1 and groups[0].ensemble is None:
        parts += _class_tables(groups[0].members[0])
    ece = f" ECE: {meaning['calibration_error']}." if "calibration_error" in names else ""
    parts.append(f"In brackets: {meaning['interval']}.{ece}\n")
    scores = [one for group in groups for one in (*group.members, group.ensemble) if one is not None]
    if any(interval.wilson for one in scores for interval in one.intervals.values()):
        parts.append(WILSON)
    return "\n".join(parts)


def _class_tables(scores: Scores) -> list[str]:
    """Scores by class and confusions, as many as are readable."""
    numbers, classes = scores.rows, scores.classes
    if not numbers:
        return []
    cells = [
        [name, *(f"{row[key]:.3f}" for key in ("precision", "recall", "f1")), f"{row['support']:,}"]
        for name, row in zip(classes, numbers, strict=True)
    ]
    heading = ["true class", "precision", "recall", "F1", "examples"]
    if scores.matrix is None:
        return _scores_by_class(cells, numbers, ["class", *heading[1:]])
    if len(classes) <= FEW_CLASSES:
        counts = [[f"{int(number):,}" for number in row] for row in scores.matrix]
        rows = [[*row, *more] for row, more in zip(cells, counts, strict=True)]
        return [markdown([*heading, *(f"predicted {name}" for name in classes)], rows)]
    support_K = scores.matrix.sum(axis=1)
    confusions = [
        [classes[true], classes[predicted], f"{number:,}", f"{number / support_K[true]:.1%}"]
        for true, predicted, number in most_confused(scores.matrix)[:EXTREMES]
    ]
    titles = ["true class", "predicted class", "examples", "of the true class"]
    return [*_scores_by_class(cells, numbers, heading), markdown(titles, confusions, "llr")]


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


def _number(name: str, value: float | None) -> str:
    if value is None or math.isnan(value):
        return "–"
    return f"{value:.{min(digits(name), MAX_DIGITS)}f}"


def _finite(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def bootstrap_weights(count: int, cells: int, draws: int, seed: int) -> Iterator[Array]:
    """Yield the example weights of bootstrap samples, (D, N), in portions of bounded size.

    A portion also bounds the sums over the examples, such as the confusion matrices, (D, K, K): `cells` is
    their number for one sample. It does not change the samples.
    """
    rng = np.random.default_rng(seed)
    portion = max(1, MAX_CELLS // max(count, cells))
    for start in range(0, draws, portion):
        size = min(portion, draws - start)
        picked = rng.integers(count, size=(size, count)) + np.arange(size)[:, None] * count
        yield np.bincount(picked.ravel(), minlength=size * count).reshape(size, count).astype(float)
