"""One TensorBoard event file -> its scalars, without TensorFlow or torch.

An event file is a TFRecord file, one record after the other:

    uint64  length of the data, little endian
    uint32  masked CRC-32C of the length
    bytes   data: one `Event` protocol buffer
    uint32  masked CRC-32C of the data

(TensorFlow, `tensorflow/core/lib/io/record_writer.h`.) TensorBoard's own reader stops at the first
damaged record; this one steps over the damage, keeps every good record and says what it left out.
"""

from __future__ import annotations

import functools
import logging
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from google.protobuf.message import DecodeError
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.util import tensor_util

from common.errors import UserError

logger = logging.getLogger(__name__)

HEADER_BYTES = 12
FOOTER_BYTES = 4
CRC32C_POLYNOMIAL = 0x82F63B78  # Castagnoli's, bits reversed
CRC_MASK_DELTA = 0xA282EAD8


class Scalar(NamedTuple):
    """One logged number: `wall_time` in seconds since 1970, `step` in updates."""

    wall_time: float
    step: int
    tag: str
    value: float


def read_scalars(path: str | os.PathLike[str]) -> list[Scalar]:
    """All scalars of one event file, in the order of the file; other summaries are passed over.

    Damaged or cut records are left out with one warning that gives the offset of the first.
    Raises `UserError` where not one record is good, `OSError` where the file cannot be read.
    """
    content = Path(path).read_bytes()
    if not content:
        logger.warning("%s: empty event file (the run stopped before its first log)", path)
        return []
    scalars: list[Scalar] = []
    good, damaged = 0, []
    for offset, data in _records(content):
        event = None if data is None else _event(data)
        if event is None:
            damaged.append(offset)
        else:
            good += 1
            scalars.extend(_event_scalars(event))
    if not good:
        raise UserError(
            f"{path}: not an event file (no good record from byte {damaged[0]} on); move it out of the run"
        )
    if damaged:
        logger.warning(
            "%s: damaged or cut at byte %d (%d in all); the %d good records are kept",
            path, damaged[0], len(damaged), good,
        )  # fmt: skip
    return scalars


def _event(data: bytes) -> Event | None:
    try:
        return Event.FromString(data)
    except DecodeError:
        return None


def _event_scalars(event: Event) -> Iterator[Scalar]:
    for value in event.summary.value:
        number = _number(value)
        if number is not None:
            yield Scalar(event.wall_time, event.step, value.tag, number)


def _number(value: Summary.Value) -> float | None:
    """The scalar in a summary value, written as a float (torch) or a tensor (TensorFlow 2), or None."""
    kind = value.WhichOneof("value")
    if kind == "simple_value":
        return value.simple_value
    if kind == "tensor" and value.tensor.dtype != DT_STRING:
        array = tensor_util.make_ndarray(value.tensor)
        if array.size == 1:
            return float(array.item())
    return None


def _records(content: bytes) -> Iterator[tuple[int, bytes | None]]:
    """(offset, data) of each record; data is None for a stretch of damaged or missing bytes."""
    offset = 0
    while offset < len(content):
        start = offset + HEADER_BYTES
        length = _length(content[offset:start])
        end = None if length is None else start + length
        if end is None or end + FOOTER_BYTES > len(content):
            # The length cannot be trusted or leads past the end: look for the next good header.
            yield offset, None
            offset = _next_header(content, offset + 1)
            continue
        data = content[start:end]
        (checksum,) = struct.unpack_from("<I", content, end)
        yield offset, data if checksum == _masked_crc32c(data) else None
        offset = end + FOOTER_BYTES


@functools.lru_cache(maxsize=4096)  # a file has few different lengths
def _length(header: bytes) -> int | None:
    """The data length that a record header states, or None where the header is cut or damaged."""
    if len(header) < HEADER_BYTES:
        return None
    length, checksum = struct.unpack("<QI", header)
    return length if checksum == _masked_crc32c(header[:8]) else None


def _next_header(content: bytes, offset: int) -> int:
    """The next place from `offset` on with a good record header, or the end of the file."""
    # Records are shorter than 4 GiB: the upper half of the length is zero, and quick to find.
    while (zeros := content.find(bytes(4), offset + 4)) >= 0:
        offset = zeros - 4
        if _length(content[offset : offset + HEADER_BYTES]) is not None:
            return offset
        offset += 1
    return len(content)


def _masked_crc32c(data: bytes) -> int:
    """CRC-32C of `data`, rotated and shifted as TFRecord stores it."""
    by_byte, by_pair = _crc_tables()
    crc = 0xFFFFFFFF
    even = len(data) & ~1
    for pair in struct.unpack(f"<{even // 2}H", data[:even]):
        crc = by_pair[(crc ^ pair) & 0xFFFF] ^ (crc >> 16)
    for byte in data[even:]:
        crc = by_byte[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + CRC_MASK_DELTA) & 0xFFFFFFFF


@functools.cache
def _crc_tables() -> tuple[list[int], list[int]]:
    """What one byte and one pair of bytes do to the CRC; pairs halve the work of the Python loop."""

    def table(bits: int) -> list[int]:
        crc = np.arange(1 << bits, dtype=np.uint32)
        for _ in range(bits):
            crc = (crc >> 1) ^ np.where(crc & 1, np.uint32(CRC32C_POLYNOMIAL), np.uint32(0))
        return crc.tolist()

    return table(8), table(16)
