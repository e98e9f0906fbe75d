"""`Metric`, and the registry of metrics by kind of labels."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from roberta_small.common.label_kinds import KINDS, MULTI_LABEL, REGRESSION, SINGLE_LABEL
from roberta_small.common.metrics.sums import Array, Counts, LabelCounts, Moments, TestSet

FromConfusion = Callable[[Counts], Array]
FromCounts = Callable[[LabelCounts], Array]
FromMoments = Callable[[Moments], Array]
FromPredictions = Callable[[Any, Array], Array]


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
    limits: tuple[float, float] = (-math.inf, math.inf)
    """Smallest and largest possible value."""
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

    def measure(self, test_set: TestSet, weights_DN: Array) -> Array:
        """(D,) the metric for each weighting of the examples."""
        if self.from_statistics is not None:
            return self.from_statistics(test_set.statistics(weights_DN))
        assert self.from_predictions is not None  # __post_init__
        return self.from_predictions(test_set, weights_DN)


BY_KIND: dict[str, dict[str, Metric]] = {name: {} for name in KINDS}
"""Kind of labels -> its metrics by name."""


def register(metric: Metric) -> Metric:
    """Register a metric and return it.

    Raises `ValueError` if its name is taken: by a metric of the same kind of labels, or by one of another
    kind that is shown in another way.
    """
    shown = attrgetter("higher_is_better", "unit", "digits")
    for others in BY_KIND.values():
        other = others.get(metric.name, metric)
        if other is not metric and (other.kind == metric.kind or shown(other) != shown(metric)):
            raise ValueError(f"metric {metric.name!r} is already registered")
    BY_KIND[metric.kind][metric.name] = metric
    return metric
