"""Labels: what a cell of a label column means, and what is wrong with the labels of a data set.

The label of an example is one line of text, as in `text/SPLIT.label` of a data folder:

    single_label_classification   the class                       positif
    multi_label_classification    a JSON array of the classes     ["drôle", "long"]
    regression                    the number                      3.5

The kind is that of --task, or else detected.
"""

from __future__ import annotations

import ast
import contextlib
import json
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from roberta_small.common.cli import nearest
from roberta_small.common.errors import UserError, count, enumerate_some
from roberta_small.common.label_kinds import KINDS, MULTI_LABEL, REGRESSION, SINGLE_LABEL, TASKS, LabelKind
from roberta_small.preprocess.dictionary import OVERWRITE, PADDING_PREFIX, SPECIALS, Dictionary
from roberta_small.preprocess.readers.lines import read_text_lines

TASK, SEPARATOR = "--task", "--label-separator"
FEW_NUMBERS = 10
"""Numeric labels with more distinct values are measurements if some are fractional..."""
MANY_NUMBERS = 20
"""... or, as whole numbers, if there are more than this and most occur once or twice."""
FEW_VALUES = 5
"""Numeric labels with at most so many values are probably classes."""
FAR = 10
"""Distance from the mean, in standard deviations, from which on a numeric label is suspicious."""
STRATA = 5
"""Number of ranges of numeric labels with the same number of examples, by which a split is stratified."""
SEPARATORS = "|;,"
"""Of several labels in one cell."""
DECIMAL_COMMA = re.compile(r"^([+-]?\d+),(\d+)$")
MISSING = {"na", "n/a", "nan", "null", "none", "nil", "missing", "unknown", "?", "-", "--"}
"""What files write, in any case, where a label is missing."""
HIDDEN = "-1"
"""The label of examples whose labels are not published, as in GLUE."""
LEAST_ROWS = 20
"""From this many rows on, labels of which most occur once are taken for another column."""


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


def checked_label(text: str, path: str, line: int) -> str:
    """The words of a label; `UserError` with file and line for none, or one that fairseq reserves."""
    label = " ".join(text.split())
    if not label:
        raise UserError(f"{path}, line {line}: no label; write one label per line")
    if label in SPECIALS or label.startswith(PADDING_PREFIX) or label.endswith(OVERWRITE):
        raise UserError(f"{path}, line {line}: '{label}' is reserved by fairseq; rename the label")
    return label


def decide(cells: Sequence[str], options: LabelOptions, where: str) -> LabelKind:
    """The kind of labels: that of --task, multi-label with a separator, or else detected.

    Detected are lists (multi-label), and numbers with more values than classes have (regression). Raises
    `UserError` with `where` for cells that look like several labels with a separator between them.
    """
    if options.kind is not None:
        return options.kind
    counts = Counter(cells)
    if options.separator is not None or any(_as_list(cell) is not None for cell in counts):
        return KINDS[MULTI_LABEL]
    numbers = [_number(cell) for cell in counts]
    if None not in numbers:
        whole = all(value is not None and value.is_integer() for value in numbers)
        if whole and len(counts) > MANY_NUMBERS and counts.total() < 3 * len(counts):
            return KINDS[REGRESSION]
        if not whole and len(counts) > FEW_NUMBERS:
            return KINDS[REGRESSION]
    for separator in SEPARATORS:
        parts_of = {
            label: parts
            for label in counts
            if _number(label) is None
            and len(parts := [part.strip() for part in label.split(separator)]) > 1
            and all(parts)
        }
        uses = Counter(part for parts in parts_of.values() for part in parts)
        for label, parts in parts_of.items():
            if all(part in counts or uses[part] > 1 for part in parts):  # they are labels of other rows
                raise UserError(
                    f"{where}: '{label}' looks like several labels; for multi-label classification add "
                    f"{SEPARATOR} '{separator}', for one class per row {TASK} {KINDS[SINGLE_LABEL].task}"
                )
    return KINDS[SINGLE_LABEL]


