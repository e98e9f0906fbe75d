"""Binarized sentences for the Transformers Trainer: the ids that fairseq reads, padded batch by batch.

B sentences of at most L tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairseq_plugin.task import SentenceClassificationTask

Item = dict[str, Tensor]


@dataclass(frozen=True)
class Sentences(torch.utils.data.Dataset):
    """One split, in the order of its files: `input_ids` int64 (L,), with `<s>`, cut; `labels` int64 ()."""

    rows: list[Tensor]
    gold: NDArray[np.int64]
    """(N,) index of the true class."""

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Item:
        return {"input_ids": self.rows[index], "labels": torch.tensor(self.gold[index])}

    def by_length(self) -> NDArray[np.int64]:
        """(N,) the positions, longest sentence first: batches in this order hold little padding."""
        return np.argsort([-len(row) for row in self.rows], kind="stable")


def read_sentences(task: SentenceClassificationTask, split: str) -> Sentences:
    """Read a split as the task does in training; raises `UserError` for what is missing or malformed."""
    dataset = task.load_dataset(split)
    items = [dataset[i] for i in range(len(dataset))]
    gold_N = np.array([int(item["target"]) for item in items], dtype=np.int64)
    return Sentences([item["net_input.src_tokens"] for item in items], gold_N)


@dataclass(frozen=True)
class Pad:
    """Collator: pads on the right to the longest sentence of the batch."""

    pad: int

    def __call__(self, items: Sequence[Item]) -> Item:
        """`input_ids` and `attention_mask`, int64 (B, L), and `labels`, int64 (B,)."""
        rows = [item["input_ids"] for item in items]
        ids_BL = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=self.pad)
        labels_B = torch.stack([item["labels"] for item in items])
        return {"input_ids": ids_BL, "attention_mask": (ids_BL != self.pad).long(), "labels": labels_B}
