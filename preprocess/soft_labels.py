"""Soft labels: texts with class probabilities, which a trained classifier gives, as training examples.

A student that learns the probabilities of a teacher for texts without labels is more accurate than one that
has only the labelled texts (Hinton et al. 2015, arXiv 1503.02531; Tang et al. 2019, arXiv 1903.12136).

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
import pandas as pd
from numpy.typing import NDArray

from roberta_small.common.data_folder import soft_labels_file
from roberta_small.common.errors import UserError
from roberta_small.common.files import atomic_open
from roberta_small.preprocess.labels import quoted
from roberta_small.preprocess.readers import TABLE, reader_name, tables
from roberta_small.preprocess.readers.records import Record
from roberta_small.preprocess.readers.tables import Columns

FLAG = "--soft-labels"
PROBABILITIES = "probabilities"
PREDICTED = ("prediction", "label", "note", "index", "std", "words", PROBABILITIES)
"""Columns that `roberta-small predict` adds."""
OF_CLASS = re.compile(r"p\((.+)\)")
TOLERANCE = 1e-3
"""Of the sum of the probabilities; files of other programs have few digits."""
REMEDY = "write it with: roberta-small predict --input TEXTS --with-text --out FILE.jsonl"


@dataclass(frozen=True)
class SoftLabel:
    """A text, and the probabilities of its classes, whose sum is 1."""

    record: Record
    """Its label is the most probable class."""
    probabilities: Mapping[str, float]


def read(path: str, given: Columns) -> list[SoftLabel]:
    """The texts of a file in its order; rows without text are left out.

    `given` has the columns of the labelled texts; if the file has others, they are guessed.

    Raises `UserError` with file and line for a file without texts or probabilities.
    """
    if reader_name(path) != TABLE:
        raise UserError(f"{FLAG} {path}: not a table; {REMEDY}")
    table = tables.read_table(path)
    names = [str(name) for name in table.columns]
    of_class = {name: match[1] for name in names if (match := OF_CLASS.fullmatch(name))}
    if PROBABILITIES not in names and not of_class:
        raise UserError(f"{FLAG} {path}: no column '{PROBABILITIES}' or 'p(CLASS)'; {REMEDY}")
    texts = [name for name in names if name not in of_class and name not in PREDICTED]
    if not texts:
        raise UserError(f"{FLAG} {path}: no column of texts; {REMEDY}")
    text, pair = (name if name in texts else None for name in (given.text, given.pair))
    columns = tables.choose_columns(texts, Columns(text, pair), path, needs_label=False)
    found = []
    for row, record in enumerate(tables.records(table, columns, path)):
        if not record.text.strip() or (columns.pair is not None and not record.pair):
            continue
        probabilities = _probabilities(table, row, of_class, f"{FLAG} {path}, line {record.line}")
        label = max(probabilities, key=lambda name: probabilities[name])
        found.append(SoftLabel(replace(record, label=label), probabilities))
    return found


def _probabilities(
    table: pd.DataFrame, row: int, of_class: Mapping[str, str], where: str
) -> dict[str, float]:
    """The probability of each class in a row."""
    if of_class:
        cells = {label: table[name].iloc[row] for name, label in of_class.items()}
    else:
        cells = _object(table[PROBABILITIES].iloc[row])
    try:
        values = {label: float(value) for label, value in cells.items()}
    except (TypeError, ValueError):
        values = {}
    total = sum(values.values())
    # A NaN fails both comparisons.
    if not all(value >= 0 for value in values.values()) or not abs(total - 1) <= TOLERANCE:
        raise UserError(f"{where}: not class probabilities with the sum 1: {str(cells)[:80]}; {REMEDY}")
    return {label: value / total for label, value in values.items()}


def _object(cell: str | None) -> dict[str, Any]:
    """The JSON object in a cell; empty for anything else."""
    try:
        found = json.loads(cell or "")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def check_classes(labels: Sequence[SoftLabel], known: set[str], path: str) -> None:
    """Raise `UserError` for a class that the labelled training examples do not have."""
    for label in labels:
        if unknown := sorted(set(label.probabilities) - known):
            raise UserError(
                f"{FLAG} {path}, line {label.record.line}: class {quoted(unknown[:1])} is unknown; the "
                f"labelled training examples have {quoted(sorted(known))}"
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
