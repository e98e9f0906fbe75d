"""The summary table of the report: each group with its mean, interval and difference to the baseline."""

from __future__ import annotations

import math

import pandas as pd

from roberta_small.analysis.read.long_table import GROUP
from roberta_small.analysis.stats.spread import BEST
from roberta_small.analysis.study import names_of
from roberta_small.common.metrics import label, number
from roberta_small.common.statistics import LEVEL
from roberta_small.common.tables import PERCENT, Mean, Table, interval, p_value, signed, signed_interval

BASELINE = "baseline"
NOT_TESTED = "not tested"


def overview_table(
    spread: pd.DataFrame,
    differences: pd.DataFrame | None,
    metric: str,
    subset: str,
    best_note: str,
    *,
    baseline: str | None,
    family: int,
) -> Table:
    """The best checkpoints of the frame of `spread_over_seeds` with their differences to the baseline.

    `differences` is the frame of `against`, or None; `family` is the number of tests in Holm's correction.
    """
    data = spread.loc[spread["at"] == BEST, [*GROUP, "n", "mean", "t_low", "t_high"]]
    data = data.assign(group=names_of(data)).reset_index(drop=True)
    shown = pd.DataFrame(
        {
            "group": data["group"],
            "mean": [number(mean, metric) for mean in data["mean"]],
            f"{PERCENT} over seeds": [
                interval(low, high, metric) for low, high in zip(data["t_low"], data["t_high"], strict=True)
            ],
            "seeds": data["n"].astype(str),
        }
    )
    notes = [
        best_note,
        f"{PERCENT} over seeds: Student's t interval for the mean; none for a single seed or equal seeds.",
    ]
    if differences is not None:
        columns = ["group", "difference", "low", "high", "p"]
        data = data.merge(differences[columns], on="group", how="left")
        cells = [_difference(row, metric, baseline) for row in data.to_dict("records")]
        headings = (f"difference [{PERCENT}]", f"p{' (Holm)' if family > 1 else ''}")
        shown = shown.assign(**dict(zip(headings, zip(*cells, strict=True), strict=True)))
        correction = f", with Holm's correction over {family} tests, one family" if family > 1 else ""
        notes += [
            f"difference: to {baseline}; its interval is not corrected.",
            f"p: two-sided t test over seeds{correction}; paired by seed where at least two are common, "
            "otherwise Welch's.",
            f"{NOT_TESTED}: fewer than two seeds, or the same difference for all seeds.",
        ]
    groups = tuple(data["group"])
    return Table(
        name="overview",
        caption=f"{subset.capitalize()} {label(metric)} at the best checkpoints",
        notes=tuple(notes),
        data=data.drop(columns="group").assign(
            metric=metric, subset=subset, level=LEVEL, baseline=baseline, best_checkpoint=best_note
        ),
        shown=shown,
        groups=groups,
        means=tuple(
            Mean(row, "mean", group, BEST, subset, metric, mean, tested=False)
            for row, (group, mean) in enumerate(zip(groups, data["mean"], strict=True))
        ),
    )


def _difference(row: dict, metric: str, baseline: str | None) -> tuple[str, str]:
    """The cells of the difference of a group, with its interval, and of its p-value."""
    if row["group"] == baseline:
        return BASELINE, ""
    if math.isnan(row["difference"]):  # the pair is not in the family
        return "–", "–"
    p = NOT_TESTED if math.isnan(row["p"]) else p_value(row["p"])
    ends = "" if math.isnan(row["low"]) else f" {signed_interval(row['low'], row['high'], metric)}"
    return f"{signed(row['difference'], metric)}{ends}", p