def parse(cell: str, kind: LabelKind, path: str, line: int, separator: str | None = None) -> str:
    """The line of an example; raises `UserError` with file, line and value for a label of another kind."""
    if kind.name == SINGLE_LABEL:
        return checked_label(cell, path, line)
    if kind.name == REGRESSION:
        value = _number(cell)
        if value is None or not math.isfinite(value):
            raise UserError(
                f"{path}, line {line}: label '{cell[:60]}' is not a finite number, as regression needs; "
                f"correct or remove the row, or choose another {TASK}"
            )
        return repr(value)
    found = _as_list(cell)
    if found is None:
        found = [part for part in cell.split(separator) if part.strip()] if separator else [cell]
    for label in found:
        if not isinstance(label, str | int | float):
            raise UserError(
                f"{path}, line {line}: {label!r} in the list of labels is not a name; write a list of strings"
            )
    names = [label if isinstance(label, str) else json.dumps(label) for label in found]
    return as_line([checked_label(name, path, line) for name in names])


def as_line(labels: Iterable[str]) -> str:
    """The line of a multi-label example with these classes."""
    return json.dumps(sorted(set(labels)), ensure_ascii=False)


def label_lines(path: str, kind: LabelKind) -> list[str]:
    """The labels in a file with one label a line; raises `UserError` with file and line as `parse`."""
    return [parse(line, kind, path, at) for at, line in enumerate(read_text_lines(path), start=1)]


def classes_in(line: str, kind: LabelKind) -> list[str]:
    """The classes in the line of an example: one, any number, or none of a regression."""
    if kind.name == MULTI_LABEL:
        return json.loads(line)
    return [line] if kind.has_classes else []


def class_counts(lines: Iterable[str], kind: LabelKind) -> Counter[str]:
    """How many examples have each class."""
    return Counter(label for line in lines for label in classes_in(line, kind))


def _as_list(text: str) -> list[object] | None:
    """The list that a cell contains as JSON or Python writes it; None if it is none."""
    if text.startswith("["):
        for parse_list in (json.loads, ast.literal_eval):
            with contextlib.suppress(ValueError, SyntaxError, RecursionError, MemoryError):
                if isinstance(found := parse_list(text), list):
                    return found
    return None


def _number(label: str) -> float | None:
    """The number in a label, which may have a decimal comma; None if it is none."""
    try:
        return float(DECIMAL_COMMA.sub(r"\1.\2", label))
    except ValueError:
        return None


def check(lines: Sequence[str], kind: LabelKind, options: LabelOptions, where: str) -> list[str]:
    """Warnings about the labels of all examples; `UserError` if nothing can be learned of them."""
    if kind.name == REGRESSION:
        return _check_numbers([float(line) for line in lines], where)
    counts = class_counts(lines, kind)
    if kind.name == MULTI_LABEL:
        return _check_several(lines, counts, where)
    return _check_classes(counts, where, certain=options.kind is not None)


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
    mean, deviation = np.mean(values), np.std(values)
    if far := sorted(value for value in distinct if abs(value - mean) > FAR * deviation):
        warnings.append(
            f"{count(len(far), 'label')} more than {FAR} standard deviations from the mean: "
            f"{enumerate_some([f'{value:g}' for value in far])}; they dominate the squared error"
        )
    return warnings


def _check_several(lines: Sequence[str], counts: Counter[str], where: str) -> list[str]:
    if len(counts) < 2:
        raise UserError(f"{where}: {count(len(counts), 'label')} in all rows; use at least two labels")
    warnings = []
    if single := sorted(label for label, times in counts.items() if times == 1):
        warnings.append(f"{count(len(single), 'label')} with a single example: {quoted(single)}")
    warnings += _alike_warnings(counts)
    sizes = [len(json.loads(line)) for line in lines]
    if all(size == 1 for size in sizes):
        warnings.append(
            f"every row has exactly one label; if that is always so, choose {TASK} {KINDS[SINGLE_LABEL].task}"
        )
    if (without := sizes.count(0)) > len(lines) / 2:
        warnings.append(f"{count(without, 'row')} of {len(lines):,} have no label")
    return warnings


