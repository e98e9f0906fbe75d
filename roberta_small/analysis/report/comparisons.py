"""The comparisons of a report, which are one family of tests, and the overview table."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Sequence
from itertools import combinations

import pandas as pd

from roberta_small.analysis.compare import against, compare_groups
from roberta_small.analysis.predictions import find_predictions
from roberta_small.analysis.query import NO_STUDY, Study, names_of
from roberta_small.analysis.read.long_table import GROUP, REPORTED
from roberta_small.analysis.scoring import BEST
from roberta_small.analysis.selection import Selection
from roberta_small.common.errors import UserError
from roberta_small.common.metrics import cut_notes, label, number
from roberta_small.common.statistics import LEVEL
from roberta_small.common.tables import PERCENT, Mean, Table, interval, p_value, signed, signed_interval

logger = logging.getLogger(__name__)
RANDOM = "random"
"""The initialization that is the baseline of a report unless another one is given."""
BASELINE = "baseline"
NOT_TESTED = "not tested"


def baseline_of(selection: Selection) -> str | None:
    """The baseline of the study, or `default_baseline`.

    Raises `UserError` if that of the study has no value at a best checkpoint.
    """
    study, baseline, values = selection.study, selection.study.query.baseline, selection.values
    known = study.ordered(values.loc[values["at"] == BEST, "group"])
    if baseline is None:
        return default_baseline(values, study)
    if baseline not in known:
        raise UserError(
            f"--baseline: '{baseline}' has no {study.metric} on {study.split} at its best "
            f"checkpoint; choose one of {', '.join(known) or 'no group, none has one'}"
        )
    return baseline


def default_baseline(values: pd.DataFrame, study: Study = NO_STUDY) -> str | None:
    """The group that most pairs of the study have second; without pairs, one of random weights, or the first.

    Groups with several runs are preferred, because others have no test over seeds. `values` is the frame of
    `scores`. None if fewer than two groups have values at their best checkpoints.
    """
    if study.query.pairs:
        return Counter(second for _, second in study.query.pairs).most_common(1)[0][0]
    runs = values[values["at"] == BEST].groupby("group", sort=False)["seed"].nunique()
    if len(runs) < 2:
        return None
    return min(
        study.ordered(runs.index), key=lambda group: (runs[group] < 2, not group.endswith(f"/{RANDOM}"))
    )


def warn_of_unused(selection: Selection) -> None:
    """Warn of a baseline in no pair, and of predictions of a split that the report is not on."""
    query, reported = selection.study.query, selection.study.split
    if query.baseline and query.pairs and all(query.baseline not in pair for pair in query.pairs):
        logger.warning(
            "--pair: no pair has the baseline %s, so there are no differences to it", query.baseline
        )
    predicted = any(find_predictions(run, REPORTED) for run in selection.runs)
    if reported != REPORTED and selection.predictions.empty and predicted:
        logger.warning("predictions of %s exist, but the report is on %s", REPORTED, reported)


def compare_over_seeds(selection: Selection, baseline: str | None) -> pd.DataFrame | None:
    """`compare_groups` of the compared pairs at the points of the study; None for a single group.

    The p-values of the whole report are those of this frame: its rows are one family.
    """
    study, values = selection.study, selection.values
    pairs = compared_pairs(values[values["at"] == BEST], baseline, study)
    if not pairs:
        return None
    return compare_groups(
        values, pairs=pairs, at=study.points(), detect=study.difference, lower=study.lower,
        metric=study.metric,
    )  # fmt: skip


def compared_pairs(frame: pd.DataFrame, baseline: str | None, study: Study) -> Sequence[tuple[str, str]]:
    """The pairs to compare of the groups of a frame, those with the baseline first."""
    if study.query.pairs and not study.query.all_pairs:
        return study.query.pairs
    groups = study.ordered(names_of(frame[GROUP].drop_duplicates().sort_values(GROUP)))
    others = [group for group in groups if group != baseline]
    pairs = [(group, baseline) for group in others] if baseline is not None and baseline in groups else []
    return [*pairs, *combinations(others, 2)] if study.query.all_pairs else pairs


def overview_table(selection: Selection, baseline: str | None, compared: pd.DataFrame | None) -> Table:
    """Each group at its best checkpoints, with its mean, interval and difference to the baseline.

    `compared` is the frame of `compare_over_seeds`.
    """
    study, spread = selection.study, selection.spread
    metric, subset = study.metric, study.split
    data = spread.loc[spread["at"] == BEST, [*GROUP, "n", "mean", "t_low", "t_high"]]
    data = data.assign(group=names_of(data)).reset_index(drop=True)
    ends = zip(data["t_low"], data["t_high"], strict=True)
    shown = data[["group"]].assign(mean=[number(mean, metric) for mean in data["mean"]])
    shown[f"{PERCENT} over seeds"] = [interval(low, high, metric) for low, high in ends]
    shown["seeds"] = data["n"].astype(str)
    notes = [
        study.note,
        f"{PERCENT} over seeds: Student's t interval for the mean; none for a single seed or equal seeds.",
        *cut_notes(data["t_low"], data["t_high"], metric, difference=False),
    ]
    differences = pd.DataFrame()
    if compared is not None and baseline is not None:
        differences = against(compared[compared["at"] == BEST], baseline)
    if compared is not None and len(differences):
        family = int(compared["p_t"].notna().sum())
        columns = ["group", "difference", "low", "high", "p"]
        data = data.merge(differences[columns], on="group", how="left")
        cells = []
        for row in data.to_dict("records"):
            limits = "" if math.isnan(row["low"]) else f" {signed_interval(row['low'], row['high'], metric)}"
            if row["group"] == baseline:
                cells.append((BASELINE, ""))
            elif math.isnan(row["difference"]):  # the pair is not in the family
                cells.append(("–", "–"))
            else:
                p = NOT_TESTED if math.isnan(row["p"]) else p_value(row["p"])
                cells.append((f"{signed(row['difference'], metric)}{limits}", p))
        headings = (f"difference [{PERCENT}]", f"p{' (Holm)' if family > 1 else ''}")
        shown = shown.assign(**dict(zip(headings, zip(*cells, strict=True), strict=True)))
        correction = f", with Holm's correction over {family} tests, one family" if family > 1 else ""
        notes += [
            f"difference: to {baseline}; its interval is not corrected.",
            *cut_notes(data["low"], data["high"], metric, difference=True),
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
            metric=metric, subset=subset, level=LEVEL, baseline=baseline, best_checkpoint=study.note
        ),
        shown=shown,
        groups=groups,
        means=tuple(
            Mean(row, "mean", group, BEST, subset, metric, mean, tested=False)
            for row, (group, mean) in enumerate(zip(groups, data["mean"], strict=True))
        ),
    )
