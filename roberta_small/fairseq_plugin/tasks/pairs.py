"""Sentence pairs that are too long: the longer sentence is shortened first (`kept_lengths`)."""

from __future__ import annotations

import numpy as np
import torch
from fairseq.data import BaseWrapperDataset, FairseqDataset

from roberta_small.preprocess.tokenization.encoder import kept_lengths


class ShortenedPairsDataset(BaseWrapperDataset):
    """Pairs of at most `longest` tokens: (L,), int64.

    Args:
        first, second: the sentences with their special tokens; the last token is `</s>`.
        starts: number of special tokens before each sentence.
        longest: maximum number of tokens, special tokens included.
    """

    def __init__(
        self, first: FairseqDataset, second: FairseqDataset, starts: tuple[int, int], longest: int
    ) -> None:
        super().__init__(first)
        self.second, self.starts, self.longest = second, starts, longest
        self._sizes = np.minimum(first.sizes + second.sizes, longest)

    def __getitem__(self, index: int) -> torch.Tensor:
        """The pair with its special tokens."""
        parts = self.dataset[index], self.second[index]
        special = [start + 1 for start in self.starts]
        first, second = (len(part) - own for part, own in zip(parts, special, strict=True))
        kept = kept_lengths(first, second, max(0, self.longest - sum(special)))
        rows = [
            torch.cat([part[: start + size], part[-1:]])
            for part, start, size in zip(parts, self.starts, kept, strict=True)
        ]
        return torch.cat(rows)[: self.longest]

    @property
    def sizes(self) -> np.ndarray:
        """(N,) the number of tokens of each pair."""
        return self._sizes

    def num_tokens(self, index: int) -> int:
        """The number of tokens of a pair."""
        return int(self._sizes[index])

    def size(self, index: int) -> int:
        """The number of tokens of a pair."""
        return int(self._sizes[index])
