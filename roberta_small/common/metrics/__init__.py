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

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, Literal, get_args

from roberta_small.common.cli import nearest
from roberta_small.common.errors import UserError
from roberta_small.common.label_kinds import SINGLE_LABEL
from roberta_small.common.metrics import definitions  # noqa: F401  registers the metrics
from roberta_small.common.metrics.metric import BY_KIND, Metric, register  # noqa: F401
from roberta_small.common.metrics.sums import (  # noqa: F401  for users of this package
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


METRICS = BY_KIND[SINGLE_LABEL]
"""The metrics of data with one class per text by name; logs and tables use the order of registration."""


def metrics_of(kind: str) -> Mapping[str, Metric]:
    """All metrics of a kind of labels, as `METRICS`."""
    return MappingProxyType(BY_KIND[kind])


def find(name: str) -> Metric | None:
    """The metric of this name or log tag, or None; fairseq logs the best value so far as `best_accuracy`.

    Metrics of several kinds of labels with the same name have the same direction, unit and digits.
    """
    names = (name, name.removeprefix("best_"))
    found = (metrics.get(known) for known in names for metrics in BY_KIND.values())
    return next(filter(None, found), None)


def measures_quality(name: str) -> bool:
    """Whether a name in logs may be a metric of a model, in contrast to speed, sizes and the optimizer."""
    return any(name in metrics for metrics in BY_KIND.values()) or NOT_QUALITY.fullmatch(name) is None


def logged(kind: str = SINGLE_LABEL) -> list[Metric]:
    """The metrics of a kind of labels that are computed from sums, which are logged in training."""
    return [metric for metric in BY_KIND[kind].values() if metric.from_statistics is not None]


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


def limits(name: str, *, difference: bool = False) -> tuple[float, float]:
    """The smallest and the largest value of a metric, or of a difference of two; infinite if not known."""
    low, high = (-math.inf, math.inf) if (metric := find(name)) is None else metric.limits
    return (low - high, high - low) if difference else (low, high)


def cut(low: float, high: float, name: str, *means: float) -> tuple[float, float]:
    """The part of the interval of a mean, or of the difference of two `means`, within `limits`.

    It is not cut around values that the metric cannot have, such as a macro-F1 logged in percent.
    """
    least, most = limits(name)
    if not all(least <= mean <= most for mean in means or [(low + high) / 2]):
        return low, high
    least, most = limits(name, difference=bool(means))
    return max(low, least), min(high, most)


def cut_notes(lows: Iterable[float], highs: Iterable[float], name: str, *, difference: bool) -> list[str]:
    """A note if `cut` has cut one of the intervals."""
    least, most = limits(name, difference=difference)
    if least not in list(lows) and most not in list(highs):
        return []
    ends = f"{least:g} and {most:g}".replace(" and inf", "").replace("-", "−")
    return [f"Intervals end at {ends}, the limits of {label(name)}: too few and too different seeds."]


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
