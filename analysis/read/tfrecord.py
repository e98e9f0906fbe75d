"""TFRecord files -> where their good records are, and where they are damaged.

One record after the other, all numbers little endian:

    uint64  length of the data
    uint32  masked CRC-32C of the length
    bytes   data
    uint32  masked CRC-32C of the data

(TensorFlow, `tensorflow/core/lib/io/record_writer.h`.) TensorBoard's own reader stops at the first
damaged record. Here the whole of a file that is in order is walked in one tight loop; only a file that
is not goes through `salvage`, which steps over the damage and keeps every good record.
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
    """Where the data of each good record begins and ends in a buffer, and where there is none."""

    begins: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    damaged: list[int] = field(default_factory=list)
    """Offsets of what is no record; a stretch of damaged bytes counts once."""
    cut: int | None = None
    """Offset of a last record that the end of the file cuts, as while it is being written."""
    done: int = 0
    """Everything before this offset is accounted for."""


def read_records(content: bytes, more: int = 0) -> Records:
    """The records of a file, or of a chunk of it that `more` bytes follow.

    A record that the following bytes may complete is left to the next chunk: `done` is its offset.
    """
    records = _walk(content)
    half = len(content) < records.done <= len(content) + more
    if half:  # the following bytes complete the last record
        records.ends.pop()
        records.done = records.begins.pop() - HEADER_BYTES
    rest = len(content) - records.done
    in_order = rest == 0 or (more > 0 and (half or 0 < rest < FRAME_BYTES))
    if in_order and _all_data_good(content, records):
        return records
    return salvage(content, more)


def _walk(content: bytes) -> Records:
    """From header to header, as far as their checksums are right; of the data nothing is checked."""
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


def _all_data_good(content: bytes, records: Records) -> bool:
    if not records.ends:
        return True
    crcs = [crc32c(content[begin:end]) for begin, end in zip(records.begins, records.ends, strict=True)]
    footers_N4 = np.frombuffer(content, np.uint8)[np.array(records.ends)[:, None] + np.arange(FOOTER_BYTES)]
    return np.array_equal(mask(np.array(crcs, np.uint64)), footers_N4.view("<u4")[:, 0])


def salvage(content: bytes, more: int = 0) -> Records:
    """As `read_records`, for a file that may be damaged anywhere or cut at its end.

    From what is no good record on, the next good header is looked for. The length of a record with wrong
    data is not trusted: where bytes were lost, the next record begins before its end.
    """
    records, offset, size = Records(), 0, len(content)
    while offset < size:
        begin = offset + HEADER_BYTES
        length = _length(content[offset:begin])
        after = begin if length is None else begin + length + FOOTER_BYTES
        if after > size and more and (begin > size or after <= size + more):
            break
        if length is not None and after <= size and _is_good(content, begin, after - FOOTER_BYTES):
            records.begins.append(begin)
            records.ends.append(after - FOOTER_BYTES)
            offset = after
            continue
        following = _next_header(content, offset + 1)
        if following is None and not more and after > size:
            records.cut = offset
        else:
            records.damaged.append(offset)
        if following is None:
            # The last bytes of a chunk may be the first of a header.
            following = max(offset + 1, size - HEADER_BYTES + 1) if more else size
        offset = following
    records.done = offset
    return records


def _is_good(content: bytes, begin: int, end: int) -> bool:
    (stored,) = struct.unpack_from("<I", content, end)
    return mask(crc32c(content[begin:end])) == stored


def _next_header(content: bytes, offset: int) -> int | None:
    """The next place from `offset` on with a good record header, None where there is none.

    Records are shorter than 4 GiB, so that four zeros stand before the checksum of a header. Of a long
    run of zeros only the end can be that: the checksum is not zero.
    """
    for zeros in ZEROS.finditer(content, offset + 4):
        first = max(zeros.start(), zeros.end() - 7) - 4
        for place in range(first, zeros.end() - 7):
            if _length(content[place : place + HEADER_BYTES]) is not None:
                return place
    return None


# A file has few different headers. Only good ones are kept, so that damage cannot fill the memory.
_LENGTHS: dict[bytes, int] = {}
_MOST_LENGTHS = 1 << 16


def _length(header: bytes) -> int | None:
    """The data length that a record header states, or None where the header is cut or damaged."""
    if len(header) < HEADER_BYTES:
        return None
    length, stored = struct.unpack("<QI", header)
    if mask(crc32c(header[:8])) != stored:
        return None
    if len(_LENGTHS) < _MOST_LENGTHS:
        _LENGTHS[header] = length
    return length


def mask(crc: int | np.ndarray) -> int | np.ndarray:
    """A CRC-32C (int or uint64 array) rotated and shifted as TFRecord stores it."""
    return (((crc >> MASK_SHIFT) | (crc << (32 - MASK_SHIFT))) + MASK_DELTA) & 0xFFFFFFFF
