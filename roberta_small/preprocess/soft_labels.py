"""Soft labels: texts with class probabilities, which a trained classifier gives, as training examples.

A small classifier that learns the probabilities of a large one for texts without labels is often more
accurate than one that has only the labelled texts (Hinton et al. 2015, arXiv 1503.02531; Tang et al. 2019,
arXiv 1903.12136).

The file is one that `roberta-small predict` writes, in any format of tables: with the texts, and with
`probabilities` ({class: probability}) or a column `p(CLASS)` for each class.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_small.common.cli import nearest
from roberta_small.common.data_folder import soft_labels_file
from roberta_small.common.errors import UserError
from roberta_small.common.files import atomic_open
from roberta_small.preprocess.labels import quoted
from roberta_small.preprocess.readers import TABLE, hub, reader_name, tables
from roberta_small.preprocess.readers.records import Record
from roberta_small.preprocess.readers.tables import Columns

FLAG = "--soft-labels"
PROBABILITIES = "probabilities"
OF_CLASS = re.compile(r"p\((.+)\)")
AGAIN = re.compile(r"(probabilities|p\(.+\))_\d+")
"""What `predict` calls its columns if the table has predictions already."""
TEXT = "text"
"""The column of the text if `predict` read lines."""
TOLERANCE = 0.005
"""Of the sum, for each class: the probabilities may be rounded to two digits."""
MIN_TOLERANCE = 0.02
"""The same for few classes, whose probabilities other programs round more coarsely."""
PREDICT = "write it with: roberta-small predict --input TEXTS --with-text --out FILE.jsonl"


@dataclass(frozen=True)
class SoftLabel:
    """A text, and the probabilities of its classes, whose sum is 1."""

    source: str
    record: Record
    """Its label is the most probable class."""
    probabilities: Mapping[str, float]


def check_file(path: str) -> None:
    """Raise `UserError` unless the path is a file that tables are read from."""
    if hub.is_dataset(path) or not Path(path).is_file():
        what = "is a folder" if Path(path).is_dir() else "no such file"
        raise UserError(f"{FLAG} {path}: {what}; give a file of predictions, or {PREDICT}")
    if reader_name(path) != TABLE:
        raise UserError(f"{FLAG} {path}: not a table; {PREDICT}")


def read(path: str, given: Columns) -> tuple[list[SoftLabel], list[Record]]:
    """The texts of a file in its order, and the rows without text.

    `given` has the columns of the labelled texts. The file has the same, or `text` for a single text. Raises
    `UserError` with file and line for a file without texts or probabilities.
    """
    check_file(path)
    table = tables.read_table(path)
    names = [str(name) for name in table.columns]
    of_class = {name: " ".join(match[1].split()) for name in names if (match := OF_CLASS.fullmatch(name))}
    if again := [name for name in names if AGAIN.fullmatch(name)]:
        raise UserError(
            f"{FLAG} {path}: predictions of two classifiers ('{again[0]}'); remove the columns of one of them"
        )
    if (PROBABILITIES in names) == bool(of_class):
        number = "both" if of_class else "no"
        raise UserError(f"{FLAG} {path}: {number} column '{PROBABILITIES}' or 'p(CLASS)'; {PREDICT}")
    cells = (
        [_object(cell) for cell in table[PROBABILITIES]]
        if not of_class
        else [dict(zip(of_class.values(), row, strict=True)) for row in table[[*of_class]].to_numpy()]
    )
    found: list[SoftLabel] = []
    empty: list[Record] = []
    columns = _columns(path, names, given)
    for record, values in zip(tables.records(table, columns, path), cells, strict=True):
        if not record.text.strip() or (columns.pair is not None and not (record.pair or "").strip()):
            empty.append(record)
            continue
        p = _probabilities(values, f"{FLAG} {path}, line {record.line}")
        label = max(p, key=lambda name: p[name])
        found.append(SoftLabel(path, replace(record, label=label), p))
    return found, empty


def _columns(path: str, names: Sequence[str], given: Columns) -> Columns:
    """The columns of the texts."""
    text = given.text or TEXT
    if text not in names and given.pair is None and TEXT in names:
        text = TEXT
    more = given.more_text if text == given.text else ()
    wanted = [text, *more] if given.pair is None else [text, *more, given.pair]
    if missing := [name for name in wanted if name not in names]:
        raise UserError(
            f"{FLAG} {path}: no column {quoted(missing)}, as in the labelled texts; rename the column of the "
            "texts, or predict a table that has it (--with-text for lines)"
        )
    return Columns(text, given.pair, more_text=more)


def _object(cell: str | None) -> Any:
    """The JSON value in a cell; the cell itself if it is none."""
    try:
        return json.loads(cell or "")
    except (ValueError, RecursionError):
        return cell


def _probabilities(cells: Any, where: str) -> dict[str, float]:
    """The probability of each class, from numbers or text."""
    shown = str(cells)[:80]
    if not isinstance(cells, dict) or not cells:
        raise UserError(f"{where}: {shown} is not an object of classes and their probabilities; {PREDICT}")
    try:
        values = {" ".join(str(name).split()): float(value) for name, value in cells.items()}
    except (TypeError, ValueError, OverflowError):
        raise UserError(f"{where}: {shown}: not a number for each class, such as 0.25") from None
    total = sum(values.values())
    # A NaN fails both comparisons.
    tolerance = max(MIN_TOLERANCE, TOLERANCE * len(values))
    if not all(value >= 0 for value in values.values()) or not abs(total - 1) <= tolerance:
        raise UserError(f"{where}: {shown}: not probabilities from 0 to 1 with the sum 1 (it is {total:.6g})")
    return {name: value / total for name, value in values.items()}


def check_classes(labels: Sequence[SoftLabel], known: set[str]) -> None:
    """Raise `UserError` for a class that the labelled training examples do not have."""
    for label in labels:
        if unknown := sorted(set(label.probabilities) - known):
            raise UserError(
                f"{FLAG} {label.source}, line {label.record.line}: class {quoted(unknown[:1])} is unknown; "
                f"the labelled training examples have {quoted(sorted(known))}{nearest(unknown[0], known)}"
            )


def write(folder: Path, classes: Sequence[str], hard: Sequence[str], soft: Sequence[SoftLabel]) -> None:
    """Write the target of each training example, fp32 (N, K): 1 for the class of those with a label.

    `classes` are in the order of the label dictionary; the examples with soft labels come last.
    """
    number = {name: index for index, name in enumerate(classes)}
    targets_NK: NDArray[np.float32] = np.zeros((len(hard) + len(soft), len(classes)), dtype=np.float32)
    targets_NK[np.arange(len(hard)), [number[label] for label in hard]] = 1
    for row_K, label in zip(targets_NK[len(hard) :], soft, strict=True):
        for name, value in label.probabilities.items():
            row_K[number[name]] = value
    with atomic_open(soft_labels_file(folder, "train"), "wb") as stream:
        np.save(stream, targets_NK)
