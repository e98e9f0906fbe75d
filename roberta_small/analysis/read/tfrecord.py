"""Find the valid and the corrupt records of TFRecord files.

A file is a sequence of records; numbers are little endian:

    uint64  length of the data
    uint32  masked CRC-32C of the length
    bytes   data
    uint32  masked CRC-32C of the data

(TensorFlow, `tensorflow/core/lib/io/record_writer.h`.) TensorBoard's own reader stops at the first corrupt
record. Here, corrupt bytes are skipped, and every valid record is kept.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from google_crc32c import value as crc32c

HEADER_BYTES = 12
FOOTER_BYTES = 4
ZEROS = re.compile(rb"\0{4,}")


@dataclass
class Records:
    """Positions of the data of valid records in a buffer, and of corrupt bytes."""

    begins: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    corrupt: list[int] = field(default_factory=list)
    """Offsets of corrupt bytes; consecutive ones count once."""
    truncated: int | None = None
    """Offset of a last record that is truncated by the end of the file, for example while it is written."""
    done: int = 0
    """Everything before this offset has been processed."""


def read_records(content: bytes, more: int = 0) -> Records:
    """The records of a file, or of a chunk that is followed by `more` bytes.

    A record that may be completed by the following bytes is left to the next chunk: `done` is its offset.
    After a corrupt record, searches for the next valid header. The length of a record with corrupt data is
    ignored: if bytes were lost, the next record begins before its end.
    """
    begins, ends = _leading(content)
    records, size = Records(begins, ends), len(content)
    offset = ends[-1] + FOOTER_BYTES if ends else 0
    while offset < size:
        begin = offset + HEADER_BYTES
        length = _LENGTHS[content[offset:begin]]
        end = begin if length is None else begin + length
        after = begin if length is None else end + FOOTER_BYTES
        if after > size and more and (begin > size or after <= size + more):
            break
        if length is not None and after <= size and masked_crc(content[begin:end]) == content[end:after]:
            begins.append(begin)
            ends.append(end)
            offset = after
            continue
        following = _next_header(content, offset + 1)
        if following is None and not more and after > size:
            records.truncated = offset
        else:
            records.corrupt.append(offset)
        if following is None:
            # The last bytes of a chunk may be the beginning of a header.
            following = max(offset + 1, size - HEADER_BYTES + 1) if more else size
        offset = following
    records.done = offset
    return records


def _leading(content: bytes) -> tuple[list[int], list[int]]:
    """Where the data of the valid records before the first fault begin and end.

    Comparing the checksums of all at once saves a third of the time of an intact file.
    """
    begins, ends, offset = list[int](), list[int](), 0
    while (length := _LENGTHS[content[offset : offset + HEADER_BYTES]]) is not None:
        begins.append(offset + HEADER_BYTES)
        ends.append(offset + HEADER_BYTES + length)
        offset = ends[-1] + FOOTER_BYTES
    if offset > len(content):
        del begins[-1:], ends[-1:]
    crcs = [crc32c(content[begin:end]) for begin, end in zip(begins, ends, strict=True)]
    masked_N = _masked(np.array(crcs, np.uint64))
    bytes_N4 = np.frombuffer(content, np.uint8)[np.array(ends, int)[:, None] + np.arange(FOOTER_BYTES)]
    wrong = np.flatnonzero(masked_N != bytes_N4.view("<u4")[:, 0])
    valid = int(wrong[0]) if len(wrong) else len(ends)
    return begins[:valid], ends[:valid]


def _next_header(content: bytes, offset: int) -> int | None:
    """The position of the next valid record header from `offset`, or None.

    Records are shorter than 4 GiB, so the checksum of a header follows four zero bytes. In a long run of
    zeros only the end is possible, because the checksum is not zero.
    """
    for zeros in ZEROS.finditer(content, offset + 4):
        first = max(zeros.start(), zeros.end() - 7) - 4
        for place in range(first, zeros.end() - 7):
            if _LENGTHS[content[place : place + HEADER_BYTES]] is not None:
                return place
    return None


class _Lengths(dict[bytes, int | None]):
    """Record header -> length of the data; None if the header is truncated or corrupt.

    A file has few different headers. Only valid ones are kept, so that corrupt files cannot fill the cache.
    """

    most = 1 << 16

    def __missing__(self, header: bytes) -> int | None:
        if len(header) < HEADER_BYTES or masked_crc(header[:8]) != header[8:]:
            return None
        length = int.from_bytes(header[:8], "little")
        if len(self) < self.most:
            self[header] = length
        return length


_LENGTHS = _Lengths()


def masked_crc(data: bytes) -> bytes:
    """The CRC-32C of the data, masked and in four bytes as in TFRecord files."""
    return _masked(crc32c(data)).to_bytes(FOOTER_BYTES, "little")


def _masked(crc: Any) -> Any:
    """A CRC-32C, int or uint64 (N,), masked as in TFRecord files."""
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
