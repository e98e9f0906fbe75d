"""The results of an evaluation as JSON and as Markdown tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from roberta_small.common.metrics import METRICS, Metric, Scored, digits
from roberta_small.common.statistics import LEVEL, SEED, mean_std
from roberta_small.common.tables import markdown
from roberta_small.eval.intervals import DRAWS, Interval, intervals, most_confused, per_class

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
