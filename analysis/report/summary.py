"""The text of the report: sentences derived from the statistics."""

from __future__ import annotations

import math

import pandas as pd

from common.errors import count
from common.metrics import ACCURACIES, label, number
from common.tables import PERCENT, interval, p_value, signed, signed_interval, whole

from ..long_table import GROUP
from ..stats.power import ALPHA, POWER
from ..stats.spread import BEST
from .findings import Findings

FEW_SEEDS = 5
WIDER = {
    "seeds": "seed variance dominates test-set variance; more seeds would narrow the interval",
    "examples": "test-set variance dominates seed variance; more seeds would hardly narrow the interval",
}
MOST_PAIRS = 6
"""More pairs of groups than this are summed up rather than told one by one."""


def summary(findings: Findings) -> list[str]:
    """Paragraphs, each a few sentences; plain text that still needs escaping."""
    at_best = findings.spread[findings.spread["at"] == BEST]
    paragraphs = [
        _groups(at_best, findings),
        _sources(at_best, findings),
        _few_seeds(at_best),
        *_comparisons(findings),
        _reference(findings),
        _overlap(findings),
    ]
    return [paragraph for paragraph in paragraphs if paragraph]


def _groups(at_best: pd.DataFrame, findings: Findings) -> str:
    """The mean of each group and the range of its seeds."""
    metric = findings.rule.metric
    if at_best.empty:
        return f"No run has a {label(metric)} on test at its best checkpoint."
    parts = []
    for row in at_best.to_dict("records"):
        mean = number(row["mean"], metric)
        if row["n"] == 1:
            parts.append(f"{_name(row)} reaches {mean} (one seed)")
        else:
            low, high = number(row["min"], metric), number(row["max"], metric)
            parts.append(f"{_name(row)} reaches {mean} on average of {row['n']} seeds ({low} to {high})")
    return f"Test {label(metric)} at each run's best validation: {'; '.join(parts)}."


def _sources(at_best: pd.DataFrame, findings: Findings) -> str:
    """The intervals of each group, and which is wider: over seeds or due to the test size."""
    metric, size = findings.rule.metric, findings.test_size
    known = at_best[at_best["t_low"].notna() | at_best["examples_low"].notna()]
    parts = []
    for row in known.to_dict("records"):
        intervals = []
        if not math.isnan(row["t_low"]):
            intervals.append(f"{interval(row['t_low'], row['t_high'], metric)} over seeds")
        if not math.isnan(row["examples_low"]):
            ends = interval(row["examples_low"], row["examples_high"], metric)
            intervals.append(f"{ends} by the {size:,} test examples")
        parts.append(f"{_name(row)} {', '.join(intervals)}")
    if not parts:
        return ""
    sentences = [f"{PERCENT} intervals: {'; '.join(parts)}."]
    for wider, verdict in WIDER.items():
        names = [_name(row) for row in known[known["wider"] == wider].to_dict("records")]
        if names:
            sentences.append(f"For {' and '.join(names)} {verdict}.")
    return " ".join(sentences)


def _few_seeds(at_best: pd.DataFrame) -> str:
    several = at_best.loc[at_best["n"] > 1, "n"]
    sentences = []
    if (at_best["n"] == 1).any():
        sentences.append(
            "A single seed does not show how far away another one would be; "
            "no interval over seeds can be given for it."
        )
    if len(several) and several.min() < FEW_SEEDS:
        sentences.append(_few(int(several.min())))
    return " ".join(sentences)


def _few(fewest: int) -> str:
    return (
        f"{fewest} seeds are few: their standard deviation is itself uncertain, and the intervals rest "
        "on the assumption that scores are normally distributed, which so few values cannot show."
    )


def _comparisons(findings: Findings) -> list[str]:
    data = findings.comparison
    if data is None:
        return []
    if len(data) > MOST_PAIRS:
        return [_many_pairs(data)]
    paragraphs = [_pair(row, findings, family=len(data)) for row in data.to_dict("records")]
    return [*paragraphs, "These statements hold for this test set only."]