def _check_classes(counts: Counter[str], where: str, *, certain: bool) -> list[str]:
    """For one class per text; `certain`: the user has said that the labels are classes."""
    if len(counts) == 1:
        raise UserError(f"{where}: all rows have the label '{next(iter(counts))}'; use at least two classes")
    rows = counts.total()
    if not certain and rows >= LEAST_ROWS and len(counts) > rows / 2:
        raise UserError(
            f"{where}: {len(counts):,} different labels in {rows:,} rows: this is probably not "
            "the label column; choose one with --label-column"
        )
    warnings = []
    numbers = {label: value for label in sorted(counts) if (value := _number(label)) is not None}
    if len(counts) > MANY_NUMBERS and len(numbers) == len(counts):
        warnings.append(
            f"{len(counts)} classes, all of them numbers: their order is not used; consider fewer classes"
        )
    if single := sorted(label for label, times in counts.items() if times == 1):
        what = "1 class" if len(single) == 1 else f"{len(single)} classes"
        warnings.append(f"{what} with a single example: {quoted(single)}")
    warnings += _alike_warnings(counts)
    equal: dict[float, list[str]] = {}
    for label, value in numbers.items():
        equal.setdefault(value, []).append(label)
    warnings += [
        f"labels that are the same number, but different classes: {quoted(names)}; write them alike"
        for names in equal.values()
        if len(names) > 1
    ]
    if absent := sorted(label for label in counts if label.casefold() in MISSING):
        missing = count(sum(counts[label] for label in absent), "row")
        warnings.append(
            f"{quoted(absent)} is read as a class, in {missing}; if it means that the label is missing, "
            "remove these rows"
        )
    if HIDDEN in counts and all(label == HIDDEN or label.isdecimal() for label in counts):
        warnings.append(
            f"'{HIDDEN}' is read as a class, in {count(counts[HIDDEN], 'row')}; if it marks hidden labels, "
            "as in GLUE, remove these rows"
        )
    return warnings


def _alike_warnings(counts: Mapping[str, int]) -> list[str]:
    """A warning about each group of labels that look the same."""
    alike: dict[str, list[str]] = {}
    for label in sorted(counts):
        alike.setdefault(_visible(label), []).append(label)
    return [
        f"labels that differ only in case or invisible characters: {quoted(names)}; --merge-labels makes "
        "them one class"
        for names in alike.values()
        if len(names) > 1
    ]


def merged(counts: Mapping[str, int]) -> dict[str, str]:
    """Label -> the most frequent of those that look like it, if that is another one."""
    alike: dict[str, list[str]] = {}
    for label in counts:
        alike.setdefault("".join(_visible(label).split()), []).append(label)
    chosen = {label: max(group, key=lambda one: counts[one]) for group in alike.values() for label in group}
    return {label: name for label, name in chosen.items() if label != name}


def _visible(label: str) -> str:
    """The label as a reader sees it: case folded, compatibility forms unified, no invisible characters."""
    folded = unicodedata.normalize("NFKC", label).casefold()
    return "".join(c for c in folded if unicodedata.category(c) not in ("Cf", "Cc"))


def describe(lines: Sequence[str], kind: LabelKind) -> str:
    """The labels of a split, for the plan."""
    if kind.name == REGRESSION:
        values = np.array([float(line) for line in lines])
        return (
            f"labels from {values.min():g} to {values.max():g}, mean {values.mean():.4g}, standard deviation "
            f"{values.std():.4g}"
        )
    counts = class_counts(lines, kind)
    shares = enumerate_some([f"{quoted([label])} {times:,}" for label, times in counts.most_common()], 8)
    if kind.exclusive:
        return shares
    without = sum(not json.loads(line) for line in lines)
    mean = f"{counts.total() / len(lines):.2f} labels per example"
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
    counts = class_counts(lines, kind)
    return [
        min(classes_in(line, kind), key=lambda label: (counts[label], label), default="") for line in lines
    ]


def quoted(names: Sequence[str]) -> str:
    """Names in quotes, with invisible characters escaped."""
    return enumerate_some([ascii(name) if not name.isprintable() else f"'{name}'" for name in names], 8)


def class_names(labels: Dictionary) -> list[str]:
    """The names in id order, without the symbols fairseq pads a dictionary with."""
    return [name for name in labels.names() if labels.counts[labels.index[name]] > 0]


def check_line_counts(text_path: str, lines: int, label_path: str | None, labels: int | None) -> None:
    """Raise `UserError` unless there is text and, where there are labels, one for each line of it."""
    if lines == 0:
        raise UserError(f"{text_path}: no text; use a file with one sentence per line")
    if labels is not None and lines != labels:
        raise UserError(
            f"{text_path} has {lines:,} lines but {label_path} has {labels:,}; "
            "both must have one line per example"
        )
