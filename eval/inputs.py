"""From the ids of a text to what the network reads, as the task makes it in training (task.py there)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from fairseq.data import Dictionary
from numpy.typing import NDArray

from common.errors import UserError
from fairseq_plugin.tasks.sentence_classification import (
    SentenceClassificationTask,
    class_names,
    load_dictionary,
)
from preprocess.dictionary import EOS

from .checkpoint import Checkpoint

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class InputFormat:
    """The task's settings that concern the input, under their names there."""

    init_token: int | None
    separator_token: int | None
    max_positions: int
    shorten: bool
    """Whether longer text is cut. `random_crop` is cut at its end here, so that an answer can be repeated."""
    keep_eos: bool

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> InputFormat:
        """As the checkpoint was trained."""
        config = checkpoint.task_config()
        return cls(
            init_token=config.init_token,
            separator_token=config.separator_token,
            max_positions=config.max_positions,
            shorten=str(config.shorten_method) != "none",
            keep_eos=config.keep_eos,
        )

    def assemble(self, parts: Sequence[Ids], where: str) -> Ids:
        """(tokens,) of one example from the ids of its one or two sentences, each ending in `</s>`.

        Raises `UserError` naming `where` for an example that is too long, where training did not cut.
        """
        starts = [self.init_token, self.separator_token]
        pieces: list[Ids] = []
        for start, part in zip(starts, parts, strict=False):
            if start is not None:
                pieces.append(np.array([start], dtype=np.int64))
            pieces.append(part)
        row = np.concatenate(pieces).astype(np.int64)
        if len(row) <= self.max_positions:
            return row
        if not self.shorten:
            raise UserError(
                f"{where}: {len(row)} tokens, more than the {self.max_positions} that the checkpoint reads, "
                "and it was trained without --shorten-method truncate; shorten the text"
            )
        row = row[: self.max_positions]
        if self.keep_eos:
            row[-1] = EOS
        return row


# --- A split of binarized data: what the network reads of each example, and its true class.


@dataclass(frozen=True)
class Examples:
    """N examples in the order of the files."""

    rows: list[Ids]
    gold: NDArray[np.int64]
    """(N,) index of the true class among the checkpoint's."""


def read_split(
    checkpoint: Checkpoint,
    dictionary: Dictionary,
    classes: list[str],
    data: str | os.PathLike[str],
    split: str,
) -> Examples:
    """Read `split` of the folder `data` as the checkpoint's task does; `classes` are the checkpoint's.

    Classes are matched by name: another data folder may number them differently. Raises `UserError` for data
    that are missing, malformed or too long, and for a true class that the checkpoint does not know.
    """
    label_path = Path(data) / "label" / "dict.txt"
    labels = load_dictionary(label_path)
    task = SentenceClassificationTask(checkpoint.task_config(str(data)), dictionary, labels)
    dataset = task.load_dataset(split)
    items = [dataset[i] for i in range(len(dataset))]
    rows = [item["net_input.src_tokens"].numpy() for item in items]
    gold_N = np.array([int(item["target"]) for item in items])
    names = class_names(labels)
    index = {name: k for k, name in enumerate(classes)}
    for number, k in enumerate(gold_N.tolist(), start=1):
        if names[k] not in index:
            raise UserError(
                f"{label_path}: the class '{names[k]}' of sentence {number} of {split} is none of "
                f"{', '.join(classes)}, which {checkpoint.path} knows; correct the labels, binarize again"
            )
    return Examples(rows, np.array([index.get(name, -1) for name in names])[gold_N])
