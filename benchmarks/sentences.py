"""Sentences of a binarized folder, and the order in which fairseq trains on them.

Other trainers get the same sentences in the same batches through this.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

HEADER = struct.Struct("<9sQBQ")
"""Of a .idx file: magic, version, code of the ids' type, number of sentences."""
MULTIPLE = 8
"""fairseq's --required-batch-size-multiple."""
ID_TYPES = {8: np.dtype("<u2"), 9: np.dtype("<u4"), 4: np.dtype("<i4"), 5: np.dtype("<i8")}


def read_sizes(prefix: Path) -> NDArray[np.int32]:
    """Tokens of each sentence of PREFIX.idx, (sentences,)."""
    with open(f"{prefix}.idx", "rb") as stream:
        *_, count = HEADER.unpack(stream.read(HEADER.size))
        return np.fromfile(stream, "<i4", count)


def read_sentences(prefix: Path, *, first: int, longest: int) -> list[NDArray[np.int64]]:
    """Ids of each sentence of PREFIX.bin with `first` prepended, truncated to `longest` as in fairseq."""
    with open(f"{prefix}.idx", "rb") as stream:
        _, _, code, _ = HEADER.unpack(stream.read(HEADER.size))
    tokens = np.fromfile(f"{prefix}.bin", ID_TYPES[code]).astype(np.int64)
    sentences = np.split(tokens, np.cumsum(read_sizes(prefix))[:-1])
    return [np.concatenate([[first], sentence])[:longest] for sentence in sentences]


def fairseq_batches(
    sentences: int,
    *,
    batch_size: int,
    seed: int,
    updates: int,
    sizes: NDArray[np.integer] | None = None,
) -> list[list[int]]:
    """Sentences of each of the first updates of a task that shuffles them, such as sentence_prediction.

    fairseq permutes the sentences (`SentencePredictionTask.load_dataset`), cuts batches and permutes
    these with the seed plus the epoch (`EpochBatchIterator._get_iterator_for_epoch`). With `sizes`, as the
    task language_modeling does it: the shortest first, those of one size permuted
    (`MonolingualDataset.ordered_indices`, with the seed plus 1). A last batch that is not full is cut to a
    multiple of 8 (`batch_by_size`).
    """
    permuted = np.random.RandomState(seed if sizes is None else seed + 1).permutation(sentences)
    # SortDataset sorts by the permutation's values.
    order = np.lexsort([permuted] if sizes is None else [permuted, sizes]).tolist()
    batches = [order[start : start + batch_size] for start in range(0, sentences, batch_size)]
    if (kept := len(batches[-1]) // MULTIPLE * MULTIPLE) < len(batches[-1]) < batch_size:
        batches[-1:] = [batches[-1][:kept]] if kept else []
    epochs: list[list[int]] = []
    while len(epochs) < updates:
        shuffled = list(batches)
        np.random.RandomState(seed + 1 + len(epochs) // len(batches)).shuffle(shuffled)
        epochs += shuffled
    return epochs[:updates]


def by_length(batches: list[list[int]], sizes: NDArray[np.integer], seed: int) -> list[list[int]]:
    """The same sentences in batches of similar length, in random order."""
    size = len(batches[0])
    order = sorted((index for batch in batches for index in batch), key=lambda index: sizes[index])
    grouped = [order[start : start + size] for start in range(0, len(order), size)]
    np.random.RandomState(seed).shuffle(grouped)
    return grouped
