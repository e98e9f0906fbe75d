"""Batches of sentences of about the same length, under a budget of tokens."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray


def batches(lengths: NDArray[np.int64], max_tokens: int) -> Iterator[NDArray[np.int64]]:
    """Indices of each batch, longest sentences first; every sentence is in exactly one.

    A batch of B sentences, the longest of L tokens, has B * L <= `max_tokens`, padding counted; a sentence
    that is longer than the budget is a batch of its own. The longest first: if memory is too small, the
    first batch says so.
    """
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        size = max(1, max_tokens // max(1, int(lengths[order[start]])))
        yield order[start : start + size]
        start += size


def pad(rows: list[NDArray[np.int64]], padding: int) -> NDArray[np.int64]:
    """Rows of ids -> (B, L) int64, filled up on the right."""
    padded_BL = np.full((len(rows), max(map(len, rows))), padding, dtype=np.int64)
    for row_L, ids in zip(padded_BL, rows, strict=True):
        row_L[: len(ids)] = ids
    return padded_BL
