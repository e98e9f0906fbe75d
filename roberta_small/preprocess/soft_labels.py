"""Soft labels: texts with class probabilities, which a trained classifier gives, as training examples.

A small classifier that learns the probabilities of a large one for texts without labels is often more
accurate than one that has only the labelled texts (Hinton et al. 2015, arXiv 1503.02531; Tang et al. 2019,
arXiv 1903.12136).

The file is one that `roberta-small predict` writes, in any format of tables: with the texts, and with
`probabilities` ({class: probability}) or a column `p(CLASS)` for each class.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from roberta_small.common.cli import nearest
from roberta_small.common.data_folder import soft_labels_file
from roberta_small.common.errors import UserError
from roberta_small.common.files import atomic_open
from roberta_small.preprocess.examples import Examples, Row
from roberta_small.preprocess.labels import quoted
from roberta_small.preprocess.readers import TABLE, reader_name, tables
from roberta_small.preprocess.readers.records import is_dataset
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


def check_file(path: str) -> None:
    """Raise `UserError` unless the path is a file that tables are read from."""
    if is_dataset(path) or not Path(path).is_file():
        what = "is a folder" if Path(path).is_dir() else "no such file"
        raise UserError(f"{FLAG} {path}: {what}; give a file of predictions, or {PREDICT}")
    if reader_name(path) != TABLE:
        raise UserError(f"{FLAG} {path}: not a table; {PREDICT}")


def add(examples: Examples, path: str) -> Examples:
    """The examples with the texts of a file of soft labels; those of valid and test are left out."""
    file = tables.load(path)
    found, empty = read(file, examples.columns)
    warnings = [*examples.warnings, *file.notes]
    train = examples.splits["train"]
    if examples.columns.pair is None and any(row.record.pair is not None for row in train):
        raise UserError(
            f"{FLAG} {path}: not for sentence pairs of a reader without columns; write the pairs "
            "as a table, and use --pair-column"
        )
    missing = known = {row.label for row in train}
    for row in found:
        given = (row.probabilities or {}).keys()
        missing = missing - given
        if unknown := sorted(given - known):
            raise UserError(
                f"{FLAG} {path}, line {row.record.line}: class {quoted(unknown[:1])} is unknown; "
                f"the labelled training examples have {quoted(sorted(known))}{nearest(unknown[0], known)}"
            )
    if missing:
        warnings.append(
            f"{path} has no probability of {quoted(sorted(missing))}: its texts teach that they are not of "
            "that class"
        )
    held_out = {row.key: name for name, rows in examples.splits.items() if name != "train" for row in rows}
    soft, left_out = [], [*examples.left_out, *((row, "no text") for row in empty)]
    for row in found:
        if (name := held_out.get(row.key)) is None:
            soft.append(row)
        else:
            left_out.append((row, f"text with a soft label that is in {name}"))
    if not soft:
        raise UserError(
            f"{FLAG} {path}: no text for training ({len(found)} in valid or test, {len(empty)} "
            "without text); predict other texts"
        )
    return replace(examples, soft=soft, left_out=left_out, warnings=warnings)


def read(file: tables.Loaded, given: Columns) -> tuple[list[Row], list[Row]]:
    """The texts of a file in its order, and the rows without text.

    `given` has the columns of the labelled texts. The file has the same, or `text` for a single text. Raises
    `UserError` with file and line for a file without texts or probabilities.
    """
    path, table = file.path, file.text()
    names = [str(name) for name in table.columns]
    of_class = {name: " ".join(match[1].split()) for name in names if (match := OF_CLASS.fullmatch(name))}
    if again := [name for name in names if AGAIN.fullmatch(name)]:
        raise UserError(
            f"{FLAG} {path}: predictions of two classifiers ('{again[0]}'); remove the columns of one of them"
        )
    if (PROBABILITIES in names) == bool(of_class):
        number = "both" if of_class else "no"
        raise UserError(f"{FLAG} {path}: {number} column '{PROBABILITIES}' or 'p(CLASS)'; {PREDICT}")
    text = given.text or TEXT
    if text not in names and given.pair is None and TEXT in names:
        text = TEXT
    columns = Columns(text, given.pair, more_text=given.more_text if text == given.text else ())
    wanted = [*columns.texts, *([] if given.pair is None else [given.pair])]
    if absent := [name for name in wanted if name not in names]:
        raise UserError(
            f"{FLAG} {path}: no column {quoted(absent)}, as in the labelled texts; rename the column of the "
            "texts, or predict a table that has it (--with-text for lines)"
        )
    cells: list[Any] = (
        [dict(zip(of_class.values(), row, strict=True)) for row in table[[*of_class]].to_numpy()]
        if of_class
        else table[PROBABILITIES].tolist()
    )
    found: list[Row] = []
    empty: list[Row] = []
    for record, cell in zip(tables.records(table, columns, path), cells, strict=True):
        if not record.text.strip() or (columns.pair is not None and not (record.pair or "").strip()):
            empty.append(Row(path, record))
            continue
        p = _probabilities(cell, f"{FLAG} {path}, line {record.line}")
        found.append(Row(path, record, max(p, key=lambda name: p[name]), p))
    return found, empty


def _probabilities(cell: Any, where: str) -> dict[str, float]:
    """The probability of each class, from numbers or text."""
    if not isinstance(cell, dict):
        with contextlib.suppress(ValueError, RecursionError):
            cell = json.loads(cell or "")
    shown = str(cell)[:80]
    if not isinstance(cell, dict) or not cell:
        raise UserError(f"{where}: {shown} is not an object of classes and their probabilities; {PREDICT}")
    try:
        cell = {name: p.replace(",", ".") if isinstance(p, str) else p for name, p in cell.items()}
        values = {" ".join(str(name).split()): float(value) for name, value in cell.items()}
    except (TypeError, ValueError, OverflowError):
        raise UserError(f"{where}: {shown}: not a number for each class, such as 0.25") from None
    total = sum(values.values())
    # A NaN fails both comparisons.
    tolerance = max(MIN_TOLERANCE, TOLERANCE * len(values))
    if not all(value >= 0 for value in values.values()) or not abs(total - 1) <= tolerance:
        raise UserError(f"{where}: {shown}: not probabilities from 0 to 1 with the sum 1 (it is {total:.6g})")
    return {name: value / total for name, value in values.items()}


def write(folder: Path, classes: Sequence[str], examples: Examples) -> None:
    """Write the target of each training example, fp32 (N, K), K in the order of `classes`."""
    number = {name: index for index, name in enumerate(classes)}
    rows = examples.all_rows()["train"]
    targets_NK = np.zeros((len(rows), len(classes)), dtype=np.float32)
    for row_K, row in zip(targets_NK, rows, strict=True):
        for name, value in ({row.label: 1.0} if row.probabilities is None else row.probabilities).items():
            row_K[number[name]] = value
    with atomic_open(soft_labels_file(folder, "train"), "wb") as stream:
        np.save(stream, targets_NK)
