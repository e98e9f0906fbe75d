"""From the cells of a label column to labels of one kind, one line of text for each example.

    single_label_classification   the class                       positif
    multi_label_classification    a JSON array of the classes     ["drôle", "long"]
    regression                    the number                      3.5

These lines are the files `text/SPLIT.label` of a data folder. The kind is that of --task, or else detected.
"""

from __future__ import annotations

import ast
import contextlib
import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from roberta_small.common.cli import nearest
from roberta_small.common.errors import UserError, count, enumerate_some
from roberta_small.common.label_kinds import KINDS, MULTI_LABEL, REGRESSION, SINGLE_LABEL, TASKS, LabelKind
from roberta_small.preprocess.labels import (
    alike_warnings,
    are_measurements,
    check_classes,
    checked_label,
    number,
    quoted,
    several_labels,
)

STRATA = 5
"""Number of ranges of numeric labels with the same number of examples, by which a split is stratified."""
FEW_VALUES = 5
"""Numeric labels with at most so many values are probably classes."""
FAR = 10
"""Distance from the mean, in standard deviations, from which on a numeric label is suspicious."""
TASK, SEPARATOR = "--task", "--label-separator"


@dataclass(frozen=True)
class Cell:
    """The label of an example as its file has it."""

    text: str
    source: str
    line: int

    @property
    def place(self) -> str:
        """Where it is, for messages."""
        return f"{self.source}, line {self.line}"


