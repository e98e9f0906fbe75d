"""The labelled text of a folder, as `python -m preprocess split` and `sample` write it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from common.errors import UserError
from preprocess.labels import check_line_counts, class_names, label_dictionary, read_labels
from preprocess.text import read_text_lines

SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class Split:
    """The examples of one split, line by line."""

    texts: list[str]
    labels: list[str]


@dataclass(frozen=True)
class Splits:
    """All splits; `classes` are those of train in the order of the label dictionary."""

    train: Split
    valid: Split
    test: Split
    classes: list[str]

    def items(self) -> list[tuple[str, Split]]:
        """Each split with its name."""
        return [(name, getattr(self, name)) for name in SPLITS]


def file_names() -> list[str]:
    """What is read of a folder."""
    return [f"{split}.{kind}" for split in SPLITS for kind in ("input0", "label")]


def read_folder(folder: Path) -> Splits:
    """The examples of train, valid and test.

    Raises `UserError` for a missing file, texts and labels that do not match line by line, sentence pairs, a
    single class, and a class in valid or test that train lacks.
    """
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; make one with python -m preprocess split (or sample)")
    lacking = [name for name in file_names() if not (folder / name).is_file()]
    if lacking:
        raise UserError(
            f"{folder}: lacks {', '.join(lacking)}; make the folder with python -m preprocess split, "
            "and name --test-text and --test-label"
        )
    if (folder / "train.input1").exists():
        raise UserError(f"{folder}: has sentence pairs (train.input1); this baseline reads single texts")
    splits = {name: _read_split(folder, name) for name in SPLITS}
    classes = class_names(label_dictionary(str(folder / "train.label")))
    if len(classes) < 2:
        raise UserError(f"{folder / 'train.label'}: every label is {classes[0]}; a classifier needs two")
    for name in ("valid", "test"):
        _refuse_unknown(folder, name, splits[name].labels, classes)
    return Splits(**splits, classes=classes)


def _read_split(folder: Path, name: str) -> Split:
    text_path, label_path = str(folder / f"{name}.input0"), str(folder / f"{name}.label")
    split = Split(list(read_text_lines(text_path)), list(read_labels(label_path)))
    check_line_counts(text_path, len(split.texts), label_path, len(split.labels))
    return split


def _refuse_unknown(folder: Path, name: str, labels: list[str], classes: list[str]) -> None:
    for number, label in enumerate(labels, start=1):
        if label not in classes:
            raise UserError(
                f"{folder / f'{name}.label'}, line {number}: class '{label}' does not occur in train.label, "
                f"which has: {', '.join(classes)}"
            )
