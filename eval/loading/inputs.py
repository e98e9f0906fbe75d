"""The network's input, prepared as in training: format of an example, and examples of a binarized split.

Shapes: N examples.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from fairseq.data import Dictionary
from numpy.typing import NDArray

from common.data_folder import WRITE_AGAIN
from common.errors import UserError
from fairseq_plugin.tasks.language_modeling import WORD_START
from fairseq_plugin.tasks.sentence_classification import (
    SentenceClassificationTask,
    class_names,
    load_dictionary,
)
from preprocess.dictionary import EOS, UNK
from preprocess.dictionary import Dictionary as TextDictionary
from preprocess.tokenizer import Encoded

from .checkpoint import Checkpoint

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class InputFormat:
    """How token ids become the input of the network; fields are named after the options of the task."""

    init_token: int | None
    separator_token: int | None
    max_positions: int
    shorten: bool
    """Whether longer text is truncated: always at its end, even if trained with `random_crop`."""
    keep_eos: bool

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint) -> InputFormat:
        """The format that the checkpoint was trained with."""
        config = checkpoint.task_config()
        return cls(
            init_token=config.init_token,
            separator_token=config.separator_token,
            max_positions=config.max_positions,
            shorten=str(config.shorten_method) != "none",
            keep_eos=config.keep_eos,
        )

    def length(self, parts: Sequence[Ids]) -> int:
        """The number of tokens of one example before truncation; `parts` as for `assemble`."""
        starts = [self.init_token, self.separator_token][: len(parts)]
        return sum(map(len, parts)) + sum(start is not None for start in starts)

    def assemble(self, parts: Sequence[Ids], where: str) -> Ids:
        """The ids (L,) of one example, made of its one or two sentences, each ending in `</s>`.

        Raises `UserError`, naming `where`, if the example is too long and training did not truncate.
        """
        starts = [self.init_token, self.separator_token]
        row_parts: list[Ids] = []
        for start, part in zip(starts, parts, strict=False):
            if start is not None:
                row_parts.append(np.array([start], dtype=np.int64))
            row_parts.append(part)
        row = np.concatenate(row_parts).astype(np.int64)
        if len(row) <= self.max_positions:
            return row
        if not self.shorten:
            raise UserError(
                f"{where}: {len(row)} tokens, but the checkpoint has {self.max_positions} positions "
                "and was trained without --shorten-method truncate; shorten the text"
            )
        row = row[: self.max_positions]
        if self.keep_eos:
            row[-1] = EOS if self.separator_token is None else self.separator_token
        return row


def check_texts(texts: object) -> None:
    """Raise `TypeError` for one string instead of several texts, because its characters would be texts."""
    if isinstance(texts, str | bytes):
        raise TypeError("one string instead of a list of texts: write [text]")


def text_notes(encoded: Sequence[Encoded], dictionary: TextDictionary) -> list[str]:
    """What is suspicious about each of N texts: "", "empty", or "unknown tokens: 80 %".

    `encoded` has one entry, or two for pairs: the N first and the N second sentences. A pair is empty if one
    of its sentences has no token. Unknown tokens are noted if they are more than half of all tokens, before
    truncation. A token that is only SentencePiece's character for a space does not count.
    """
    sizes_PN = np.stack([part.sizes - 1 for part in encoded])
    unknown_N, known_N = np.zeros((2, sizes_PN.shape[1]), dtype=np.int64)
    space = dictionary.index.get(WORD_START)
    for part in encoded:
        text_T = np.repeat(np.arange(len(part.sizes)), part.sizes)
        closing_T = np.zeros(len(part.ids), dtype=bool)
        closing_T[np.cumsum(part.sizes) - 1] = True
        unknown_T = part.ids == UNK
        known_T = ~unknown_T & ~closing_T & (part.ids != (-1 if space is None else space))
        unknown_N += np.bincount(text_T[unknown_T], minlength=len(part.sizes))
        known_N += np.bincount(text_T[known_T], minlength=len(part.sizes))
    fraction_N = unknown_N / np.maximum(unknown_N + known_N, 1)
    empty_N = (sizes_PN == 0).any(axis=0)
    return [
        "empty" if empty else f"unknown tokens: {100 * fraction:.0f} %" if fraction > 0.5 else ""
        for empty, fraction in zip(empty_N.tolist(), fraction_N.tolist(), strict=True)
    ]


@dataclass(frozen=True)
class Examples:
    """The examples of a split, in the order of its text."""

    rows: list[Ids]
    labels: NDArray[np.int64]
    """(N,) index of the true class, in the order of the checkpoint's classes."""


def read_split(
    checkpoint: Checkpoint,
    dictionary: Dictionary,
    classes: list[str],
    data: str | os.PathLike[str],
    split: str,
) -> Examples:
    """Read `split` of the folder `data` with the checkpoint's task.

    `classes` are the checkpoint's class names. Labels are matched to them by name, because data folders may
    number classes differently. Raises `UserError` for missing or malformed data, an example that is too long,
    and a class that the checkpoint does not have.
    """
    label_path = Path(data) / "label" / "dict.txt"
    label_dictionary = load_dictionary(label_path)
    task = SentenceClassificationTask(checkpoint.task_config(str(data)), dictionary, label_dictionary)
    dataset = task.load_dataset(split)
    items = [dataset[i] for i in range(len(dataset))]
    rows = [item["net_input.src_tokens"].numpy() for item in items]
    labels_N = np.array([int(item["target"]) for item in items])
    names = class_names(label_dictionary)
    index = {name: k for k, name in enumerate(classes)}
    for number, k in enumerate(labels_N.tolist(), start=1):
        if names[k] not in index:
            raise UserError(
                f"{label_path}: the class '{names[k]}' of sentence {number} of {split} is not one of "
                f"{', '.join(classes)}, the classes of {checkpoint.path}; "
                f"correct the labels and {WRITE_AGAIN}"
            )
    return Examples(rows, np.array([index.get(name, -1) for name in names])[labels_N])
