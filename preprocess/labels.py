"""Label files: one word a line, line by line beside the text."""

from __future__ import annotations

from collections.abc import Iterator

from common.errors import UserError

from . import dictionary as fairseq_dictionary
from .dictionary import PADDING_PREFIX, SPECIALS, Dictionary
from .readers.lines import read_text_lines


def read_labels(path: str) -> Iterator[str]:
    """The label of each line; raises `UserError` with file and line unless it is one word."""
    for number, line in enumerate(read_text_lines(path), start=1):
        yield checked_label(line, path, number)


def checked_label(text: str, path: str, line: int) -> str:
    """The label in a field of a file; raises `UserError` with file and line unless it is one word."""
    words = text.split()
    if len(words) != 1:
        found = f"'{text[:60]}' is {len(words)} words" if words else "no label"
        raise UserError(f"{path}, line {line}: {found}; write one word a line")
    if words[0] in SPECIALS or words[0].startswith(PADDING_PREFIX):
        raise UserError(f"{path}, line {line}: '{words[0]}' is reserved by fairseq; rename the label")
    return words[0]


def label_dictionary(path: str) -> Dictionary:
    """The classes of a training set, as `fairseq-preprocess` numbers them."""
    labels = list(read_labels(path))
    if not labels:
        raise UserError(f"{path}: empty; write one word a line, the label of each line of text")
    return fairseq_dictionary.build(labels)


def class_names(labels: Dictionary) -> list[str]:
    """The names in id order, without the symbols fairseq pads a dictionary with."""
    return [name for name in labels.names() if labels.counts[labels.index[name]] > 0]


def label_ids(path: str, labels: Dictionary, train_path: str) -> list[int]:
    """The dictionary's id of each line; raises `UserError` for a label missing in the training set."""
    ids = []
    for number, label in enumerate(read_labels(path), start=1):
        if label not in labels.index:
            raise UserError(
                f"{path}, line {number}: label '{label}' does not occur in {train_path}, "
                f"which has: {', '.join(class_names(labels))}"
            )
        ids.append(labels.index[label])
    return ids


def check_line_counts(text_path: str, lines: int, label_path: str | None, labels: int | None) -> None:
    """Raise `UserError` unless there is text and, where there are labels, one for each line of it."""
    if lines == 0:
        raise UserError(f"{text_path}: no text; give a file with one sentence a line")
    if labels is not None and lines != labels:
        raise UserError(
            f"{text_path} has {lines:,} lines but {label_path} has {labels:,}; both need one line an example"
        )
