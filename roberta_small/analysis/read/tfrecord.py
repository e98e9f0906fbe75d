"""Find the valid and the corrupt records of TFRecord files.

A file is a sequence of records; numbers are little endian:

    uint64  length of the data
    uint32  masked CRC-32C of the length
    bytes   data
    uint32  masked CRC-32C of the data

(TensorFlow, `tensorflow/core/lib/io/record_writer.h`.) TensorBoard's own reader stops at the first corrupt
record. Here, intact files are read in one tight loop; files with errors are read by `salvage`, which skips
corrupt bytes and keeps every valid record.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field

import google_crc32c
import numpy as np

HEADER_BYTES = 12
FOOTER_BYTES = 4
FRAME_BYTES = HEADER_BYTES + FOOTER_BYTES
MASK_SHIFT = 15
MASK_DELTA = 0xA282EAD8
ZEROS = re.compile(rb"\0{4,}")

crc32c = google_crc32c.value


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
    """
    records = _walk(content)
    incomplete = len(content) < records.done <= len(content) + more
    if incomplete:  # the following bytes complete the last record
        records.ends.pop()
        records.done = records.begins.pop() - HEADER_BYTES
    rest = len(content) - records.done
    in_order = rest == 0 or (more > 0 and (incomplete or 0 < rest < FRAME_BYTES))
    if in_order and _all_data_valid(content, records):
        return records
    return salvage(content, more)


def _walk(content: bytes) -> Records:
    """Follow the headers while their checksums are correct; the data are not checked."""
    records = Records()
    add_begin, add_end = records.begins.append, records.ends.append
    offset, last = 0, len(content) - FRAME_BYTES
    while offset <= last:
        header = content[offset : offset + HEADER_BYTES]
        length = _LENGTHS.get(header)
        if length is None and (length := _length(header)) is None:
            break
        add_begin(offset + HEADER_BYTES)
        offset += length + FRAME_BYTES
        add_end(offset - FOOTER_BYTES)
    records.done = offset
    return records


def _all_data_valid(content: bytes, records: Records) -> bool:
    if not records.ends:
        return True
    crcs = [crc32c(content[begin:end]) for begin, end in zip(records.begins, records.ends, strict=True)]
    footers_N4 = np.frombuffer(content, np.uint8)[np.array(records.ends)[:, None] + np.arange(FOOTER_BYTES)]
    return np.array_equal(mask(np.array(crcs, np.uint64)), footers_N4.view("<u4")[:, 0])


def salvage(content: bytes, more: int = 0) -> Records:
    """Same as `read_records`, for a file that may be corrupt anywhere or truncated.

    After a corrupt record, searches for the next valid header. The length of a record with corrupt data is
    ignored: if bytes were lost, the next record begins before its end.
    """
    records, offset, size = Records(), 0, len(content)
    while offset < size:
        begin = offset + HEADER_BYTES
        length = _length(content[offset:begin])
        after = begin if length is None else begin + length + FOOTER_BYTES
        if after > size and more and (begin > size or after <= size + more):
            break
        if length is not None and after <= size and _is_valid(content, begin, after - FOOTER_BYTES):
            records.begins.append(begin)
            records.ends.append(after - FOOTER_BYTES)
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


def _is_valid(content: bytes, begin: int, end: int) -> bool:
    (stored,) = struct.unpack_from("<I", content, end)
    return mask(crc32c(content[begin:end])) == stored


def _next_header(content: bytes, offset: int) -> int | None:
    """The position of the next valid record header from `offset`, or None.

    Records are shorter than 4 GiB, so the checksum of a header follows four zero bytes. In a long run of
    zeros only the end is possible, because the checksum is not zero.
    """
    for zeros in ZEROS.finditer(content, offset + 4):
        first = max(zeros.start(), zeros.end() - 7) - 4
        for place in range(first, zeros.end() - 7):
            if _length(content[place : place + HEADER_BYTES]) is not None:
                return place
    return None


# Cache: a file has few different headers. Only valid ones are kept, so that corrupt files cannot fill it.
_LENGTHS: dict[bytes, int] = {}
_MOST_LENGTHS = 1 << 16


def _length(header: bytes) -> int | None:
    """The data length in a record header; None if the header is truncated or corrupt."""
    if len(header) < HEADER_BYTES:
        return None
    length, stored = struct.unpack("<QI", header)
    if mask(crc32c(header[:8])) != stored:
        return None
    if len(_LENGTHS) < _MOST_LENGTHS:
        _LENGTHS[header] = length
    return length


def mask(crc: int | np.ndarray) -> int | np.ndarray:
    """A CRC-32C (int or uint64 array), masked as in TFRecord files."""
    return (((crc >> MASK_SHIFT) | (crc << (32 - MASK_SHIFT))) + MASK_DELTA) & 0xFFFFFFFF
