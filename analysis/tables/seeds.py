"""Tables of statistics over seeds: intervals, comparisons, number of seeds needed, best of n seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from roberta_small.analysis.stats.compare import EXACT_UP_TO, PERMUTATIONS
from roberta_small.analysis.stats.power import ALPHA, POWER
from roberta_small.analysis.stats.spread import BEST
from roberta_small.analysis.tables.runs import STD_NOTES
from roberta_small.common.errors import enumerate_some
from roberta_small.common.metrics import ACCURACIES, label, number
from roberta_small.common.statistics import DRAWS, LEVEL, SEED
from roberta_small.common.tables import (
    PERCENT,
    Mean,
    Table,
    interval,
    p_value,
    signed,
    signed_interval,
    whole,
)

FEW = 20
"""With fewer seeds the percentile bootstrap is noticeably too narrow."""
SINGLE = "With a single run, there is no interval over seeds, only that over test examples."
BEYOND = (
    "t below 0 or above 100: the t interval ignores the bounds of percentages, and the seeds are too few and "
    "too different to be informative."
)
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
AT = 'at: epoch, or "best" checkpoint.'


def spread_table(
    data: pd.DataFrame,
    metric: str,
    subset: str,
    best_note: str,
    *,
    ddof: int,
    test_size: int | None,
    left_out: Sequence[str] = (),
) -> Table:
    """The frame of `spread_over_seeds` as a table; `left_out` are the runs of `diverged`."""
    shown = pd.DataFrame(
        {
            "arm": data["arm"],
            "init": data["init"],
            "at": data["at"],
            "n": data["n"].astype(str),
            **{
                name: [number(x, metric) for x in data[name]]
                for name in ("mean", "std", "median", "min", "max")
            },
            **{
                f"{name} {PERCENT}": [
                    interval(low, high, metric)
                    for low, high in zip(data[f"{key}_low"], data[f"{key}_high"], strict=True)
                ]
                for name, key in (("t", "t"), ("bootstrap", "bootstrap"), ("examples", "examples"))
            },
            "wider": data["wider"].fillna("–"),
        }
    )
    groups = tuple(data["arm"] + "/" + data["init"])
    if data["examples_low"].isna().all():
        shown = shown.drop(columns=[f"examples {PERCENT}", "wider"])
        examples = (
            "The interval due to the size of the test set is omitted: it requires an accuracy and "
            "--test-size, --audit, prediction files or the data folder that the manifests record."
        )
    else:
        examples = (
            f"examples: Wilson's {PERCENT} interval for one run of that mean on {test_size:,} examples of "
            f"{subset}. All seeds are evaluated on the same examples, so more seeds do not narrow this "
            "interval."
        )
    several = data.loc[data["n"] > 1, "n"]
    fewest = int(several.min()) if len(several) else FEW
    few = (
        f"With {fewest} seeds the bootstrap interval is too narrow, because it lies within [min, max]: for "
        "normally distributed values, it covers the mean in 76 % of cases with 3 seeds and in 91 % with 10."
    )
    return Table(
        name="seeds",
        caption=f"{subset.capitalize()} {label(metric)} over seeds",
        notes=(
            best_note,
            f"{AT} n: seeds. std: {STD_NOTES[ddof]}.",
            f"t: Student's {PERCENT} interval for the mean over seeds (std with ddof 1).",
            *([BEYOND] if metric in ACCURACIES and _beyond(data) else []),
            *([SINGLE] if (data["n"] == 1).any() else []),
            examples,
            *_left_out(left_out),
        ),
        data=data.assign(
            metric=metric,
            subset=subset,
            ddof=ddof,
            level=LEVEL,
            test_size=test_size,
            draws=DRAWS,
            best_checkpoint=best_note,
        ),
        shown=shown,
        groups=groups,
        means=tuple(
            Mean(row, "mean", group, at, subset, metric, mean)
            for row, (group, at, mean) in enumerate(zip(groups, data["at"], data["mean"], strict=True))
        ),
        wide=("median", "min", "max", f"bootstrap {PERCENT}", "wider"),
        wide_notes=(
            f"bootstrap: percentiles of {DRAWS:,} resampled means, seed {SEED}.",
            *([few] if fewest < FEW else []),
            *(["wider: whether the t or the examples interval is wider."] if "wider" in shown else []),
        ),
    )


def comparison_table(
    data: pd.DataFrame, metric: str, subset: str, best_note: str, *, left_out: Sequence[str] = ()
) -> Table:
    """Differences, intervals and tests of the frame of `compare_groups`; `left_out` as in `spread_table`."""
    family, one_point = len(data), data["at"].nunique() == 1
    p_columns = {}
    for name, key in TESTS.items():
        p_columns[f"p {name}"] = data[f"p_{key}"].map(p_value)
        if family > 1:
            p_columns[f"{name} Holm"] = data[f"p_{key}_holm"].map(p_value)
    rows = data.to_dict("records")
    shown = pd.DataFrame(
        {
            "A": data["a"],
            "B": data["b"],
            "at": data["at"],
            "design": data["design"],
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
    return Table(
        name="comparison",
        caption=f"{subset.capitalize()} {label(metric)}{_at(data) if one_point else ''}: A against B",
        notes=(
            best_note,
            "All tests are two-sided." if one_point else f"{AT} All tests are two-sided.",
            *(DESIGNS[design] for design in dict.fromkeys(data["design"])),
            *_holm_notes(data),
            *_dropped_notes(rows),
            *_left_out(left_out),
            *_floor_notes(data),
            "The inference is over seeds on this test set, not over test sets.",
        ),
        data=data.assign(metric=metric, subset=subset, level=LEVEL, best_checkpoint=best_note),
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
            **{name: data[key] for name, key in (("A", "a"), ("B", "b"), ("at", "at"), ("design", "design"))},
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


def expected_table(
    data: pd.DataFrame, metric: str, by: str, subset: str, best_note: str, *, reported: str = "test",
    left_out: Sequence[str] = (),
) -> Table:  # fmt: skip
    """The frame of `expected_best_of_seeds` as a table; `left_out` as in `spread_table`."""
    shown = pd.DataFrame(
        {
            "arm": data["arm"],
            "init": data["init"],
            "seeds tried": [f"{row.seeds_tried} of {row.seeds}" for row in data.itertuples()],
            f"best {label(by)} on {subset}": [number(x, by) for x in data["valid"]],
            f"its {label(metric)} on {reported}": [number(x, metric) for x in data["test"]],
        }
    )
    return Table(
        name="expected",
        caption="Expected result of the best of n seeds",
        notes=(
            best_note,
            "Mean over all subsets of n of these runs, without replacement (Tang et al. 2020): "
            "unbiased, unlike drawing with replacement (Dodge et al. 2019).",
            "If n is near the number of runs, there are few subsets; "
            "the last row is the best run alone (the mean of equally good ones).",
            *_left_out(left_out),
        ),
        data=data.assign(
            metric=metric, by=by, subset=subset, estimator="without replacement", best_checkpoint=best_note
        ),
        shown=shown,
        groups=tuple(data["arm"] + "/" + data["init"]),
    )


def _at(data: pd.DataFrame) -> str:
    """The only point of a comparison."""
    at = data["at"].iloc[0]
    return " at the best checkpoint" if at == BEST else f" after epoch {at}"


def _beyond(data: pd.DataFrame) -> bool:
    """Whether a t interval extends below 0 or above 100."""
    return bool(((data["t_low"] < 0) | (data["t_high"] > 100)).any())


def _left_out(names: Sequence[str]) -> list[str]:
    """A note that lists the diverged runs."""
    if not names:
        return []
    return [
        f"Without a finite value at a best checkpoint: {enumerate_some(names, 10)}. "
        "The statistics exclude these diverged runs."
    ]


def _holm_notes(data: pd.DataFrame) -> list[str]:
    """The number of rows in Holm's correction of each test: those with a p-value."""
    if len(data) < 2:
        return []
    made = {name: int(data[f"p_{key}"].notna().sum()) for name, key in TESTS.items()}
    if max(made.values()) < 2:
        return ["Holm: no adjustment, because no test applies to more than one row."]
    if len(set(made.values())) == 1:
        return [f"Holm: adjusted over the {made['t']} rows, for each test."]
    each = ", ".join(f"{name} {number}" for name, number in made.items())
    return [f"Holm: adjusted, for each test, over the rows to which it applies ({each})."]


def _dropped_notes(rows: list[dict]) -> list[str]:
    """The unpaired runs that a paired comparison excludes, once for each group."""
    notes = {}
    for row in rows:
        for side in ("a", "b"):
            if seeds := row[f"dropped_{side}"]:
                notes[row[side], seeds] = f"Excluded, without a pair: {row[side]}, seeds {seeds}."
    return list(notes.values())


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
