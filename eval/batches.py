"""Rows of token ids to logits in batches of similar length, and logits to probabilities.

Shapes: N examples, K classes; B sentences in a batch, L tokens in the longest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from roberta_small.eval.texts import Ids
from roberta_small.preprocess.dictionary import PAD

MAX_TOKENS = 4096
"""Default tokens of a batch, including padding."""
Compute = Callable[[NDArray[np.int64]], NDArray[np.float32]]
"""(B, L) padded ids -> (B, K) logits."""


def logits_of(
    rows: Sequence[Ids], compute: Compute, classes: int, *, max_tokens: int, progress: str | None = None
) -> NDArray[np.float32]:
    """The logits (N, K) of rows of ids, in their order; `progress` is the title of a progress bar."""
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    logits_NK = np.empty((len(rows), classes), dtype=np.float32)
    with tqdm(total=len(rows), desc=progress, leave=False, disable=None if progress else True) as bar:
        for batch in batches(lengths, max_tokens):
            logits_NK[batch] = compute(pad([rows[i] for i in batch]))
            bar.update(len(batch))
    return logits_NK


def probabilities(logits_NK: NDArray[np.float32]) -> NDArray[np.float64]:
    """Softmax over the classes, (N, K) float64."""
    logits_NK = logits_NK.astype(np.float64)
    powers_NK = np.exp(logits_NK - logits_NK.max(axis=-1, keepdims=True))
    return powers_NK / powers_NK.sum(axis=-1, keepdims=True)


def batches(lengths: NDArray[np.int64], max_tokens: int) -> Iterator[NDArray[np.int64]]:
    """Yield the indices of each batch; every sentence is in exactly one.

    A batch of B sentences of up to L tokens has B * L <= `max_tokens`, padding included; a longer sentence is
    a batch of its own. The longest sentences come first, so that a lack of memory shows at once.
    """
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        size = max(1, max_tokens // max(1, int(lengths[order[start]])))
        yield order[start : start + size]
        start += size


def pad(rows: Sequence[NDArray[np.int64]], padding: int = PAD) -> NDArray[np.int64]:
    """Rows of ids -> (B, L) int64, padded on the right."""
    padded_BL = np.full((len(rows), max(map(len, rows))), padding, dtype=np.int64)
    for row_L, ids in zip(padded_BL, rows, strict=True):
        row_L[: len(ids)] = ids
    return padded_BL
