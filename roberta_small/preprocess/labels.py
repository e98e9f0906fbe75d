"""The labels of a data set, after `label_cells` has read them: what is suspicious, alike and frequent."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence

import numpy as np

from roberta_small.common.errors import UserError, count, enumerate_some
from roberta_small.common.label_kinds import KINDS, MULTI_LABEL, REGRESSION, SINGLE_LABEL, LabelKind
from roberta_small.preprocess.dictionary import Dictionary
from roberta_small.preprocess.label_cells import MANY_NUMBERS, MISSING, TASK, LabelOptions, number_in

FEW_VALUES = 5
"""Numeric labels with at most so many values are probably classes."""
FAR = 10
"""Distance from the mean, in standard deviations, from which on a numeric label is suspicious."""
STRATA = 5
"""Number of ranges of numeric labels with the same number of examples, by which a split is stratified."""
INVISIBLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Controls, Unicode's Default_Ignorable_Code_Point, and the empty braille pattern."""
LOOKS_LIKE = str.maketrans(
    "АВЕЅІЈКМНОРСТУХаеорсухіјѕһԁԛԝΑΒΕΖΗΙΚΜΝΟΡΤΥΧον‐‑‒–—―−’ʼ‘′“”„″",
    "ABESIJKMHOPCTYXaeopcyxijshdqwABEZHIKMNOPTYXov-------''''\"\"\"\"",
)
"""Cyrillic and Greek letters, dashes and quotation marks -> what they look like."""
HIDDEN = "-1"
"""The label of examples whose labels are not published, as in GLUE."""
LEAST_ROWS = 20
"""From this many rows on, labels of which most occur once are taken for another column."""


def classes_in(line: str, kind: LabelKind) -> list[str]:
    """The classes in the line of an example: one, any number, or none of a regression."""
    if kind.name == MULTI_LABEL:
        return json.loads(line)
    return [line] if kind.has_classes else []


def class_counts(lines: Iterable[str], kind: LabelKind) -> Counter[str]:
    """How many examples have each class."""
    return Counter(label for line in lines for label in classes_in(line, kind))


def check(lines: Sequence[str], kind: LabelKind, options: LabelOptions, where: str) -> list[str]:
    """Warnings about the labels of all examples; `UserError` if nothing can be learned of them."""
    if kind.name == REGRESSION:
        return _check_numbers([float(line) for line in lines], where)
    counts = class_counts(lines, kind)
    if len(counts) < 2:
        raise UserError(
            f"{where}: {count(len(counts), 'label')} in all rows ({quoted(list(counts))}); use at least two"
        )
    if kind.name == MULTI_LABEL:
        warnings, sizes = _check_names(counts), Counter(len(json.loads(line)) for line in lines)
        if sizes[1] == len(lines):
            other = f"choose {TASK} {KINDS[SINGLE_LABEL].task}"
            warnings.append(f"every row has exactly one label; if that is always so, {other}")
        elif sizes[0] > len(lines) / 2:
            warnings.append(f"{count(sizes[0], 'row')} of {len(lines):,} have no label")
        return warnings
    if options.kind is None and len(lines) >= LEAST_ROWS and len(counts) > len(lines) / 2:
        raise UserError(
            f"{where}: {len(counts):,} different labels in {len(lines):,} rows: this is probably not "
            "the label column; choose one with --label-column"
        )
    return _check_names(counts)


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


def _check_names(counts: Mapping[str, int]) -> list[str]:
    """Warnings about the names of classes."""
    warnings = []
    numbers = {label: value for label in sorted(counts) if (value := number_in(label)) is not None}
    if len(counts) > MANY_NUMBERS and len(numbers) == len(counts):
        warnings.append(
            f"{len(counts)} classes, all of them numbers: their order is not used; consider fewer classes"
        )
    if single := sorted(label for label, times in counts.items() if times == 1):
        warnings.append(f"{count(len(single), 'label')} with a single example: {quoted(single)}")
    warnings += [
        f"labels that look like '{names[0]}': {enumerate_some([ascii(name) for name in names], 8)}; "
        "--merge-labels makes them one class"
        for names in _same({label: visible(label) for label in sorted(counts)})
    ]
    warnings += [
        f"labels that are the same number, but different classes: {quoted(names)}; write them alike"
        for names in _same(numbers)
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


def merged(counts: Mapping[str, int]) -> dict[str, str]:
    """Label -> the most frequent of those that look like it, if that is another one."""
    groups = _same({label: visible(label) for label in counts})
    chosen = {label: max(names, key=lambda one: counts[one]) for names in groups for label in names}
    return {label: name for label, name in chosen.items() if label != name}


def _same(keys: Mapping[str, Hashable]) -> list[list[str]]:
    """The labels that share their key with another one, in groups."""
    groups: dict[Hashable, list[str]] = {}
    for label, key in keys.items():
        groups.setdefault(key, []).append(label)
    return [names for names in groups.values() if len(names) > 1]


def visible(label: str) -> str:
    """The same for labels that look alike.

    That is without case, spaces, accents' composition, variants of a character that Unicode has for
    compatibility, characters without a glyph, and with the Latin letters that others look like.
    """
    text = unicodedata.normalize("NFKD", INVISIBLE.sub("", label)).translate(LOOKS_LIKE).casefold()
    return unicodedata.normalize("NFKC", "".join(text.split()))


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
