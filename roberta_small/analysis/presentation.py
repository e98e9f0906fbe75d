"""Tables as a study presents them: order, labels, width, captions, best means in bold, significance marks.

`Feature` is how a table or figure takes part in the commands.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from roberta_small.analysis.compare import against, compare_groups
from roberta_small.analysis.study import Study, names_of
from roberta_small.common.cli import nearest
from roberta_small.common.errors import UserError, count
from roberta_small.common.metrics import Direction, label, lower_is_better
from roberta_small.common.tables import Mean, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEVELS = ((0.001, "***"), (0.01, "**"), (0.05, "*"))
"""Largest p-value of each mark."""
PAIR = ("A", "B")
"""Columns with the names of two compared groups."""
GROUP_COLUMNS = ("arm", "init")
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


Draw = Callable[[Any], Iterator[tuple[str, "Figure"]]]
"""Of a `Selection`, or of a `Suite`; yields (name, figure) pairs."""


@dataclass(frozen=True)
class Feature:
    """What a name in --table or --figure stands for."""

    text: str
    """One line for --help."""
    tables: tuple[str, ...] = ()
    """The names of its tables; some may be missing, depending on the runs."""
    compute: Callable[[Any], Computed] | None = None
    """Of a `Selection`, or of a `Suite`."""
    draw: Draw | None = None
    several: bool = False
    """Whether it reads several data sets."""


def present(
    tables: Sequence[Table],
    study: Study,
    values: pd.DataFrame | None = None,
    *,
    family: pd.DataFrame | None = None,
    wide: bool | None = None,
    directions: Mapping[str, Direction] | None = None,
) -> list[Table]:
    """The tables as `study` presents them.

    `values` is the frame of `scores` from which significance marks are computed, with a correction over the
    tests of each table; `family` is a frame of `compare_groups` with which the marks agree instead. Without
    both there are no marks.
    `wide` overrides that of the study; `directions` are those of metrics whose name does not define it.
    """
    return present_all([Computed(tables, values)], study, family=family, wide=wide, directions=directions)


def present_all(
    computed: Iterable[Computed],
    study: Study,
    *,
    family: pd.DataFrame | None = None,
    wide: bool | None = None,
    directions: Mapping[str, Direction] | None = None,
) -> list[Table]:
    """As `present`, for tables with marks from different scores."""
    pairs = [(table, one.values) for one in computed for table in one.tables]
    presented = []
    for table, values in pairs:
        table = _ordered(table, study)
        if study.baseline is not None and (family is not None or values is not None):
            table = _marked(table, study.baseline, values, family, study)
        if study.bold:
            best = best_means(table.means, directions or {})
            table = replace(table, bold=frozenset((mean.row, mean.column) for mean in best))
        table = table if (study.wide if wide is None else wide) else table.narrow()
        presented.append(_titled(_labelled(table, study), study))
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


def best_means(means: Iterable[Mean], directions: Mapping[str, Direction]) -> list[Mean]:
    """The best of the means of the same metric, subset and point, where there are several."""
    by_point: dict[tuple[str, str, str], list[Mean]] = {}
    for mean in means:
        if not math.isnan(mean.value):
            by_point.setdefault((mean.at, mean.subset, mean.metric), []).append(mean)
    found = []
    for (_, _, metric), candidates in by_point.items():
        extreme = min if lower_is_better(metric, directions.get(metric, "auto")) else max
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
    p_of = _p_values(values, baseline, means) if family is None else _p_values_of(family, baseline)
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


def _p_values(values: pd.DataFrame, baseline: str, means: Sequence[Mean]) -> dict[tuple[str, str], float]:
    """(group, point) -> p-value of the t test against the baseline, with Holm's correction over all."""
    known = set(values[["group", "at"]].itertuples(index=False, name=None))
    means = [mean for mean in means if {(mean.group, mean.at), (baseline, mean.at)} <= known]
    groups = list(dict.fromkeys(mean.group for mean in means if mean.group != baseline))
    points = list(dict.fromkeys(mean.at for mean in means))
    if not groups:
        return {}
    needed = values[values["group"].isin([baseline, *groups]) & values["at"].isin(points)]
    pairs = [(group, baseline) for group in groups]
    return _p_values_of(compare_groups(needed, [baseline, *groups], pairs=pairs, at=points), baseline)


def _p_values_of(family: pd.DataFrame, baseline: str) -> dict[tuple[str, str], float]:
    """(group, point) -> corrected p-value of the t test against the baseline."""
    rows = against(family, baseline)[["group", "at", "p"]].itertuples(index=False, name=None)
    return {(group, at): p for group, at, p in rows}


def _labelled(table: Table, study: Study) -> Table:
    """Labels instead of names of groups, and one column instead of `arm` and `init`."""
    if not study.labels:
        return table
    shown, names = table.shown, {}
    if table.groups and set(GROUP_COLUMNS) <= set(shown):
        place = shown.columns.get_loc("arm")
        shown = shown.drop(columns=list(GROUP_COLUMNS))
        shown.insert(place, HEADING, [study.label(group) for group in table.groups])
    elif table.groups and HEADING in shown:
        shown = shown.assign(**{HEADING: [study.label(group) for group in table.groups]})
    for column in shown:
        if column in PAIR:
            shown = shown.assign(**{column: shown[column].map(study.label)})
        elif study.label(column) != column:
            names[column] = study.label(column)
    return replace(
        table,
        shown=shown.rename(columns=names),
        notes=tuple(map(study.relabel, table.notes)),
        wide_notes=tuple(map(study.relabel, table.wide_notes)),
        bold=frozenset((row, names.get(column, column)) for row, column in table.bold),
        data=_with_labels(table.data, study),
    )


def _with_labels(data: pd.DataFrame, study: Study) -> pd.DataFrame:
    """The frame with columns of labels at its end."""
    groups = {column: data[column] for column in ("a", "b") if column in data}
    if set(GROUP_COLUMNS) <= set(data):
        groups[HEADING] = names_of(data)
    return data.assign(**{LABELLED[name]: column.map(study.label) for name, column in groups.items()})


def _titled(table: Table, study: Study) -> Table:
    """The table with caption and LaTeX label of the study."""
    return replace(
        table,
        caption=study.captions.get(table.name, table.caption),
        latex_label=study.latex_labels.get(table.name, table.latex_label),
    )
