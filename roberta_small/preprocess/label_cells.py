"""The cells of a label column: their notation, and what they mean.

The label of an example is one line of text, as in `text/SPLIT.label` of a data folder:

    single_label_classification   the class                       positif
    multi_label_classification    a JSON array of the classes     ["drôle", "long"]
    regression                    the number                      3.5

The notation is that of the whole column. Cells with one reading are read, cells with two are an error that
shows both, and what is guessed comes with its reason.
"""

from __future__ import annotations

import ast
import contextlib
import csv
import json
import math
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roberta_small.common.cli import nearest
from roberta_small.common.errors import UserError
from roberta_small.common.label_kinds import KINDS, MULTI_LABEL, REGRESSION, SINGLE_LABEL, TASKS, LabelKind
from roberta_small.preprocess.dictionary import OVERWRITE, PADDING_PREFIX, SPECIALS
from roberta_small.preprocess.readers.lines import read_text_lines

TASK, SEPARATOR = "--task", "--label-separator"
CLASSES, SEVERAL, NUMBERS = (KINDS[name] for name in (SINGLE_LABEL, MULTI_LABEL, REGRESSION))
FEW_NUMBERS = 10
"""Numeric labels with more distinct values are measurements if some are fractional..."""
MANY_NUMBERS = 20
"""... or, as whole numbers, if there are more than this and most occur once or twice."""
SEPARATORS = "|;,"
"""Of several labels in one cell."""
MISSING = {"na", "n/a", "nan", "null", "none", "nil", "missing", "unknown", "?", "-", "--"}
"""What files write, in any case, where a label is missing."""
BRACKETS = {"[": "]", "{": "}", "(": ")", "<": ">"}
VALUE = r"""(?:\w[\w.]*\()?(u?'(?:[^'\\]|\\.)*'|u?"(?:[^"\\]|\\.)*"|[-+.\deE]+|True|False)\)?"""
ITEM = VALUE.replace("(u", "(?:u")
ITEMS = rf"(?:{ITEM}(?: ?, ?{ITEM})*,?|{ITEM}(?: {ITEM})*)?"
LIST = re.compile(rf"(?:\w[\w.]*\()*[\[{{(] ?({ITEMS}) ?[\]}})](?:, dtype='?<?\w+'?)?\)*")
"""A list, set or tuple of Python, also of NumPy's values, or an array with spaces between the items."""
NO, YES = {"0", "false"}, {"1", "true"}
"""The values of an indicator vector."""
NUMBER = r"(?=[+-]?[.,]?\d)[+-]?(?:\d+|[1-9]\d{0,2}(?:%s\d{3})+)?(?:%s\d*)?(?:[eE][+-]?\d+)?"
MARKS = (("", r"\."), ("", "[.,]"), (r"\.", ","), (",", r"\."), ("[ '’]", "[.,]"))
"""Notations of numbers: what separates thousands, and the decimal mark. The first is that of data files."""
PLAIN, COMMA, *_ = FORMS = [re.compile(NUMBER % marks) for marks in MARKS]
FOUR_DIGITS = re.compile(r"[+-]?\d{4}")
CODE = re.compile(r"[+-]?0\d")
"""The beginning of a code that looks like a number."""


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
        if self.separator == "":
            raise UserError(f"{SEPARATOR} '': give a character such as ;")
        if self.separator is not None and self.kind not in (None, SEVERAL):
            raise UserError(f"{SEPARATOR} {self.separator}: not with {TASK} {self.task}; omit one of them")

    @property
    def kind(self) -> LabelKind | None:
        """The kind of --task."""
        return None if self.task is None else TASKS[self.task]

    def given(self) -> dict[str, str]:
        """The options that are given, by name."""
        return {name: value for name, value in vars(self).items() if value is not None}


