"""Tables as a study presents them: order, labels, width, captions, best means in bold, significance marks."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from roberta_small.analysis.compare import against, compare_groups
from roberta_small.analysis.query import Study, names_of
from roberta_small.analysis.read.long_table import GROUP
from roberta_small.analysis.scoring import BEST, summarize
from roberta_small.common.cli import nearest
from roberta_small.common.errors import UserError, count
from roberta_small.common.metrics import label, lower_is_better
from roberta_small.common.tables import Mean, Table, mean_std_cell

LEVELS = ((0.001, "***"), (0.01, "**"), (0.05, "*"))
"""Largest p-value of each mark."""
PAIR = ("A", "B")
"""Columns with the names of two compared groups."""
HEADING = "group"
LABELLED = {HEADING: "group_label", "a": "a_label", "b": "b_label"}
"""Columns of labels that are added to CSV and JSON."""


@dataclass(frozen=True)
class Computed:
    """Tables, and the frame of `scores` from which significance marks in them are computed, if any."""

    tables: Sequence[Table]
    values: pd.DataFrame | None = None

    def only(self, names: Iterable[str]) -> Computed:
        """The tables of these names; raises `UserError` if one is missing."""
        by_name = {table.name: table for table in self.tables}
        for name in names:
            if name not in by_name:
                raise UserError(
                    f"--table {name}: no such table here{nearest(name, by_name)}; available: "
                    f"{', '.join(by_name)}"
                )
        return replace(self, tables=[by_name[name] for name in dict.fromkeys(names)])


def with_means(
    shown: pd.DataFrame, runs: pd.DataFrame, averaged: Mapping[str, tuple[str, str, str]], ddof: int = 1
) -> tuple[pd.DataFrame, tuple[str, ...], tuple[Mean, ...]]:
    """`shown` with a row of means below the runs of each arm and init, the group of each row, and the means.

    `shown` has a row for each one of `runs`. `averaged`: heading -> column of `runs`, its metric and subset.
    """
    statistics = {
        heading: summarize(runs, GROUP, column, ddof=ddof).set_index(GROUP)
        for heading, (column, _, _) in averaged.items()
    }
    parts, groups, means = [], list[str](), list[Mean]()
    for (arm, init), of_group in runs.groupby(GROUP):
        last = {"arm": arm, "init": init, "seed": "mean ± std (n)"}
        groups += [f"{arm}/{init}"] * (len(of_group) + 1)
        for heading, (_, metric, subset) in averaged.items():
            found = statistics[heading].loc[(arm, init)]
            last[heading] = mean_std_cell(found["mean"], found["std"], metric, found["n"])
            means.append(Mean(len(groups) - 1, heading, groups[-1], BEST, subset, metric, found["mean"]))
        parts += [shown.loc[of_group.index], pd.DataFrame([last])]
    return pd.concat(parts, ignore_index=True).fillna(""), tuple(groups), tuple(means)


def present(
    tables: Sequence[Table],
    study: Study,
    values: pd.DataFrame | None = None,
    *,
    family: pd.DataFrame | None = None,
    wide: bool | None = None,
) -> list[Table]:
    """The tables as `study` presents them.

    `values` is the frame of `scores` from which significance marks are computed, with a correction over the
    tests of each table; `family` is a frame of `compare_groups` with which the marks agree instead. Without
    both there are no marks.
    `wide` overrides that of the query.
    """
    query = study.query
    presented = []
    for table in tables:
        table = _ordered(table, study)
        if query.baseline is not None and (family is not None or values is not None):
            table = _marked(table, query.baseline, values, family, study)
        if query.bold:
            best = _best_means(table.means, study)
            table = replace(table, bold=frozenset((mean.row, mean.column) for mean in best))
        table = table if (query.wide if wide is None else wide) else table.narrow()
        presented.append(
            replace(
                _labelled(table, study),
                caption=query.captions.get(table.name, table.caption),
                latex_label=query.latex_labels.get(table.name, table.latex_label),
            )
        )
    return presented


def _ordered(table: Table, study: Study) -> Table:
    """Rows, or columns that are groups, in the order of the study."""
    table = replace(table, data=study.sorted(table.data))
    if table.groups:
        rank = {group: place for place, group in enumerate(study.ordered(table.groups))}
        rows = sorted(range(len(table.groups)), key=lambda row: rank[table.groups[row]])
        place = {row: index for index, row in enumerate(rows)}
        return replace(
            table,
            shown=table.shown.iloc[rows].reset_index(drop=True),
            groups=tuple(table.groups[row] for row in rows),
            means=tuple(mean._replace(row=place[mean.row]) for mean in table.means),
        )
    columns = [mean.column for mean in table.means if mean.column == mean.group]
    others = [column for column in table.shown if column not in columns]
    return replace(table, shown=table.shown[[*others, *study.ordered(columns)]])


def _best_means(means: Iterable[Mean], study: Study) -> list[Mean]:
    """The best of the means of the same metric, subset and point, where there are several."""
    by_point: dict[tuple[str, str, str], list[Mean]] = {}
    for mean in means:
        if not math.isnan(mean.value):
            by_point.setdefault((mean.at, mean.subset, mean.metric), []).append(mean)
    found = []
    for (_, _, metric), candidates in by_point.items():
        extreme = min if (study.lower if metric == study.metric else lower_is_better(metric)) else max
        best = extreme(mean.value for mean in candidates)
        if len(candidates) > 1:
            found += [mean for mean in candidates if math.isclose(mean.value, best, rel_tol=1e-9)]
    return found


def _marked(
    table: Table, baseline: str, values: pd.DataFrame | None, family: pd.DataFrame | None, study: Study
) -> Table:
    """The table with marks at the means that differ significantly from the baseline at the same point.

    `values` and `family` are of one metric on one subset; other means have no marks.
    """
    means = [mean for mean in table.means if mean.tested]
    compared = family
    if compared is None:
        assert values is not None
        known = set(values[["group", "at"]].itertuples(index=False, name=None))
        both = [mean for mean in means if {(mean.group, mean.at), (baseline, mean.at)} <= known]
        groups = list(dict.fromkeys(mean.group for mean in both if mean.group != baseline))
        points = list(dict.fromkeys(mean.at for mean in both))
        if not groups:
            return table
        values = values[values["group"].isin([baseline, *groups]) & values["at"].isin(points)]
        pairs = [(group, baseline) for group in groups]
        compared = compare_groups(values, pairs=pairs, at=points)
    rows = against(compared, baseline)[["group", "at", "p"]].itertuples(index=False, name=None)
    p_of = {(group, at): p for group, at, p in rows}
    means = [mean for mean in means if (mean.group, mean.at) in p_of]
    if not means:
        return table
    shown = table.shown.astype(object)
    for mean in means:
        p = p_of.get((mean.group, mean.at), math.nan)
        mark = next((mark for level, mark in LEVELS if p <= level), "")
        place = (mean.row, shown.columns.get_loc(mean.column))
        shown.iloc[place] = re.sub(r"^\S+", rf"\g<0>{mark}", shown.iloc[place])
    tested = sum(not math.isnan(p) for p in (p_of.values() if family is None else family["p_t"]))
    where = "this table" if family is None else "the comparison"
    marks = ", ".join(f"{mark} p ≤ {level:g}" for level, mark in reversed(LEVELS))
    note = (
        f"Marks: {label(means[0].metric)} on {means[0].subset} differs from that of {study.label(baseline)}: "
        f"{marks}. Two-sided t test over seeds (paired where at least two seeds are common, else Welch), "
        f"Holm's correction over the {count(tested, 'test')} of {where}. No mark: not significant, or "
        "fewer than two seeds."
    )
    return replace(table, shown=shown, notes=(*table.notes, note))


def _labelled(table: Table, study: Study) -> Table:
    """Labels instead of names of groups, and one column instead of `arm` and `init`."""
    if not study.query.labels:
        return table
    shown, names = table.shown, {}
    if table.groups and set(GROUP) <= set(shown):
        place = shown.columns.get_loc("arm")
        shown = shown.drop(columns=GROUP)
        shown.insert(place, HEADING, [study.label(group) for group in table.groups])
    elif table.groups and HEADING in shown:
        shown = shown.assign(**{HEADING: [study.label(group) for group in table.groups]})
    for column in shown:
        if column in PAIR:
            shown = shown.assign(**{column: shown[column].map(study.label)})
        elif study.label(column) != column:
            names[column] = study.label(column)
    labelled = {column: table.data[column] for column in ("a", "b") if column in table.data}
    if set(GROUP) <= set(table.data):
        labelled[HEADING] = names_of(table.data)
    added = {LABELLED[name]: column.map(study.label) for name, column in labelled.items()}
    return replace(
        table,
        shown=shown.rename(columns=names),
        notes=tuple(map(study.relabel, table.notes)),
        wide_notes=tuple(map(study.relabel, table.wide_notes)),
        bold=frozenset((row, names.get(column, column)) for row, column in table.bold),
        data=table.data.assign(**added),
    )
