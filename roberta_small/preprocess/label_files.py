"""Line files of labels -> `label/` of a data folder, as fairseq's tasks read it.

single_label_classification   dict.txt, SPLIT.bin, SPLIT.idx: the id of the class and </s>
multi_label_classification    the same files: the ids of the classes, if there are any, and </s>
regression                    SPLIT.label: one number a line, as fairseq's --regression-target reads it
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from roberta_small.common.errors import UserError
from roberta_small.common.files import atomic_write
from roberta_small.common.label_kinds import KIND, REGRESSION, SCALING, LabelKind, Scaling
from roberta_small.preprocess import dictionary as fairseq_dictionary
from roberta_small.preprocess.dictionary import EOS, Dictionary
from roberta_small.preprocess.indexed import IndexedWriter
from roberta_small.preprocess.label_cells import read_line
from roberta_small.preprocess.labels import class_names
from roberta_small.preprocess.readers.lines import read_text_lines


def write_labels(
    files: Mapping[str, str], folder: Path, kind: LabelKind
) -> tuple[dict[str, Any], dict[str, int]]:
    """Write the labels of all splits (name -> file, the training set first).

    Returns what a report records about the labels, and the number of labels in each split. Raises `UserError`
    with file and line for a malformed label, and for one that the training set does not have.
    """
    if kind.name == REGRESSION:
        return _write_numbers(files, folder, kind)
    rows = {split: label_rows(path, kind) for split, path in files.items()}
    train_path = next(iter(files.values()))
    if not rows[next(iter(files))]:
        raise UserError(f"{train_path}: empty; write one label per line of text")
    labels = fairseq_dictionary.build(label for row in rows[next(iter(files))] for label in row)
    for split, path in files.items():
        with IndexedWriter(folder / split, len(labels)) as writer:
            ids = _ids(rows[split], labels, path, train_path)
            sizes = np.array([len(row) + 1 for row in rows[split]], dtype=np.int64)
            writer.add(np.array(ids, dtype=np.int32), sizes)
    atomic_write(folder / "dict.txt", labels.text())
    recorded = {} if kind.exclusive else {KIND: kind.name}
    return {"labels": class_names(labels), **recorded}, {split: len(found) for split, found in rows.items()}


def label_rows(path: str, kind: LabelKind) -> list[Any]:
    """The classes of each line, or its number; raises `UserError` with file and line for another label."""
    return [read_line(line, kind, path, number) for number, line in enumerate(read_text_lines(path), start=1)]


def _ids(rows: list[list[str]], labels: Dictionary, path: str, train_path: str) -> list[int]:
    """The ids of all lines: for each line those of its labels, ascending, and `</s>`."""
    found: list[int] = []
    for number, row in enumerate(rows, start=1):
        for label in row:
            if label not in labels.index:
                raise UserError(
                    f"{path}, line {number}: label '{label}' does not occur in {train_path}, "
                    f"which has: {', '.join(class_names(labels))}"
                )
        found += [*sorted(labels.index[label] for label in row), EOS]
    return found


def _write_numbers(
    files: Mapping[str, str], folder: Path, kind: LabelKind
) -> tuple[dict[str, Any], dict[str, int]]:
    values = {split: label_rows(path, kind) for split, path in files.items()}
    train = next(iter(files))
    if not values[train]:
        raise UserError(f"{files[train]}: empty; write one number per line of text")
    folder.mkdir(parents=True, exist_ok=True)
    for split, numbers in values.items():
        atomic_write(folder / f"{split}.label", "".join(f"{value!r}\n" for value in numbers))
    recorded = {"labels": [], KIND: kind.name, SCALING: Scaling.of(values[train]).record()}
    return recorded, {split: len(numbers) for split, numbers in values.items()}
