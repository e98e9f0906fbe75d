"""Numbers, intervals and p-values as a reader sees them."""

from __future__ import annotations

import math

import pandas as pd

from .intervals import LEVEL
from .metrics import number

PERCENT = f"{100 * LEVEL:g} %"
"""The level of all intervals shown."""


def interval(low: float, high: float, metric: str) -> str:
    """`[65.86, 69.10]`, or a dash."""
    return "–" if math.isnan(low) else f"[{number(low, metric)}, {number(high, metric)}]"


def signed(value: float, metric: str) -> str:
    """A difference with its sign."""
    if math.isnan(value):
        return "–"
    return ("+" if value > 0 else "−" if value < 0 else "") + number(abs(value), metric)


def signed_interval(low: float, high: float, metric: str) -> str:
    """The interval of a difference."""
    return "–" if math.isnan(low) else f"[{signed(low, metric)}, {signed(high, metric)}]"


def p_value(p: float) -> str:
    """Three decimals; a p-value is never zero."""
    if pd.isna(p):
        return "–"
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def whole(value: float) -> str:
    """A count, which may be missing or beyond what was looked for."""
    if pd.isna(value):
        return "–"
    return ">100,000" if math.isinf(value) else f"{value:,.0f}"
