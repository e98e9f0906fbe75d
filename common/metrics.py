"""What is known of a metric: which way is better, and how many digits to show."""

from __future__ import annotations

import re
from typing import Literal, get_args

Direction = Literal["auto", "highest", "lowest"]
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)

LOWER_IS_BETTER = re.compile(r"(^|_)(loss|nll|ppl|perplexity|error|mse|rmse|mae|brier|ece|wer|cer)$")
IN_PERCENT = frozenset({"accuracy", "best_accuracy"})


def lower_is_better(metric: str, direction: Direction = "auto") -> bool:
    """Whether the lowest value is best: with `direction` "auto" for metrics named after a loss or an error
    (`loss`, `nll_loss`, `ppl`, `ece`, ...), which "highest" and "lowest" overrule.
    """
    if direction not in DIRECTIONS:
        raise ValueError(f"direction is {direction!r}, not one of {DIRECTIONS}")
    if direction == "auto":
        return LOWER_IS_BETTER.search(metric) is not None
    return direction == "lowest"


def label(metric: str) -> str:
    """The metric's name as a reader should see it, with its unit."""
    name = metric.replace("_", " ")
    return f"{name} (%)" if metric in IN_PERCENT else name


def number(value: float, metric: str) -> str:
    """Two decimals for percentages, four for fractions and losses, a dash for a missing value."""
    if value != value:
        return "–"
    return f"{value:.2f}" if metric in IN_PERCENT else f"{value:.4f}"
