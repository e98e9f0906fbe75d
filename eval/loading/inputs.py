"""The examples of a binarized split, with the ids of training.

Shapes: N examples.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from fairseq.data import Dictionary
from numpy.typing import NDArray

from roberta_small.common.data_folder import WRITE_AGAIN
from roberta_small.common.errors import UserError
from roberta_small.eval.loading.checkpoint import Checkpoint
from roberta_small.eval.texts import Ids
from roberta_small.fairseq_plugin.tasks.sentence_classification import (
    SentenceClassificationTask,
    class_names,
    load_dictionary,
)


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
