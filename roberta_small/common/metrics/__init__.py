"""The registry of metrics, with kind of labels, direction, unit, digits and function of each.

A metric is a function of sums that training logs can add up, or of a whole test set; the latter is only
computed by `eval evaluate`. The sums depend on the kind of labels (`common.label_kinds`):

    one class per text    confusion matrices (accuracy, macro-F1, MCC), or the test set with predicted
                          probabilities (AUROC, Brier score, calibration error)
    multi-label           `LabelCounts` (micro-F1, macro-F1, subset accuracy)
    regression            `Moments` (Pearson correlation, RMSE), or the test set (Spearman correlation)

Training logs, `eval evaluate` and `analysis` use all registered metrics of a kind; `register` adds one
(docs/extending.md).
"""

from __future__ import annotations

from roberta_small.common.metrics import definitions  # noqa: F401  registers the metrics
from roberta_small.common.metrics.registry import (
    ACCURACIES,
    DIRECTIONS,
    LOSS,
    METRICS,
    Direction,
    Metric,
    check_selectable,
    decimals,
    digits,
    find,
    in_percent,
    label,
    logged,
    lower_is_better,
    measure_confusion,
    measure_statistics,
    measures_quality,
    metrics_of,
    number,
    register,
)
from roberta_small.common.metrics.sums import (
    Array,
    Counts,
    LabelCounts,
    Moments,
    Scored,
    ScoredLabels,
    ScoredValues,
    TestSet,
    scored,
)

__all__ = [
    "ACCURACIES",
    "DIRECTIONS",
    "LOSS",
    "METRICS",
    "Array",
    "Counts",
    "Direction",
    "LabelCounts",
    "Metric",
    "Moments",
    "Scored",
    "ScoredLabels",
    "ScoredValues",
    "TestSet",
    "check_selectable",
    "decimals",
    "digits",
    "find",
    "in_percent",
    "label",
    "logged",
    "lower_is_better",
    "measure_confusion",
    "measure_statistics",
    "measures_quality",
    "metrics_of",
    "number",
    "register",
    "scored",
]
