"""The summary of a report: main findings, cautions and remarks as sentences, and the overview table."""

from __future__ import annotations

import math

import pandas as pd

from roberta_small.analysis.compare import ALPHA, against
from roberta_small.analysis.presentation import best_means
from roberta_small.analysis.query import CHOSEN_ON_REPORTED, CHOSEN_ON_TEST
from roberta_small.analysis.read.long_table import GROUP, REPORTED
from roberta_small.analysis.report.elements import listed
from roberta_small.analysis.report.findings import Findings
from roberta_small.analysis.scoring import BEST
from roberta_small.analysis.study import names_of
from roberta_small.common.errors import count, enumerate_some
from roberta_small.common.metrics import ACCURACIES, in_percent, label, number
from roberta_small.common.statistics import LEVEL
from roberta_small.common.tables import PERCENT, Mean, Table, interval, p_value, signed, signed_interval

FEW_SEEDS = 5
WIDER = {
    "seeds": "seed variance dominates test-set variance; more seeds would narrow the interval",
    "examples": "test-set variance dominates seed variance; more seeds would hardly narrow the interval",
}
MOST_SENTENCES = 3
"""Maximum number of differences to the baseline with a sentence each; more are summarized in one."""
MOST_NAMES = 8
"""Maximum number of groups that a sentence lists."""

BASELINE = "baseline"
NOT_TESTED = "not tested"
UNDECIDED = "these runs do not show which of the two is higher"
ONE_SEED = "not tested over seeds, because one of them has a single seed"
EQUAL_SEEDS = "not tested, because the difference is the same for all seeds"
FEW = (
    "With {} seeds, the standard deviation is uncertain; intervals and p-values assume normally distributed "
    "scores, which cannot be verified with so few values."
)
SINGLE = "A single seed does not show the variation between seeds: no interval or test over seeds for {}."
NO_REFERENCE_INTERVAL = (
    "no difference has an interval, because every group has a single seed or equal seeds: undecided."
)


def main_findings(findings: Findings) -> list[str]:
    """The best group and the differences to the baseline, as plain text that is not escaped for HTML."""
    at_best = _at_best(findings)
    if at_best.empty:
        query = findings.query
        return [f"No run has a {label(query.metric)} on {query.reported} at its best checkpoint."]
    best = _best_groups(at_best, findings)
    sentences = [_best(at_best, best, findings), *_differences(best, findings), *_other_pairs(findings)]
    return _relabelled(sentences, findings)


def cautions(findings: Findings) -> list[str]:
    """What limits the findings, the most important first."""
    sentences = [
        _chosen_on_reported(findings),
        *_few_seeds(_at_best(findings)),
        _overlap(findings),
        _diverged(findings),
    ]
    return _relabelled(sentences, findings)


def seeds_remark(findings: Findings) -> str:
    """Which of both intervals of each group is wider; empty if one is missing."""
    known = _at_best(findings)
    sentences = []
    for wider, verdict in WIDER.items():
        names = [_name(row) for row in known[known["wider"] == wider].to_dict("records")]
        if names:
            sentences.append(f"For {listed(names)}, {verdict}.")
    return findings.query.study.relabel(" ".join(sentences))


def reference_remark(findings: Findings) -> str:
    """How many published numbers differ significantly from the runs; empty without published results."""
    data = findings.selection.reference
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
        return f"Comparison with {findings.selection.reference_name}: {NO_REFERENCE_INTERVAL}"
    text = f"Comparison with {findings.selection.reference_name}. {' '.join(sentences)}"
    return findings.query.study.relabel(text)


def overlap_remark(findings: Findings) -> str:
    """The effect of the examples of the reported split that are also in train; empty without an audit."""
    overlap = findings.selection.overlap
    if overlap is None:
        return ""
    if not overlap.lines:
        return f"The audit found no {overlap.split} example that occurs verbatim in {overlap.other}."
    if findings.accuracies is None:
        if findings.query.metric not in ACCURACIES:
            return ""
        percentage = 100 * len(overlap.lines) / overlap.size
        return (
            f"The effect of the {overlap.split} examples in {overlap.other} on accuracy is at most "
            f"{percentage:.1f} points; prediction files determine it."
        )
    changes = findings.accuracies["unseen_accuracy"] - findings.accuracies["accuracy"]
    return (
        f"Without the {overlap.split} examples in {overlap.other}, accuracy changes by "
        f"{signed(changes.min(), 'accuracy')} to {signed(changes.max(), 'accuracy')} points, run by run."
    )


