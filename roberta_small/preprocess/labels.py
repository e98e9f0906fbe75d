"""Labels: files with one label a line beside the text, and the checks of a data set's classes."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from roberta_small.common.errors import UserError, count, enumerate_some
from roberta_small.preprocess.dictionary import OVERWRITE, PADDING_PREFIX, SPECIALS, Dictionary
from roberta_small.preprocess.readers.lines import read_text_lines

FEW_NUMBERS = 10
"""Numeric labels with more distinct values are measurements if some are fractional..."""
MANY_NUMBERS = 20
"""... or, as whole numbers, if there are more than this and most occur once or twice."""
SEPARATORS = "|;,"
"""Of several labels in one cell."""
DECIMAL_COMMA = re.compile(r"^([+-]?\d+),(\d+)$")
MISSING = {"na", "n/a", "nan", "null", "none", "nil", "missing", "unknown", "?", "-", "--"}
"""What files write, in any case, where a label is missing."""
HIDDEN = "-1"
"""The label of examples whose labels are not published, as in GLUE."""
LEAST_ROWS = 20
"""From this many rows on, labels of which most occur once are taken for another column."""


def read_labels(path: str) -> Iterator[str]:
    """The label of each line; raises `UserError` with file and line where there is none."""
    for number, line in enumerate(read_text_lines(path), start=1):
        yield checked_label(line, path, number)


def checked_label(text: str, path: str, line: int) -> str:
    """The label in a field of a file: its words with one space between them.

    Raises `UserError` with file and line where there is none, or one that fairseq reserves.
    """
    label = " ".join(text.split())
    if not label:
        raise UserError(f"{path}, line {line}: no label; write one label per line")
    if label in SPECIALS or label.startswith(PADDING_PREFIX) or label.endswith(OVERWRITE):
        raise UserError(f"{path}, line {line}: '{label}' is reserved by fairseq; rename the label")
    return label


def check_classes(labels: Sequence[str], where: str, *, certain: bool = False) -> list[str]:
    """Warnings about the classes of a data set with one class per text, in plain English.

    Raises `UserError` with `where` for a single class, and for labels that are all different unless the user
    is `certain` that they are classes.
    """
    counts = Counter(labels)
    if len(counts) == 1:
        raise UserError(f"{where}: all rows have the label '{next(iter(counts))}'; use at least two classes")
    if not certain and len(labels) >= LEAST_ROWS and len(counts) > len(labels) / 2:
        raise UserError(
            f"{where}: {len(counts):,} different labels in {len(labels):,} rows: this is probably not "
            "the label column; choose one with --label-column"
        )
    warnings = []
    if len(counts) > MANY_NUMBERS and all(map(_is_number, counts)):
        warnings.append(
            f"{len(counts)} classes, all of them numbers: their order is not used; consider fewer classes"
        )
    if single := sorted(label for label, number in counts.items() if number == 1):
        what = count(len(single), "class") if len(single) == 1 else f"{len(single)} classes"
        warnings.append(f"{what} with a single example: {quoted(single)}")
    warnings += alike_warnings(counts)
    equal: dict[float, list[str]] = {}
    for label in filter(_is_number, sorted(counts)):
        equal.setdefault(number(label), []).append(label)
    warnings += [
        f"labels that are the same number, but different classes: {quoted(names)}; write them alike"
        for names in equal.values()
        if len(names) > 1
    ]
    if absent := sorted(label for label in counts if label.casefold() in MISSING):
        rows = count(sum(counts[label] for label in absent), "row")
        warnings.append(
            f"{quoted(absent)} is read as a class, in {rows}; if it means that the label is missing, remove "
            "these rows"
        )
    if HIDDEN in counts and all(label == HIDDEN or label.isdecimal() for label in counts):
        warnings.append(
            f"'{HIDDEN}' is read as a class, in {count(counts[HIDDEN], 'row')}; if it marks hidden labels, "
            "as in GLUE, remove these rows"
        )
    return warnings


def alike_warnings(counts: Mapping[str, int]) -> list[str]:
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


def are_measurements(counts: Counter[str]) -> bool:
    """Whether the labels are numbers, and too many for classes."""
    if not all(map(_is_number, counts)):
        return False
    numbers = [number(label) for label in counts]
    if all(number.is_integer() for number in numbers):
        return len(counts) > MANY_NUMBERS and counts.total() < 3 * len(counts)
    return len(counts) > FEW_NUMBERS


def _is_number(label: str) -> bool:
    try:
        number(label)
    except ValueError:
        return False
    return True


def number(label: str) -> float:
    """The number in a label, which may have a decimal comma; raises `ValueError` if it is none."""
    return float(DECIMAL_COMMA.sub(r"\1.\2", label))


def several_labels(counts: Counter[str]) -> tuple[str, str] | None:
    """A cell with several labels and their separator, if there is one: its parts are labels of other rows."""
    for separator in SEPARATORS:
        compound = {
            label: parts
            for label in counts
            if not _is_number(label)
            and len(parts := [part.strip() for part in label.split(separator)]) > 1
            and all(parts)
        }
        uses = Counter(part for parts in compound.values() for part in parts)
        for label, parts in compound.items():
            if all(part in counts or uses[part] > 1 for part in parts):
                return label, separator
    return None


def merged(labels: Sequence[str]) -> dict[str, str]:
    """Label -> the most frequent of those that differ from it only in case, spaces or invisible characters.

    Only labels that change are keys. On a tie, the first one in the order of the labels counts.
    """
    counts = Counter(labels)
    alike: dict[str, list[str]] = {}
    for label in counts:
        alike.setdefault("".join(_visible(label).split()), []).append(label)
    return {
        label: chosen
        for group in alike.values()
        for chosen in [max(group, key=lambda label: counts[label])]
        for label in group
        if label != chosen
    }


def _visible(label: str) -> str:
    """The label as a reader sees it: case folded, compatibility forms unified, no invisible characters."""
    folded = unicodedata.normalize("NFKC", label).casefold()
    return "".join(c for c in folded if unicodedata.category(c) not in ("Cf", "Cc"))


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
