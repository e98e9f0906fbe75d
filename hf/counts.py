"""Loss and confusion counts summed up over batches: the project's metrics of a classifier.

B sentences, K classes.
"""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_plugin.criterion import STATISTICS, cell_counts


class Counts:
    """A sum that starts at zero."""

    def __init__(self, classes: int) -> None:
        self._classes = classes
        self.clear()

    def clear(self) -> None:
        """Start again."""
        self._loss: Tensor | float = 0.0
        self._cells: Tensor | int = 0
        self._tokens: Tensor | int = 0
        self.sentences = 0

    @torch.no_grad()
    def add(self, logits_BK: Tensor, gold_B: Tensor, tokens: Tensor | int = 0) -> None:
        """A batch; nothing waits for the GPU here."""
        self._loss = self._loss + F.cross_entropy(logits_BK.float(), gold_B, reduction="sum")
        self._cells = self._cells + cell_counts(gold_B, logits_BK.argmax(dim=-1), self._classes)
        self.sentences += len(gold_B)
        self._tokens = self._tokens + tokens

    @property
    def tokens(self) -> int:
        """Without padding."""
        return int(self._tokens)

    @property
    def loss(self) -> float:
        """Mean cross-entropy in bits, as fairseq logs it."""
        return float(self._loss) / max(self.sentences, 1) / math.log(2)

    def metrics(self) -> dict[str, float]:
        """`loss`, `accuracy` (percent, unrounded), `macro_f1` and `mcc`."""
        matrix_KK = np.zeros((self._classes, self._classes), dtype=np.int64)
        if isinstance(self._cells, Tensor):
            matrix_KK = self._cells.cpu().numpy().reshape(self._classes, self._classes)
        return {"loss": self.loss} | {name: statistic(matrix_KK) for name, statistic in STATISTICS.items()}