@dataclass(frozen=True)
class LabelOptions:
    """How the cells of labels are read; raises `UserError` for options that contradict each other."""

    task: str | None = None
    """The value of --task; None to detect it."""
    separator: str | None = None
    """Between the labels in a cell; None for lists and single labels."""

    def __post_init__(self) -> None:
        if self.task is not None and self.task not in TASKS:
            raise UserError(f"{TASK} {self.task}: unknown{nearest(self.task, TASKS)}; use {', '.join(TASKS)}")
        if self.separator is not None and not self.separator.strip():
            raise UserError(f"{SEPARATOR} {self.separator!r}: give a visible character such as ;")
        if self.separator is not None and self.kind not in (None, KINDS[MULTI_LABEL]):
            raise UserError(f"{SEPARATOR} {self.separator}: not with {TASK} {self.task}; omit one of them")

    @property
    def kind(self) -> LabelKind | None:
        """The kind of --task."""
        return None if self.task is None else TASKS[self.task]

    def given(self) -> dict[str, str]:
        """The options that are given, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}


def decide(cells: Sequence[str], options: LabelOptions, where: str) -> LabelKind:
    """The kind of labels: that of --task, multi-label with a separator, or else detected.

    Detected are lists (multi-label), and numbers with more values than classes have (regression). Raises
    `UserError` with `where` for cells that look like several labels with a separator between them.
    """
    if options.kind is not None:
        return options.kind
    if options.separator is not None or any(_as_list(cell) is not None for cell in set(cells)):
        return KINDS[MULTI_LABEL]
    counts = Counter(cells)
    if are_measurements(counts):
        return KINDS[REGRESSION]
    if found := several_labels(counts):
        label, separator = found
        raise UserError(
            f"{where}: '{label}' looks like several labels; for multi-label classification add "
            f"{SEPARATOR} '{separator}', for one class per row {TASK} {KINDS[SINGLE_LABEL].task}"
        )
    return KINDS[SINGLE_LABEL]


def parse(cell: Cell, kind: LabelKind, options: LabelOptions) -> str:
    """The line of an example; raises `UserError` with file, line and value for a label of another kind."""
    if kind.name == REGRESSION:
        return _number(cell)
    if kind.name == MULTI_LABEL:
        return as_line(_labels(cell, options.separator))
    return cell.text


def as_line(labels: Sequence[str]) -> str:
    """The line of an example with these classes."""
    return json.dumps(sorted(set(labels)), ensure_ascii=False)


def classes_in(line: str, kind: LabelKind) -> list[str]:
    """The classes in the line of an example: one, any number, or none of a regression."""
    if kind.name == MULTI_LABEL:
        return json.loads(line)
    return [line] if kind.has_classes else []


def read_line(line: str, kind: LabelKind, path: str, at: int) -> list[str] | float:
    """The classes of a line of a label file, or its number; raises `UserError` with file and line."""
    if kind.name == REGRESSION:
        return float(_number(Cell(line, path, at)))
    if kind.name == MULTI_LABEL:
        return _labels(Cell(line, path, at), None)
    return [checked_label(line, path, at)]


def _number(cell: Cell) -> str:
    try:
        value = number(cell.text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UserError(
            f"{cell.place}: label '{cell.text[:60]}' is not a finite number, as regression needs; correct or "
            f"remove the row, or choose another {TASK}"
        )
    return repr(value)


def _labels(cell: Cell, separator: str | None) -> list[str]:
    found = _as_list(cell.text)
    if found is None:
        found = [part for part in cell.text.split(separator) if part.strip()] if separator else [cell.text]
    for label in found:
        if not isinstance(label, str | int | float):
            raise UserError(
                f"{cell.place}: {label!r} in the list of labels is not a name; write a list of strings"
            )
    names = [label if isinstance(label, str) else json.dumps(label) for label in found]
    return [checked_label(name, cell.source, cell.line) for name in names]


def _as_list(text: str) -> list[object] | None:
    """The list that a cell contains as JSON or Python writes it; None if it is none."""
    if text.startswith("["):
        for parse_list in (json.loads, ast.literal_eval):
            with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
                if isinstance(found := parse_list(text), list):
                    return found
    return None


def check(lines: Sequence[str], kind: LabelKind, options: LabelOptions, where: str) -> list[str]:
    """Warnings about the labels of a data set, one line for each example.

    Raises `UserError` with `where` for labels of which nothing can be learned.
    """
    if kind.name == REGRESSION:
        return _check_numbers([float(line) for line in lines], where)
    if kind.name == MULTI_LABEL:
        return _check_several([classes_in(line, kind) for line in lines], where)
    return check_classes(lines, where, certain=options.kind is not None)


def _check_numbers(values: Sequence[float], where: str) -> list[str]:
    distinct = set(values)
    if len(distinct) == 1:
        raise UserError(f"{where}: all rows have the label {values[0]:g}; use labels with different values")
    warnings = []
    if len(distinct) <= FEW_VALUES:
        warnings.append(
            f"only {len(distinct)} different numbers; if they are classes, choose {TASK} "
            f"{KINDS[SINGLE_LABEL].task}"
        )
    if len(distinct) == len(values) and all(value.is_integer() for value in values):
        warnings.append(
            "all labels are different whole numbers; if they number the rows, choose another column"
        )
    far = [x for x in distinct if abs(x - np.mean(values)) > FAR * np.std(values)]
    if far:
        warnings.append(
            f"{count(len(far), 'label')} more than {FAR} standard deviations from the mean: "
            f"{enumerate_some([f'{x:g}' for x in sorted(far)])}; they dominate the squared error"
        )
    return warnings


def _check_several(rows: Sequence[Sequence[str]], where: str) -> list[str]:
    counts = Counter(label for labels in rows for label in labels)
    if len(counts) < 2:
        raise UserError(f"{where}: {count(len(counts), 'label')} in all rows; use at least two labels")
    warnings = []
    if single := sorted(label for label, times in counts.items() if times == 1):
        warnings.append(f"{count(len(single), 'label')} with a single example: {quoted(single)}")
    warnings += alike_warnings(counts)
    if all(len(labels) == 1 for labels in rows):
        warnings.append(
            f"every row has exactly one label; if that is always so, choose {TASK} {KINDS[SINGLE_LABEL].task}"
        )
    if (without := sum(not labels for labels in rows)) > len(rows) / 2:
        warnings.append(f"{count(without, 'row')} of {len(rows):,} have no label")
    return warnings


def describe(lines: Sequence[str], kind: LabelKind) -> str:
    """The labels of a split, for the plan."""
    if kind.name == REGRESSION:
        values = np.array([float(line) for line in lines])
        return (
            f"labels from {values.min():g} to {values.max():g}, mean {values.mean():.4g}, standard deviation "
            f"{values.std():.4g}"
        )
    rows = [classes_in(line, kind) for line in lines]
    counts = Counter(label for labels in rows for label in labels).most_common()
    shares = enumerate_some([f"{quoted([label])} {times:,}" for label, times in counts], 8)
    if kind.exclusive:
        return shares
    without = sum(not labels for labels in rows)
    mean = f"{sum(map(len, rows)) / len(rows):.2f} labels per example"
    return f"{mean}{f', {without:,} without' if without else ''}; {shares}"


def strata(lines: Sequence[str], kind: LabelKind) -> list[str]:
    """What a split of the examples is stratified by.

    The class; of several classes the rarest one; for numbers, ranges with the same number of examples.
    """
    if kind.name == REGRESSION:
        values = np.array([float(line) for line in lines])
        edges = np.quantile(values, np.linspace(0, 1, STRATA + 1)[1:-1])
        return [str(stratum) for stratum in np.searchsorted(edges, values, side="right")]
    if kind.exclusive:
        return list(lines)
    rows = [classes_in(line, kind) for line in lines]
    counts = Counter(label for labels in rows for label in labels)
    return [min(labels, key=lambda label: (counts[label], label), default="") for labels in rows]