def read(
    cells: Iterable[tuple[str, str, int]], options: LabelOptions, where: str
) -> tuple[LabelKind, dict[str, str], str]:
    """Read the labels of a whole data set: the kind, the line of each cell, and the reason for a guess or "".

    `cells` have their file and line. The kind is that of --task, multi-label with a separator, or detected:
    lists are multi-label, and numbers with more values than classes have are a regression. Lists are those of
    JSON, Python and NumPy, or words in brackets; those of 0 and 1 with one length are indicator vectors of
    the classes 0, 1, ... Raises `UserError` with file and line, or `where`, without exactly one reading.
    """
    counts: Counter[str] = Counter()
    places: dict[str, tuple[str, int]] = {}
    for cell, path, line in cells:
        counts[cell] += 1
        places.setdefault(cell, (path, line))
    kind, reason, found = options.kind, "", dict[str, Any]()
    if kind in (None, SEVERAL):
        if lists := _lists(counts, options.separator):
            found, reason = _names(lists, places)
            if not (reason or options.task or options.separator):
                reason = f"lists such as {next(cell for cell in lists if lists[cell] != [cell])[:60]}"
            kind = SEVERAL
        else:
            _check_separators(counts, where)
    if kind in (None, NUMBERS):
        found, reason = _numbers(counts, where, given=kind is NUMBERS)
        kind = NUMBERS if found or kind else CLASSES
    lines = {cell: _line(found.get(cell), cell, kind, *place) for cell, place in places.items()}
    return kind, lines, reason


def label_lines(path: str, kind: LabelKind) -> list[str]:
    """The lines in a file of labels of a data folder; raises `UserError` with file and line for others."""
    read_line = {SEVERAL.name: _as_list, NUMBERS.name: number_in}.get(kind.name, lambda line: [line])
    lines = enumerate(read_text_lines(path), start=1)
    return [_line(read_line(line), line, kind, path, at) for at, line in lines]


def as_line(labels: Iterable[str]) -> str:
    """The line of a multi-label example with these classes."""
    return json.dumps(sorted(set(labels)), ensure_ascii=False)


def checked_label(text: str, path: str, line: int) -> str:
    """The words of a label; `UserError` with file and line for none, or one that fairseq reserves."""
    label = " ".join(text.split())
    if not label:
        raise UserError(f"{path}, line {line}: no label; write one label per line")
    if label in SPECIALS or label.startswith(PADDING_PREFIX) or label.endswith(OVERWRITE):
        raise UserError(f"{path}, line {line}: '{label}' is reserved by fairseq; rename the label")
    return label


def number_in(label: str) -> float | None:
    """The number in a label, which may have a decimal comma; None if it is none."""
    return float(label.replace(",", ".")) if COMMA.fullmatch(label) else None


def _line(found: Any, cell: str, kind: LabelKind, path: str, line: int) -> str:
    """The line of an example with these labels, or this number; None for the label that the cell is."""
    if kind is NUMBERS:
        if found is not None and math.isfinite(found):
            return repr(found)
        raise UserError(
            f"{path}, line {line}: label '{cell[:60]}' is not a finite number, as regression needs; "
            f"correct or remove the row, or choose another {TASK}"
        )
    names = [checked_label(_name(label), path, line) for label in ([cell] if found is None else found)]
    return as_line(names) if kind is SEVERAL else names[0]


def _name(label: Any) -> str:
    """A label of a list as text: 1 for 1.0; "" for what is no label."""
    if isinstance(label, float) and label.is_integer():
        label = int(label)
    return label if isinstance(label, str) else json.dumps(label) if isinstance(label, int) else ""


