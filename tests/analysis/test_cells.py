"""Formats of table cells."""

import math

import pandas as pd
import pytest

from roberta_small.common.tables import interval, mean_std_cell, p_value, signed, signed_interval, whole

NAN = math.nan


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (p_value(0.0004), "<0.001"),
        (p_value(0.0), "<0.001"),
        (p_value(0.25), "0.250"),
        (p_value(NAN), "–"),
        (p_value(pd.NA), "–"),
        (whole(2687.0), "2,687"),
        (whole(math.inf), ">100,000"),
        (whole(pd.NA), "–"),
        (signed(1.283, "accuracy"), "+1.28"),
        (signed(-0.85, "accuracy"), "−0.85"),
        (signed(0.0, "accuracy"), "0.00"),
        (signed(0.01234, "mcc"), "+0.0123"),
        (signed(NAN, "mcc"), "–"),
        (mean_std_cell(67.233, 1.281, "accuracy"), "67.23 ± 1.28"),
        (mean_std_cell(67.233, NAN, "accuracy", 1), "67.23 ± – (1)"),
        (mean_std_cell(0.5, 0.01, "mcc", NAN), "0.5000 ± 0.0100 (–)"),
        (interval(65.86, 69.1, "accuracy"), "[65.86, 69.10]"),
        (interval(NAN, NAN, "accuracy"), "–"),
        (signed_interval(-1.0, 2.0, "accuracy"), "[−1.00, +2.00]"),
    ],
)
def test_cells(shown, text):
    assert shown == text
