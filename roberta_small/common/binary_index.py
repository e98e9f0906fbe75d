"""fairseq's index files (`.idx` of the data format `mmap`), written and read without fairseq.

    header    magic (9 bytes), version 1 (uint64), code of the ids' dtype (uint8), sentences N (uint64)
    body      sizes in tokens (int32, N), byte offsets in `.bin` (int64, N)

All values are little-endian. The bytes are those of `MMapIndexedDatasetBuilder` in
`fairseq/data/indexed_dataset.py` of fairseq 0.12.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
OTHER_MAGIC = (b"TNTIDX\0\0", b"HUFFIDX\0")
"""First bytes of the other index formats that fairseq reads."""
ID_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 8: 2, 9: 4, 10: 8}
"""Bytes of an id, by the code of its dtype; integer types only."""
DTYPE_CODES = {np.dtype("<u2"): 8, np.dtype("<u4"): 9}
SIZE = np.dtype("<i4")
OFFSET = np.dtype("<i8")

_LAYOUT = struct.Struct("<9sQBQ")
HEADER_BYTES = _LAYOUT.size


@dataclass(frozen=True)
class Header:
    """The header fields that differ between files."""

    code: int
    """Code of the ids' dtype, a key of `ID_BYTES`."""
    sentences: int

    def pack(self) -> bytes:
        """The header as bytes."""
        return _LAYOUT.pack(MAGIC, VERSION, self.code, self.sentences)


def read_header(path: str | os.PathLike[str]) -> Header | None:
    """Read the header of an index file; None if the file does not begin with a valid header."""
    with open(path, "rb") as stream:
        content = stream.read(HEADER_BYTES)
    if len(content) < HEADER_BYTES:
        return None
    magic, version, code, sentences = _LAYOUT.unpack(content)
    valid = magic == MAGIC and version == VERSION and code in ID_BYTES
    return Header(code, sentences) if valid else None


def read_sizes(path: str | os.PathLike[str]) -> NDArray[np.int32] | None:
    """Tokens of each sentence, (N,); None if the file is not an index of this format."""
    header = read_header(path)
    return None if header is None else np.fromfile(path, SIZE, header.sentences, offset=HEADER_BYTES)


def is_index(path: str | os.PathLike[str]) -> bool:
    """Whether `path` is a valid index: complete, and each sentence begins where the previous one ends.

    fairseq does not check offsets, so a wrong one silently selects other tokens. For index formats other than
    `mmap`, only the first bytes are checked.
    """
    with open(path, "rb") as stream:
        if stream.read(len(OTHER_MAGIC[0])).startswith(OTHER_MAGIC):
            return True
    header = read_header(path)
    body_bytes = os.path.getsize(path) - HEADER_BYTES
    if header is None or body_bytes != (SIZE.itemsize + OFFSET.itemsize) * header.sentences:
        return False
    body = np.fromfile(path, np.uint8, offset=HEADER_BYTES)
    sizes_end = SIZE.itemsize * header.sentences
    sizes, offsets = body[:sizes_end].view(SIZE), body[sizes_end:].view(OFFSET)
    id_bytes = ID_BYTES[header.code]
    ends = np.cumsum(sizes, dtype=np.int64) * id_bytes
    return bool((sizes >= 0).all() and np.array_equal(offsets, ends - sizes.astype(np.int64) * id_bytes))