def _lists(cells: Iterable[str], separator: str | None) -> dict[str, list[Any] | None]:
    """The labels in each cell, None where a list cannot be read; empty if each cell is one label."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about escapes in names
        found = {cell: _as_list(cell) if cell[-1] in "])}" else None for cell in cells}
    plain = [cell for cell, value in found.items() if value is None]
    inside = {cell: cell[1:-1] for cell in plain if BRACKETS.get(cell[0]) == cell[-1]}
    inside |= {cell: text.replace("><", ",") for cell, text in inside.items() if cell[0] == "<"}
    several = {cell for cell, text in inside.items() if re.search("[,'\"]", text)}
    listed = len(plain) < len(found)
    if len(inside) == len(plain) and (several or listed):  # [a, b], <a><b>
        for cell, text in inside.items():
            items = [item.strip() for item in next(csv.reader([text], skipinitialspace=True), [])]
            found[cell] = None if any(item[:1] in ("", "'", '"', ".") for item in items) else items
        return found
    unread = {cell for cell in several if cell[0] in "[{"}
    if separator or unread or listed:
        mark = separator if separator is None or separator.strip() else " "  # as cells have it
        split = {cell: cell.split(mark) if mark else [cell] for cell in plain if cell not in unread}
        return found | {cell: [part for part in parts if part.strip()] for cell, parts in split.items()}
    for mark in (" ", *SEPARATORS):
        if _are_vectors((cell.split(mark) for cell in found), 3 if mark == "," else 2):
            return {cell: cell.split(mark) for cell in found}
    return {}


def _as_list(text: str) -> list[Any] | None:
    """The list that a cell contains as JSON, Python or NumPy writes it; None if it is none."""
    with contextlib.suppress(ValueError, RecursionError):
        if isinstance(found := json.loads(text), list):
            return found
    if text in ("set()", "frozenset()"):
        return []
    if (inside := LIST.fullmatch(text)) and (text[0] != "(" or "," in text or not inside[1]):
        with contextlib.suppress(ValueError, SyntaxError):
            return [ast.literal_eval(item) for item in re.findall(VALUE, inside[1])]
    return None


def _are_vectors(rows: Iterable[Sequence[str]], least: int = 2) -> bool:
    """Whether rows are indicator vectors: `least` or more zeros and ones, equally many in each."""
    size = 0
    for row in rows:
        size = size or len(row)
        if not len(row) == size >= least or not all(name.strip().casefold() in NO | YES for name in row):
            return False
    return size > 0


def _names(
    lists: Mapping[str, list[Any] | None], places: Mapping[str, tuple[str, int]]
) -> tuple[dict[str, list[str]], str]:
    """The classes in each cell, and why positions are classes; `UserError` for what is no list of classes."""
    names = {cell: list(map(_name, found or ())) for cell, found in lists.items()}
    if _are_vectors(names.values()):
        for cell, found in names.items():
            names[cell] = [str(k) for k, name in enumerate(found) if name.strip().casefold() in YES]
        last = len(found) - 1
        return names, f"vectors of zeros and ones, whose positions 0 to {last} are the classes"
    for cell, found in names.items():
        fault = ""
        if lists[cell] is None:
            fault = f"cannot be read; add {TASK} {CLASSES.task} if it is one name, or"
        elif "" in (stripped := [name.strip() for name in found]):
            fault = f"contains {(lists[cell] or ())[stripped.index('')]!r}, which is no name of a class;"
        elif len(set(found)) < len(found) and all(map(PLAIN.fullmatch, found)):
            fault = "repeats a number, but is no vector of 0 and 1 as long as the others;"
        if fault:
            path, line = places[cell]
            raise UserError(f'{path}, line {line}: the list {cell[:60]} {fault} write it as ["a", "b"]')
    return names, ""


def _check_separators(counts: Mapping[str, int], where: str) -> None:
    """Raise `UserError` for cells that look like several labels with a separator between them."""
    for separator in (*SEPARATORS, " "):
        parts_of = {
            label: parts
            for label in counts
            if len(parts := [part.strip() for part in label.split(separator)]) > 1
            and all(parts)
            and BRACKETS.get(label[0]) != label[-1]
            and (separator != " " or counts.keys() >= set(parts))  # names consist of words
        }
        numbers = {label: parts_of[label] for form in FORMS for label in filter(form.fullmatch, parts_of)}
        halves = {parts[-1] for parts in numbers.values()} <= {"0", "5"}
        if halves or not all(part in counts for parts in numbers.values() for part in parts):
            # 1,2 beside 1 and 2 may be two labels; 3,5 beside 3 and 5 is a rating.
            parts_of = {label: parts for label, parts in parts_of.items() if label not in numbers}
        uses = Counter(part for parts in parts_of.values() for part in parts)
        for label, parts in parts_of.items():
            if all(part in counts or uses[part] > 1 for part in parts):  # they are labels of other rows
                raise UserError(
                    f"{where}: '{label}' looks like several labels; for multi-label classification add "
                    f"{SEPARATOR} '{separator}', for one class per row {TASK} {CLASSES.task}"
                    + (f", for numbers {TASK} {NUMBERS.task}" if label in numbers else "")
                )


def _numbers(counts: Counter[str], where: str, *, given: bool) -> tuple[dict[str, float], str]:
    """The numbers in cells and why they are no classes; empty with a reason, or "", if they are classes.

    `given`: they are no classes. Raises `UserError` for numbers that have two readings.
    """
    found: list[dict[str, float]] = []
    for (mark, _), form in zip(MARKS, FORMS, strict=True):
        texts = {cell: re.sub(mark, "", cell) if mark else cell for cell in filter(form.fullmatch, counts)}
        found.append({cell: float(text.replace(",", ".")) for cell, text in texts.items()})
    numeric = dict.fromkeys(cell for one in found for cell in one)
    fitting = [one for one in found if len(one) == len(numeric) > 0]
    if found[0] in fitting:
        # Beside 724, 9.553 has no three decimals, which would make it 724.000.
        some = [cell for cell in numeric if "." not in cell or FOUR_DIGITS.match(cell)]
        thousands = not given and some and not any(map(FOUR_DIGITS.match, some))
        fitting = [one for one in fitting if one is found[0] or (one is found[2] and thousands)]
    if not given:
        measured = len(numeric) > MANY_NUMBERS and sum(counts[cell] for cell in numeric) < 3 * len(numeric)
        if not fitting or not all(value.is_integer() for one in fitting for value in one.values()):
            measured = len(numeric) > FEW_NUMBERS
        if not measured or any(cell.casefold() not in MISSING for cell in counts if cell not in numeric):
            return {}, ""
        if code := next(filter(CODE.match, numeric), None):
            return {}, f"'{code}' begins with a zero, as codes do"
    readings = [one for i, one in enumerate(fitting) if one not in fitting[:i]]
    decimals, classes = f"{TASK} {NUMBERS.task}", f"{TASK} {CLASSES.task}"
    if len(readings) > 1:
        cell = next(cell for cell in numeric if readings[0][cell] != readings[1][cell])
        small, large = (f"{value:.15g}" for value in sorted((one[cell] for one in readings[:2]), key=abs))
        raise UserError(
            f"{where}: '{cell}' is {small} or {large}; for thousands write {large}; for decimals write "
            f"{small} and add {decimals}; for names of classes add {classes}"
        )
    if numeric and not readings:
        first, *_, last = (cell for cell in numeric if not PLAIN.fullmatch(cell))
        raise UserError(f"{where}: '{first}' and '{last}' are numbers of two notations; write all as 1234.5")
    spelled: dict[float, str] = {}
    for cell, value in readings[0].items() if readings and not given else ():
        other = spelled.setdefault(value, cell)
        if other != cell and not value.is_integer() and other.rstrip("0") == cell.rstrip("0"):
            raise UserError(
                f"{where}: '{other}' and '{cell}' are the same number, but may be two codes; for numbers add "
                f"{decimals}, for codes {classes}"
            )
    return readings[0] if readings else {}, "" if given else f"{len(numeric)} different numbers"
