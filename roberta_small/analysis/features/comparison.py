"""Comparisons of groups: over seeds, the seeds needed, and example by example; the command `compare`."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import pandas as pd

from roberta_small.analysis.compare import ALPHA, EXACT_UP_TO, PERMUTATIONS, POWER, compare_groups
from roberta_small.analysis.features.seeds import AT, left_out_notes
from roberta_small.analysis.predictions import BOOTSTRAP, compare_predictions
from roberta_small.analysis.published import reference_table
from roberta_small.analysis.query import Query, Study
from roberta_small.analysis.scoring import BEST
from roberta_small.analysis.selection import Selection, select
from roberta_small.common.errors import UserError, enumerate_some
from roberta_small.common.files import escaped
from roberta_small.common.metrics import ACCURACIES, cut_notes, label, number
from roberta_small.common.statistics import DRAWS, LEVEL, SEED
from roberta_small.common.tables import PERCENT, Table, p_value, signed, signed_interval, whole

logger = logging.getLogger(__name__)
ACCURACY = "accuracy"
DESIGNS = {
    "paired": "paired: n pairs of runs of equal seed; t interval and t test of their differences.",
    "unpaired": "unpaired (n as 3+3): Welch's t interval and test.",
}
OTHER_TESTS = {
    "paired": "paired, rank: Wilcoxon's signed ranks; perm.: sign flips.",
    "unpaired": "unpaired, rank: Mann and Whitney; perm.: relabelling.",
}
"""Notes on columns that only the whole table has."""
TESTS = {"t": "t", "rank": "rank", "perm.": "permutation"}
NO_VARIATION = (
    "Where the difference is the same in every example, for example if both are always right, the bootstrap "
    "interval has no width: the one shown follows from Wilson's interval for the fraction of such examples."
)


def compare_selected(source: str, query: Query, pattern: str | None = None) -> tuple[Study, list[Table]]:
    """The study of the runs below `source`, and the tables of `compare`; groups may be in other folders.

    Raises `UserError` as `select`, and if there is nothing to compare.
    """
    selection = select(source, query, pattern=pattern, folders=True)
    study = selection.study
    pairs = pairs_of(study)
    tables = _group_tables(selection, pairs, pattern) if pairs else []
    if selection.reference is not None:
        tables.append(reference_table(selection.reference, selection.reference_name, study.note))
    return study, tables


def pairs_of(study: Study) -> Sequence[tuple[str, str]]:
    """The pairs to compare; none for published results alone."""
    query = study.query
    if query.pairs and {"groups", "pairs"} <= set(query.options):
        raise UserError("--groups and --pair: give all groups to compare pairwise, or single pairs")
    if query.pairs:
        return query.pairs
    if not (query.groups or query.exclude or query.baseline or query.reference):
        raise UserError(
            "compare: give two groups (--groups A B), a file of published results (--reference FILE), or "
            f"both; there are {enumerate_some(study.known, 20)}"
        )
    if query.groups:
        groups = study.ordered(name for name in query.groups if name not in query.exclude)
    else:
        groups = list(study.selected) if query.exclude or query.baseline else []
    if query.baseline:
        groups = [*(group for group in groups if group != query.baseline), query.baseline]
    if len(groups) == 1:
        raise UserError(
            f"--groups: '{groups[0]}' is a single group; compare at least two of {', '.join(study.known)}"
        )
    if query.baseline:
        return [(group, query.baseline) for group in groups[:-1]]
    return list(combinations(groups, 2))


def _group_tables(selection: Selection, pairs: Sequence[tuple[str, str]], pattern: str | None) -> list[Table]:
    """Comparison over seeds, seeds needed, and comparison by example if there are prediction files."""
    study = selection.study
    # In another folder: the same metrics and splits, and all groups with their own names.
    elsewhere = replace(
        study.query, metric=study.metric, by=study.by, choose_on=study.choose_on, split=study.split,
        groups=(), exclude=(), order=(), baseline=None, pairs=(), labels={}, reference=None,
    )  # fmt: skip
    values, predictions, left_out = [selection.values], [selection.predictions], [*selection.diverged]
    for folder in dict.fromkeys(name.rpartition(":")[0] for pair in pairs for name in pair if ":" in name):
        other = select(folder, elsewhere, pattern=pattern)
        prefix = f"{escaped(folder)}:"
        values.append(other.values.assign(group=prefix + other.values["group"]))
        predictions.append(other.predictions.assign(group=prefix + other.predictions["group"]))
        left_out += [prefix + name for name in other.diverged]
    pairs = [(escaped(a), escaped(b)) for a, b in pairs]
    data = compare_groups(
        pd.concat(values, ignore_index=True), pairs=pairs, at=study.points(), pairing=study.query.pairing,
        detect=study.difference, lower=study.lower, metric=study.metric,
    )  # fmt: skip
    left_out = [name for name in left_out if any(name.rpartition("/")[0] in pair for pair in pairs)]
    tables = [comparison_table(data, study, left_out=left_out), plan_table(data, study.metric)]
    if study.metric in ACCURACIES:
        tables += examples_tables(pd.concat(predictions, ignore_index=True), pairs, study.split)
    return tables


def examples_tables(predictions: pd.DataFrame, pairs: Sequence[tuple[str, str]], split: str) -> list[Table]:
    """The table of `compare_predictions` of all pairs; empty, and a warning, where nothing can be paired."""
    frames = []
    for a, b in pairs:
        try:
            frames += [frame for frame in [compare_predictions(predictions, a, b)] if len(frame)]
        except UserError as error:
            logger.warning("%s", error)
    if not frames:
        return []
    data = pd.concat(frames, ignore_index=True)
    return [examples_table(data.fillna({"interval": BOOTSTRAP}) if "interval" in data else data, split)]


def comparison_table(data: pd.DataFrame, study: Study, *, left_out: Sequence[str] = ()) -> Table:
    """Differences, intervals and tests of the frame of `compare_groups`; `left_out` as in `spread_table`."""
    metric, subset = study.metric, study.split
    family, one_point = len(data), data["at"].nunique() == 1
    p_columns = {}
    for name, key in TESTS.items():
        p_columns[f"p {name}"] = data[f"p_{key}"].map(p_value)
        if family > 1:
            p_columns[f"{name} Holm"] = data[f"p_{key}_holm"].map(p_value)
    rows = data.to_dict("records")
    shown = pd.DataFrame(
        {
            **data[["a", "b", "at", "design"]].rename(columns={"a": "A", "b": "B"}),
            "n": [
                f"{row['n_a']}+{row['n_b']}" if row["design"] == "unpaired" else str(row["n_a"])
                for row in rows
            ],
            "mean A": [number(x, metric) for x in data["mean_a"]],
            "mean B": [number(x, metric) for x in data["mean_b"]],
            "A − B": [signed(x, metric) for x in data["difference"]],
            PERCENT: [signed_interval(row["low"], row["high"], metric) for row in rows],
            **p_columns,
            "P(A beats B)": ["–" if math.isnan(p) else f"{p:.2f}" for p in data["p_a_beats_b"]],
        }
    )
    dropped = [
        f"Excluded, without a pair: {row[side]}, seeds {row[f'dropped_{side}']}."
        for row in rows
        for side in ("a", "b")
        if row[f"dropped_{side}"]
    ]
    return Table(
        name="comparison",
        caption=f"{subset.capitalize()} {label(metric)}{_at(data) if one_point else ''}: A against B",
        notes=(
            study.note,
            "All tests are two-sided." if one_point else f"{AT} All tests are two-sided.",
            *(DESIGNS[design] for design in dict.fromkeys(data["design"])),
            *cut_notes(data["low"], data["high"], metric, difference=True),
            *_holm_notes(data),
            *dict.fromkeys(dropped),
            *left_out_notes(left_out),
            *_floor_notes(data),
            "The inference is over seeds on this test set, not over test sets.",
        ),
        data=data.assign(metric=metric, subset=subset, level=LEVEL, best_checkpoint=study.note),
        shown=shown,
        wide=(
            *(("at",) if one_point else ()), "design", "mean A", "mean B",
            *(column for column in p_columns if column != ("t Holm" if family > 1 else "p t")),
            "P(A beats B)",
        ),
        wide_notes=(
            *(OTHER_TESTS[design] for design in dict.fromkeys(data["design"])),
            f"perm. is exact up to {EXACT_UP_TO:,} permutations and draws {PERMUTATIONS:,} beyond.",
            "P(A beats B): over all pairs of runs, a tie counts half.",
        ),
    )  # fmt: skip


def plan_table(data: pd.DataFrame, metric: str) -> Table:
    """The number of seeds needed, from the frame of `compare_groups`."""
    one_point = data["at"].nunique() == 1
    detect = number(data["detect"].iloc[0], metric)
    columns = ["a", "b", "at", "design", "n_a", "n_b", "std", "std_low", "std_high", "detect"]
    columns += ["seeds_needed", "seeds_needed_low", "seeds_needed_high", "seeds_more"]
    shown = pd.DataFrame(
        {
            **data[["a", "b", "at", "design"]].rename(columns={"a": "A", "b": "B"}),
            "std": [number(x, metric) for x in data["std"]],
            "seeds needed": data["seeds_needed"].map(whole),
            PERCENT: [
                f"[{whole(low)}, {whole(high)}]" if low == low else "–"
                for low, high in zip(data["seeds_needed_low"], data["seeds_needed_high"], strict=True)
            ],
            "more than now": data["seeds_more"].map(whole),
        }
    )
    return Table(
        name="plan",
        caption=f"Seeds needed to find a difference of {detect} in {label(metric)}"
        f"{_at(data) if one_point else ''}",
        notes=(
            f"Power of the two-sided t test, noncentral t: alpha {ALPHA}, power {POWER}. "
            "paired: pairs of runs, std of their differences (ddof 1); "
            "unpaired: runs in each group, std pooled.",
            f"{PERCENT}: the same with both ends of the interval of std (chi-square), wide with few seeds.",
        ),
        data=data[columns].assign(metric=metric, alpha=ALPHA, power=POWER),
        shown=shown,
        wide=("at", "design") if one_point else ("design",),
    )


def examples_table(data: pd.DataFrame, split: str) -> Table:
    """The concatenated frames of `compare_predictions` as a table."""
    rows = data.to_dict("records")
    shown = pd.DataFrame(
        {
            "A": data["a"],
            "B": data["b"],
            "seed": data["seed"].astype(str),
            "examples": data["n"].map(whole),
            "only A right": data["only_a"].map(whole),
            "only B right": data["only_b"].map(whole),
            "p McNemar": data["p_mcnemar"].map(p_value),
            "Holm": data["p_mcnemar_holm"].map(p_value),
            "A − B": [signed(x, ACCURACY) for x in data["difference"]],
            f"bootstrap {PERCENT}": [signed_interval(row["low"], row["high"], ACCURACY) for row in rows],
        }
    )
    return Table(
        name="examples",
        caption=f"Accuracy (%) on {split}, example by example: A against B",
        notes=(
            "p McNemar: exact, two-sided, of two runs rather than two recipes; "
            "Holm: over the seeds of each two groups.",
            f"bootstrap: percentiles of {DRAWS:,} test sets drawn from the examples, the same for A and B, "
            f"seed {SEED}; mean: of the accuracies of all seeds.",
            *([NO_VARIATION] if "interval" in data else []),
            "The inference is over test examples for these runs; the comparison over seeds is over runs.",
        ),
        data=data.assign(split=split, level=LEVEL, draws=DRAWS),
        shown=shown,
        wide=("examples", "only A right", "only B right"),
    )


def _at(data: pd.DataFrame) -> str:
    """The only point of a comparison."""
    at = data["at"].iloc[0]
    return " at the best checkpoint" if at == BEST else f" after epoch {at}"


def _holm_notes(data: pd.DataFrame) -> list[str]:
    """The number of rows in Holm's correction of each test: those with a p-value."""
    if len(data) < 2:
        return []
    made = {name: int(data[f"p_{key}"].count()) for name, key in TESTS.items()}
    if max(made.values()) < 2:
        return ["Holm: no adjustment, because no test applies to more than one row."]
    if len(set(made.values())) == 1:
        return [f"Holm: adjusted over the {made['t']} rows, for each test."]
    each = ", ".join(f"{name} {number}" for name, number in made.items())
    return [f"Holm: adjusted, for each test, over the rows to which it applies ({each})."]


def _floor_notes(data: pd.DataFrame) -> list[str]:
    """Notes on permutation tests that cannot be significant, without or with Holm's correction."""
    notes, family = [], int(data["p_permutation"].notna().sum())
    for (design, n_a, n_b), rows in data.groupby(["design", "n_a", "n_b"]):
        if min(n_a, n_b) < 2:
            notes.append(
                "A single run has no variance over seeds, so no test over seeds applies to it; "
                "prediction files allow a comparison over examples."
            )
            continue
        floor, adjusted = rows["p_floor"].min(), min(1.0, rows["p_floor"].min() * family)
        runs = f"{n_a} pairs" if design == "paired" else f"{n_a} and {n_b} runs"
        if floor > ALPHA:
            notes.append(
                f"With {runs}, the permutation and rank tests cannot give p < {floor:.2g}. The t test "
                "can, but it assumes normality, which cannot be checked with so few runs."
            )
        elif adjusted > ALPHA:
            notes.append(
                f"With {runs}, the permutation and rank tests cannot give p < {floor:.2g}, "
                f"or p < {adjusted:.2g} after Holm's correction over {family} rows; compare fewer groups."
            )
    return list(dict.fromkeys(notes))
