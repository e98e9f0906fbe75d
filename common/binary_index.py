"""The header of fairseq's index files (`.idx` of the data format `mmap`), written and read without fairseq.

    magic (9 bytes), version 1 (uint64), code of the ids' dtype (uint8), number of sentences N (uint64);
    then the sizes in tokens (int32, N) and the byte offsets in `.bin` (int64, N), all little-endian

Same bytes as `MMapIndexedDatasetBuilder` in `fairseq/data/indexed_dataset.py` of fairseq 0.12.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass

import numpy as np

MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
OTHER_MAGIC = (b"TNTIDX\0\0", b"HUFFIDX\0")
"""First bytes of the other index formats that fairseq reads."""
ID_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 8: 2, 9: 4, 10: 8}
"""Bytes of an id by the code of its type, integer types only."""
DTYPE_CODES = {np.dtype("<u2"): 8, np.dtype("<u4"): 9}
SIZE = np.dtype("<i4")
OFFSET = np.dtype("<i8")

_LAYOUT = struct.Struct("<9sQBQ")
HEADER_BYTES = _LAYOUT.size


@dataclass(frozen=True)
class Header:
    """The fields that differ between files."""

    code: int
    """Of the ids' type, as in `ID_BYTES`."""
    sentences: int

    def pack(self) -> bytes:
        """The header's bytes."""
        return _LAYOUT.pack(MAGIC, VERSION, self.code, self.sentences)


def read_header(path: str | os.PathLike[str]) -> Header | None:
    """The header of an index file; None where the file does not begin with a complete one."""
    with open(path, "rb") as stream:
        content = stream.read(HEADER_BYTES)
    if len(content) < HEADER_BYTES:
        return None
    magic, version, code, sentences = _LAYOUT.unpack(content)
    valid = magic == MAGIC and version == VERSION and code in ID_BYTES
    return Header(code, sentences) if valid else None


def is_index(path: str | os.PathLike[str]) -> bool:
    """Whether `path` is an index of fairseq: complete, and each sentence begins where the previous one ends.

    fairseq trusts the offsets: a wrong one would silently select other tokens. Of the formats other than
    `mmap` only the first bytes are checked.
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
