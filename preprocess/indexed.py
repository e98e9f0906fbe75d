"""fairseq's binary data format `mmap`: token ids in PREFIX.bin, their sentences in PREFIX.idx.

    .bin  all ids one after the other, little-endian
    .idx  magic (9 bytes), version 1 (uint64), code of the ids' dtype (uint8), number of sentences (uint64),
          their sizes in tokens (int32 each), their byte offsets in .bin (int64 each)

Same bytes as `MMapIndexedDatasetBuilder` in `fairseq/data/indexed_dataset.py` of fairseq 0.12.
"""

from __future__ import annotations

import struct
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from .dictionary import UNK

MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
DTYPE_CODES = {np.dtype("<u2"): 8, np.dtype("<u4"): 9}
LARGEST_UINT16_VOCABULARY = 65500  # fairseq's own margin, from this size on ids take four bytes


def id_dtype(vocabulary_size: int) -> np.dtype:
    """The type fairseq stores ids of such a vocabulary in."""
    return np.dtype("<u2" if vocabulary_size < LARGEST_UINT16_VOCABULARY else "<u4")


class IndexedWriter:
    """Writes one split as a stream; only the sentence sizes (4 bytes each) are kept in memory.

    Use it as a context manager: `.idx` is written on leaving without an error.
    """

    def __init__(self, prefix: Path, vocabulary_size: int) -> None:
        self.prefix = prefix
        self.dtype = id_dtype(vocabulary_size)
        self.sizes: list[NDArray[np.int32]] = []
        self.sentences = self.tokens = self.unknown = 0

    def __enter__(self) -> IndexedWriter:
        self.prefix.parent.mkdir(parents=True, exist_ok=True)
        self._bin = open(f"{self.prefix}.bin", "wb")
        return self

    def add(self, ids: NDArray[np.integer], sizes: NDArray[np.integer]) -> None:
        """Append sentences: ids (tokens,), sizes (sentences,) in tokens, with `sizes.sum() == len(ids)`."""
        ids.astype(self.dtype, copy=False).tofile(self._bin)
        self.sizes.append(sizes.astype("<i4"))
        self.sentences += len(sizes)
        self.tokens += len(ids)
        self.unknown += int(np.count_nonzero(ids == UNK))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bin.close()
        if error is None:
            self._write_index()

    def _write_index(self) -> None:
        sizes = np.concatenate([np.empty(0, "<i4"), *self.sizes])
        ends = np.cumsum(sizes, dtype="<i8") * self.dtype.itemsize
        offsets = ends - sizes.astype("<i8") * self.dtype.itemsize
        with open(f"{self.prefix}.idx", "wb") as stream:
            stream.write(MAGIC + struct.pack("<QBQ", VERSION, DTYPE_CODES[self.dtype], len(sizes)))
            sizes.tofile(stream)
            offsets.tofile(stream)