def _best_groups(at_best: pd.DataFrame, findings: Findings) -> list[str]:
    """The group with the best mean, or all of them if several are equal."""
    metric = findings.query.metric
    means = zip(names_of(at_best), at_best["mean"], strict=True)
    cells = [Mean(row, "mean", group, BEST, "", metric, mean) for row, (group, mean) in enumerate(means)]
    best = best_means(cells, {metric: "lowest" if findings.query.lower else "highest"}) or cells
    return [cell.group for cell in best]


def _best(at_best: pd.DataFrame, best: list[str], findings: Findings) -> str:
    """The best group, with its mean and interval."""
    metric, reported = findings.query.metric, findings.query.reported
    quantity = f"{reported} {metric.replace('_', ' ')}"
    row = at_best[names_of(at_best) == best[0]].to_dict("records")[0]
    value = number(row["mean"], metric) + (" %" if in_percent(metric) else "")
    if row["n"] == 1:
        details = "one seed"
        if not math.isnan(row["examples_low"]):
            ends = interval(row["examples_low"], row["examples_high"], metric)
            size = findings.selection.test_size
            details += f"; {PERCENT} interval due to the {size:,} {reported} examples: {ends}"
    else:
        details = f"mean of {row['n']} seeds"
        if not math.isnan(row["t_low"]):
            details += f"; {PERCENT} interval over seeds: {interval(row['t_low'], row['t_high'], metric)}"
    if len(at_best) == 1:
        return f"{best[0]} has a {quantity} of {value} ({details})."
    extreme = "lowest" if findings.query.lower else "highest"
    if len(best) > 1:
        return f"{listed(best)} have the {extreme} {quantity}: {value}."
    return f"{best[0]} has the {extreme} {quantity}: {value} ({details})."


def _differences(best: list[str], findings: Findings) -> list[str]:
    """The differences to the baseline: a sentence each, or of many groups the best one and a summary."""
    data = findings.differences
    if data is None:
        return []
    rows, baseline = data.to_dict("records"), str(findings.baseline)
    if len(rows) <= MOST_SENTENCES:
        return [_difference(row, baseline, findings) for row in rows]
    sentences = [_difference(row, baseline, findings) for row in rows if row["group"] in best[:1]]
    return [*sentences, _summarized(data, findings)]


def _difference(row: dict, other: str, findings: Findings) -> str:
    """The difference of a row of `against` to the group `other`, and whether it is significant."""
    metric = findings.query.metric
    name = f"the baseline {other}" if other == findings.baseline else other
    distance = number(abs(row["difference"]), metric) + (" points" if in_percent(metric) else "")
    text = f"{row['group']} is {distance} {'above' if row['difference'] > 0 else 'below'} {name}"
    if row["difference"] == 0:
        text = f"{row['group']} has the same mean as {name}"
    if not math.isnan(row["low"]):
        text += f" ({PERCENT} interval {signed_interval(row['low'], row['high'], metric)})"
    if math.isnan(row["p"]):
        single = min(row["n"], row["n_baseline"]) == 1
        return f"{text}, {ONE_SEED if single else EQUAL_SEEDS}{_by_example(row['group'], other, findings)}."
    if row["p"] <= ALPHA:
        return f"{text}: significant, {_p(row['p'])} ({_test(findings)})."
    return f"{text}: not significant, {_p(row['p'])} ({_test(findings)}); {UNDECIDED}."


def _summarized(data: pd.DataFrame, findings: Findings) -> str:
    """How many groups differ significantly from the baseline, and which."""
    tested, significant = data["p"].notna(), data["p"] <= ALPHA
    sides = {
        "higher": significant & (data["difference"] > 0),
        "lower": significant & (data["difference"] < 0),
    }
    named = [
        f"{side}: {enumerate_some(data.loc[rows, 'group'], MOST_NAMES)}"
        for side, rows in sides.items()
        if any(rows)
    ]
    text = (
        f"{int(significant.sum())} of {count(len(data), 'group')} differ significantly from the baseline "
        f"{findings.baseline} (p ≤ {ALPHA:g}, {_test(findings)})"
    )
    text += f"; {'; '.join(named)}." if named else "."
    if undecided := enumerate_some(data.loc[tested & ~significant, "group"], MOST_NAMES):
        text += f" Undecided: {undecided}."
    if untested := enumerate_some(data.loc[~tested, "group"], MOST_NAMES):
        text += f" Not tested over seeds: {untested}."
    return text


def _other_pairs(findings: Findings) -> list[str]:
    """The pairs without the baseline: a sentence each, or of many pairs how many differ significantly."""
    data = findings.comparison
    if data is None:
        return []
    data = data[data["at"] == BEST]
    others = data[(data["a"] != findings.baseline) & (data["b"] != findings.baseline)]
    if len(others) <= MOST_SENTENCES:
        pairs = [(row["b"], against(others.loc[[index]], row["b"])) for index, row in others.iterrows()]
        return [_difference(frame.iloc[0].to_dict(), other, findings) for other, frame in pairs]
    tested, significant = (
        int(rows.sum()) for rows in (others["p_t_holm"].notna(), others["p_t_holm"] <= ALPHA)
    )
    return [
        f"Of {len(others)} other pairs of groups, {significant} differ{'s' if significant == 1 else ''} "
        f"significantly ({tested} tested, {_test(findings)})."
    ]


