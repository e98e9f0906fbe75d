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

from common.files import atomic_open, errors_named_after

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

    Use it as a context manager: `.bin` and `.idx` appear on leaving without an error. Raises `UserError`
    where one cannot be written (the disk is full); a part of a file is never left.
    """

    def __init__(self, prefix: Path, vocabulary_size: int) -> None:
        self.prefix = prefix
        self.dtype = id_dtype(vocabulary_size)
        self.sizes: list[NDArray[np.int32]] = []
        self.sentences = self.tokens = self.unknown = 0
        self._bin_path = f"{prefix}.bin"
        self._bin_file = atomic_open(self._bin_path, "wb")

    def __enter__(self) -> IndexedWriter:
        self._bin = self._bin_file.__enter__()
        return self

    def add(self, ids: NDArray[np.integer], sizes: NDArray[np.integer]) -> None:
        """Append sentences: ids (tokens,), sizes (sentences,) in tokens, with `sizes.sum() == len(ids)`."""
        with errors_named_after(self._bin_path):  # here, as several writers may be open at once
            self._bin.write(ids.astype(self.dtype, copy=False).tobytes())
        self.sizes.append(sizes.astype("<i4"))
        self.sentences += len(sizes)
        self.tokens += len(ids)
        self.unknown += int(np.count_nonzero(ids == UNK))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bin_file.__exit__(kind, error, trace)
        if error is None:
            self._write_index()

    def _write_index(self) -> None:
        with atomic_open(f"{self.prefix}.idx", "wb") as stream:
            stream.write(MAGIC + struct.pack("<QBQ", VERSION, DTYPE_CODES[self.dtype], self.sentences))
            for sizes in self.sizes:
                stream.write(sizes.tobytes())
            end = 0
            for sizes in self.sizes:  # as they came: offsets of all at once would take thrice their memory
                ends = end + np.cumsum(sizes, dtype="<i8") * self.dtype.itemsize
                stream.write((ends - sizes.astype("<i8") * self.dtype.itemsize).tobytes())
                end = int(ends[-1]) if len(ends) else end
