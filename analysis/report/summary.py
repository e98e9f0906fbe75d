"""The summary of the report: sentences derived from the statistics."""

from __future__ import annotations

import math

import pandas as pd

from common.errors import count
from common.metrics import ACCURACIES, label, number
from common.tables import PERCENT, interval, p_value, signed, signed_interval, whole

from ..read.long_table import GROUP, REPORTED
from ..stats.power import ALPHA, POWER
from ..stats.spread import BEST
from ..tables.runs import CHOSEN_ON_REPORTED
from .findings import Findings

FEW_SEEDS = 5
WIDER = {
    "seeds": "seed variance dominates test-set variance; more seeds would narrow the interval",
    "examples": "test-set variance dominates seed variance; more seeds would hardly narrow the interval",
}
MOST_PAIRS = 6
"""Maximum number of pairs of groups with a paragraph each; more are summarized in one."""

CONTAINS_ZERO = "The interval contains 0: these runs do not show which of the two is higher."
EXCLUDES_ZERO = "The interval excludes 0: with other seeds, too, {} can be expected to be higher."
ASSUMES_NORMAL = (
    "This assumes normally distributed scores: no test without this assumption can be significant with so "
    "few runs."
)
NO_INTERVAL = "There is no interval, because the seeds are too few or all equal: undecided."
NO_REFERENCE_INTERVAL = (
    "no interval can be computed for any difference (std, n or seeds are missing): undecided."
)
THIS_TEST_SET = "These statements hold for this test set only."


def summary(findings: Findings) -> list[str]:
    """Paragraphs of plain text, not escaped for HTML."""
    at_best = findings.spread[findings.spread["at"] == BEST]
    paragraphs = [
        _groups(at_best, findings),
        _sources(at_best, findings),
        _few_seeds(at_best),
        *_comparisons(findings),
        _reference(findings),
        _overlap(findings),
    ]
    return [findings.study.relabel(paragraph) for paragraph in paragraphs if paragraph]


def _groups(at_best: pd.DataFrame, findings: Findings) -> str:
    """Mean and range of the seeds of each group."""
    metric, reported = findings.rule.metric, findings.rule.reported
    if at_best.empty:
        return f"No run has a {label(metric)} on {reported} at its best checkpoint."
    parts = []
    for row in at_best.to_dict("records"):
        mean = number(row["mean"], metric)
        if row["n"] == 1:
            parts.append(f"{_name(row)} reaches {mean} (one seed)")
        else:
            low, high = number(row["min"], metric), number(row["max"], metric)
            parts.append(f"{_name(row)} reaches {mean} on average of {row['n']} seeds ({low} to {high})")
    text = f"{reported.capitalize()} {label(metric)} at each run's best validation: {'; '.join(parts)}."
    if reported == findings.rule.subset != REPORTED:
        text += f" {CHOSEN_ON_REPORTED.format(reported)}"
    return text


def _sources(at_best: pd.DataFrame, findings: Findings) -> str:
    """The intervals of each group over seeds and due to the test size, and which is wider."""
    metric, size = findings.rule.metric, findings.test_size
    known = at_best[at_best["t_low"].notna() | at_best["examples_low"].notna()]
    parts = []
    sources = {
        "t": "over seeds",
        "examples": f"due to the {size:,} {findings.rule.reported} examples" if size else "",
    }
    sources = {name: text for name, text in sources.items() if known[f"{name}_low"].notna().any()}
    for row in known.to_dict("records"):
        ends = (interval(row[f"{name}_low"], row[f"{name}_high"], metric) for name in sources)
        parts.append(f"{_name(row)} {', '.join(ends)}")
    if not parts:
        return ""
    sentences = [f"{PERCENT} intervals ({', '.join(sources.values())}): {'; '.join(parts)}."]
    for wider, verdict in WIDER.items():
        names = [_name(row) for row in known[known["wider"] == wider].to_dict("records")]
        if names:
            *most, last = names
            listed = f"{', '.join(most)} and {last}" if most else last
            sentences.append(f"For {listed}, {verdict}.")
    return " ".join(sentences)


def _few_seeds(at_best: pd.DataFrame) -> str:
    several = at_best.loc[at_best["n"] > 1, "n"]
    sentences = []
    if (at_best["n"] == 1).any():
        sentences.append(
            "A single seed does not show the variation between seeds: there is no interval over seeds."
        )
    if len(several) and several.min() < FEW_SEEDS:
        sentences.append(_few(int(several.min())))
    return " ".join(sentences)


def _few(fewest: int) -> str:
    return (
        f"{fewest} seeds are few: their standard deviation is uncertain, and the intervals assume "
        "normally distributed scores, which cannot be verified with so few values."
    )


def _comparisons(findings: Findings) -> list[str]:
    data = findings.comparison
    if data is None:
        return []
    if len(data) > MOST_PAIRS:
        return [_many_pairs(data)]
    paragraphs = [_pair(row, findings, family=len(data)) for row in data.to_dict("records")]
    return [*paragraphs, THIS_TEST_SET]