def _test(findings: Findings) -> str:
    """The test and its correction."""
    family = findings.family
    return f"t test, Holm's correction over {family} tests" if family > 1 else "t test"


def _p(p: float) -> str:
    text = p_value(p)
    return f"p {text.replace('<', '< ')}" if text.startswith("<") else f"p = {text}"


def _by_example(group: str, other: str, findings: Findings) -> str:
    """The comparison of two groups by example, if there are prediction files."""
    examples = findings.examples
    if examples is None:
        return ""
    for a, b, sign in ((group, other, 1), (other, group, -1)):
        pair = examples[(examples["a"] == a) & (examples["b"] == b)]
        if len(pair):
            last = pair.iloc[-1]  # the mean, where there are several seeds
            low, high = sorted((sign * last["low"], sign * last["high"]))
            return (
                f"; by example, the difference is in {signed_interval(low, high, 'accuracy')} points "
                f"({PERCENT} interval over test sets)"
            )
    return ""


def _chosen_on_reported(findings: Findings) -> str:
    query = findings.query
    if query.subset != query.reported:
        return ""
    return CHOSEN_ON_TEST if query.reported == REPORTED else CHOSEN_ON_REPORTED.format(query.reported)


def _few_seeds(at_best: pd.DataFrame) -> list[str]:
    sentences = []
    several = at_best.loc[at_best["n"] > 1, "n"]
    if len(several) and several.min() < FEW_SEEDS:
        sentences.append(FEW.format(int(several.min())))
    single = [_name(row) for row in at_best[at_best["n"] == 1].to_dict("records")]
    if single:
        sentences.append(SINGLE.format(enumerate_some(single, MOST_NAMES)))
    return sentences


def _overlap(findings: Findings) -> str:
    overlap = findings.selection.overlap
    if overlap is None or not overlap.lines:
        return ""
    percentage = 100 * len(overlap.lines) / overlap.size
    return (
        f"{len(overlap.lines):,} of the {overlap.size:,} {overlap.split} examples ({percentage:.1f} %) "
        f"occur verbatim in {overlap.other}; the scores include them."
    )


def _diverged(findings: Findings) -> str:
    if not (names := enumerate_some(findings.selection.diverged, MOST_NAMES)):
        return ""
    return f"Excluded, without a finite value at a best checkpoint (diverged): {names}."


def _at_best(findings: Findings) -> pd.DataFrame:
    return findings.selection.spread[findings.selection.spread["at"] == BEST]


def _relabelled(sentences: list[str], findings: Findings) -> list[str]:
    return [findings.query.study.relabel(sentence) for sentence in sentences if sentence]


def _name(row: dict) -> str:
    return f"{row['arm']}/{row['init']}"


def overview_table(findings: Findings) -> Table:
    """Each group at its best checkpoints, with its mean, interval and difference to the baseline."""
    spread, differences, query = findings.selection.spread, findings.differences, findings.query
    baseline, family, metric, subset = findings.baseline, findings.family, query.metric, query.reported
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
        query.note,
        f"{PERCENT} over seeds: Student's t interval for the mean; none for a single seed or equal seeds.",
    ]
    if differences is not None:
        columns = ["group", "difference", "low", "high", "p"]
        data = data.merge(differences[columns], on="group", how="left")
        cells = [_difference_cells(row, metric, baseline) for row in data.to_dict("records")]
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
            metric=metric, subset=subset, level=LEVEL, baseline=baseline, best_checkpoint=query.note
        ),
        shown=shown,
        groups=groups,
        means=tuple(
            Mean(row, "mean", group, BEST, subset, metric, mean, tested=False)
            for row, (group, mean) in enumerate(zip(groups, data["mean"], strict=True))
        ),
    )


def _difference_cells(row: dict, metric: str, baseline: str | None) -> tuple[str, str]:
    """The cells of the difference of a group, with its interval, and of its p-value."""
    if row["group"] == baseline:
        return BASELINE, ""
    if math.isnan(row["difference"]):  # the pair is not in the family
        return "–", "–"
    p = NOT_TESTED if math.isnan(row["p"]) else p_value(row["p"])
    ends = "" if math.isnan(row["low"]) else f" {signed_interval(row['low'], row['high'], metric)}"
    return f"{signed(row['difference'], metric)}{ends}", p