def _pair(row: dict, findings: Findings, family: int) -> str:
    """One pair: what the seeds say, what a test without assumptions could say, what it would take."""
    metric = findings.rule.metric
    a, b, low, high = row["a"], row["b"], row["low"], row["high"]
    difference = f"{a} minus {b}: {signed(row['difference'], metric)}"
    if min(row["n_a"], row["n_b"]) == 1:
        return f"{difference}. No test over seeds can be made with a single run; {_by_example(row, findings)}"
    if math.isnan(low):
        return f"{difference}. With so few seeds, or none that differ, no interval can be given: undecided."
    n = (
        f"{row['n_a']} pairs of seeds"
        if row["design"] == "paired"
        else f"{row['n_a']} and {row['n_b']} seeds"
    )
    sentences = [f"{difference}, {PERCENT} interval {signed_interval(low, high, metric)} from {n}."]
    if low <= 0 <= high:
        sentences.append("The interval holds 0: these runs do not show which of the two is higher.")
    elif row["p_t_holm"] > ALPHA:
        sentences.append(
            f"The interval leaves 0 out, but not after correcting for {family} comparisons "
            f"(p = {p_value(row['p_t_holm'])}): not shown."
        )
    else:
        higher = a if row["difference"] > 0 else b
        sentences.append(
            f"The interval leaves 0 out: over other seeds {higher} can be expected to be higher."
        )
        if row["p_floor"] > ALPHA:
            sentences.append(
                "That rests on normally distributed scores: so few runs cannot show it without assuming them."
            )
    if low <= 0 <= high and not math.isnan(row["seeds_needed"]):
        sentences.append(_plan(row, metric))
    return " ".join(sentences)


def _by_example(row: dict, findings: Findings) -> str:
    """What the same test set's examples say of a pair, as far as there are prediction files."""
    examples = findings.examples
    if examples is not None:
        pair = examples[(examples["a"] == row["a"]) & (examples["b"] == row["b"])]
        if len(pair):
            last = pair.iloc[-1]  # the mean, where there are several seeds
            ends = signed_interval(last["low"], last["high"], "accuracy")
            return f"example by example these very runs differ by {ends} ({PERCENT} interval over test sets)."
    return "prediction files would compare the runs example by example."


def _plan(row: dict, metric: str) -> str:
    each = "pairs of seeds" if row["design"] == "paired" else "seeds in each group"
    return (
        f"To find a difference of {number(row['detect'], metric)} with power {POWER:g} would take about "
        f"{whole(row['seeds_needed'])} {each} (between {whole(row['seeds_needed_low'])} and "
        f"{whole(row['seeds_needed_high'])}, as uncertain as the spread that it rests on)."
    )


def _many_pairs(data: pd.DataFrame) -> str:
    shown = int((data["p_t_holm"] <= ALPHA).sum())
    undecided = len(data) - shown
    text = (
        f"Of the {len(data)} pairs of groups, {shown} differ over seeds beyond what chance explains "
        f"(t test, Holm's correction, p ≤ {ALPHA:g})"
    )
    if undecided:
        text += f"; for {undecided} these runs do not show which is higher"
    return f"{text}. The table of comparisons has each pair. These statements hold for this test set only."


def _reference(findings: Findings) -> str:
    data = findings.reference
    if data is None:
        return ""
    sentences = []
    for (arm, init), rows in data.groupby(GROUP, sort=False):
        known = rows[rows["within_noise"].notna()]
        inside = int(known["within_noise"].astype(bool).sum())
        outside = known[~known["within_noise"].astype(bool)]
        below = int((outside["difference"] < 0).sum())
        above = len(outside) - below
        verdicts = [f"{inside} do not differ significantly from ours"] if inside else []
        verdicts += [f"ours is lower in {below}"] if below else []
        verdicts += [f"ours is higher in {above}"] if above else []
        if verdicts:
            numbers = count(len(known), "published number")
            sentences.append(f"Of {numbers} for {arm}/{init}, {', '.join(verdicts)}.")
    if not sentences:
        return (
            f"Beside {findings.reference_name}: no interval can be computed for any difference "
            "(std, n or seeds are missing): undecided."
        )
    return (
        f"Beside {findings.reference_name}. {' '.join(sentences)} Not significantly different does not "
        "mean equal: with few seeds the intervals are wide."
    )


def _overlap(findings: Findings) -> str:
    overlap = findings.overlap
    if overlap is None:
        return ""
    if not overlap.lines:
        return "The audit found no test example that occurs verbatim in train."
    share = 100 * len(overlap.lines) / overlap.size
    text = (
        f"{len(overlap.lines):,} of the {overlap.size:,} test examples ({share:.1f} %) occur verbatim in "
        f"{overlap.other}; the scores include them."
    )
    if findings.accuracies is None:
        known = findings.rule.metric in ACCURACIES
        return text + (
            f" Without prediction files it cannot be said what they contribute: {share:.1f} points at most."
            if known
            else ""
        )
    changes = findings.accuracies["unseen_accuracy"] - findings.accuracies["accuracy"]
    return text + (
        f" Without them, accuracy changes by {signed(changes.min(), 'accuracy')} to "
        f"{signed(changes.max(), 'accuracy')} points, run by run."
    )


def _name(row: dict) -> str:
    return f"{row['arm']}/{row['init']}"
