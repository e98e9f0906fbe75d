"""A split of binarized data: what the network reads of each example, and its true class.

The rows come from the training task itself, so that a score here is the trainer's.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from fairseq.data import Dictionary
from numpy.typing import NDArray

from common.errors import UserError
from fairseq_plugin.task import SentenceClassificationTask, class_names, load_dictionary

from .checkpoint import Checkpoint
from .inputs import Ids


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
