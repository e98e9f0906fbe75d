"""What is known of a metric: which way is better, and how many digits to show."""

from __future__ import annotations

LOWER_IS_BETTER = frozenset({"loss", "nll_loss", "ppl"})
IN_PERCENT = frozenset({"accuracy", "best_accuracy"})


def lower_is_better(metric: str) -> bool:
    """True for losses and perplexity; every other metric is better when higher."""
    return metric in LOWER_IS_BETTER


def label(metric: str) -> str:
    """The metric's name as a reader should see it, with its unit."""
    name = metric.replace("_", " ")
    return f"{name} (%)" if metric in IN_PERCENT else name


def number(value: float, metric: str) -> str:
    """Two decimals for percentages, four for fractions and losses, a dash for a missing value."""
    if value != value:
        return "–"
    return f"{value:.2f}" if metric in IN_PERCENT else f"{value:.4f}"