def _pair(row: dict, findings: Findings, family: int) -> str:
    """A pair of groups: difference with its interval, significance, and the number of seeds needed."""
    metric = findings.rule.metric
    a, b, low, high = row["a"], row["b"], row["low"], row["high"]
    difference = f"{a} minus {b}: {signed(row['difference'], metric)}"
    if min(row["n_a"], row["n_b"]) == 1:
        return f"{difference}. A test over seeds needs more than one run; {_by_example(row, findings)}"
    if math.isnan(low):
        return f"{difference}. {NO_INTERVAL}"
    n = (
        f"{row['n_a']} pairs of seeds"
        if row["design"] == "paired"
        else f"{row['n_a']} and {row['n_b']} seeds"
    )
    sentences = [f"{difference}, {PERCENT} interval {signed_interval(low, high, metric)} from {n}."]
    if low <= 0 <= high:
        sentences.append(CONTAINS_ZERO)
    elif row["p_t_holm"] > ALPHA:
        sentences.append(
            f"The interval excludes 0, but the difference is not significant after correction for {family} "
            f"comparisons (p = {p_value(row['p_t_holm'])})."
        )
    else:
        higher = a if row["difference"] > 0 else b
        sentences.append(EXCLUDES_ZERO.format(higher))
        if row["p_floor"] > ALPHA:
            sentences.append(ASSUMES_NORMAL)
    if low <= 0 <= high and not math.isnan(row["seeds_needed"]):
        sentences.append(_plan(row, metric))
    return " ".join(sentences)


def _by_example(row: dict, findings: Findings) -> str:
    """The comparison of a pair by example, if there are prediction files."""
    examples = findings.examples
    if examples is not None:
        pair = examples[(examples["a"] == row["a"]) & (examples["b"] == row["b"])]
        if len(pair):
            last = pair.iloc[-1]  # the mean, where there are several seeds
            ends = signed_interval(last["low"], last["high"], "accuracy")
            return f"by example, these runs differ by {ends} ({PERCENT} interval over test sets)."
    return "with prediction files, the runs can be compared by example."


def _plan(row: dict, metric: str) -> str:
    each = "pairs of seeds" if row["design"] == "paired" else "seeds in each group"
    return (
        f"Detecting a difference of {number(row['detect'], metric)} with power {POWER:g} needs about "
        f"{whole(row['seeds_needed'])} {each} (between {whole(row['seeds_needed_low'])} and "
        f"{whole(row['seeds_needed_high'])}, because the standard deviation is uncertain)."
    )


def _many_pairs(data: pd.DataFrame) -> str:
    tested = int(data["p_t_holm"].notna().sum())
    significant = int((data["p_t_holm"] <= ALPHA).sum())
    text = (
        f"Of the {tested} pairs of groups that can be tested over seeds, {significant} differ significantly "
        f"(t test, Holm's correction, p ≤ {ALPHA:g})"
    )
    if undecided := tested - significant:
        text += f"; for {undecided}, these runs do not show which is higher"
    if untested := len(data) - tested:
        text += f". {count(untested, 'pair')} cannot be tested: too few seeds, or all equal"
    return f"{text}. The table of comparisons contains all pairs. {THIS_TEST_SET}"


def _reference(findings: Findings) -> str:
    data = findings.reference
    if data is None:
        return ""
    sentences = []
    for (arm, init), rows in data.groupby(GROUP, sort=False):
        known = rows[rows["within_noise"].notna()]
        within = int(known["within_noise"].astype(bool).sum())
        outside = known[~known["within_noise"].astype(bool)]
        below = int((outside["difference"] < 0).sum())
        above = len(outside) - below
        verdicts = [f"{within} do not differ significantly from ours"] if within else []
        verdicts += [f"ours is lower in {below}"] if below else []
        verdicts += [f"ours is higher in {above}"] if above else []
        if verdicts:
            numbers = count(len(known), "published number")
            sentences.append(f"Of {numbers} for {arm}/{init}, {', '.join(verdicts)}.")
    if not sentences:
        return f"Comparison with {findings.reference_name}: {NO_REFERENCE_INTERVAL}"
    return (
        f"Comparison with {findings.reference_name}. {' '.join(sentences)} Not significantly different does "
        "not mean equal: with few seeds the intervals are wide."
    )


def _overlap(findings: Findings) -> str:
    overlap = findings.overlap
    if overlap is None:
        return ""
    if not overlap.lines:
        return f"The audit found no {overlap.split} example that occurs verbatim in train."
    percentage = 100 * len(overlap.lines) / overlap.size
    text = (
        f"{len(overlap.lines):,} of the {overlap.size:,} {overlap.split} examples ({percentage:.1f} %) "
        f"occur verbatim in {overlap.other}; the scores include them."
    )
    if findings.accuracies is None:
        known = findings.rule.metric in ACCURACIES
        return text + (
            f" Their effect on accuracy is at most {percentage:.1f} points; prediction files determine it."
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
