"""TensorBoard event files -> scalars, without TensorFlow or torch.

Each record of an event file (`tfrecord`) is an `Event` protocol buffer. Nearly all are scalars of torch or
TensorFlow 1, which are encoded as follows (https://protobuf.dev/programming-guides/encoding/):

    09  wall time (8 bytes)      Event.wall_time
    10  step (1 to 10 bytes)     Event.step, absent where it is 0
    head                         the beginning of Event.summary: lengths, tag and 15
    value (4 bytes)              Event.summary.value[0].simple_value

A log has as many heads as tags. So each head is parsed by protobuf once, and such events are decoded for many
records at once, several times as fast as by protobuf, which decodes all other events.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from google.protobuf.message import DecodeError
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.types_pb2 import DataType
from tqdm import tqdm

from roberta_small.analysis.read.scalars import START, LogCheck, Scalars, Tags, concatenate, report, scalars
from roberta_small.analysis.read.tfrecord import HEADER_BYTES, Records, read_records

BATCH_BYTES = 1 << 21
"""Size of the chunks in memory, unless a single record is longer."""
WALL_TIME, STEP, SIMPLE_VALUE = 0x09, 0x10, 0x15
"""The bytes before these fields: number and type."""
STEP_BYTES = 5
"""Longest step that is decoded without protobuf: below 2^35."""


class Scalar(NamedTuple):
    """One logged number: `wall_time` in seconds since 1970, `step` in updates."""

    wall_time: float
    step: int
    tag: str
    value: float


def read_scalars(path: str | os.PathLike[str]) -> list[Scalar]:
    """All scalars of an event file, in the order of the file; other summaries are skipped.

    Corrupt or truncated records are skipped with a warning that contains the offset of the first. Raises
    `UserError` if no record is valid, `OSError` if the file cannot be read.
    """
    tags, check = Tags(), LogCheck(Path(path))
    columns = concatenate(list(read_event_files([Path(path)], tags, [check])))
    report([check])
    names = [tag for _, tag in tags]
    _, *rows = (column.tolist() for column in columns)
    return [
        Scalar(wall_time, step, names[tag], value)
        for wall_time, step, tag, value in zip(*rows, strict=True)
        if names[tag] != START
    ]


class _Chunk(NamedTuple):
    """Consecutive bytes of a file from `offset`, with their records."""

    file: int
    offset: int
    content: bytes
    records: Records


def read_event_files(paths: Sequence[Path], tags: Tags, checks: Sequence[LogCheck]) -> Iterator[Scalars]:
    """The scalars of these files in batches; `checks` has one entry per file, which is updated.

    Tags are numbered in `tags` without a subset: `(None, tag)`.
    """
    heads = _Heads(tags)
    batch: list[_Chunk] = []
    size = 0
    shown = tqdm(paths, desc="reading", unit="file", delay=1, leave=False, disable=None)
    for file, path in enumerate(shown):
        with open(path, "rb", buffering=0) as stream:
            left = os.fstat(stream.fileno()).st_size
            checks[file].empty = left == 0
            offset, content = 0, b""
            while left:
                chunk = stream.read(min(left, BATCH_BYTES))
                left = left - len(chunk) if chunk else 0  # a file may shrink meanwhile
                content += chunk
                records = read_records(content, left)
                checks[file].add(records, offset)
                if records.begins:
                    batch.append(_Chunk(file, offset, content, records))
                    size += len(content)
                offset, content = offset + records.done, content[records.done :]
                if size >= BATCH_BYTES:
                    yield _decode(batch, heads, checks)
                    batch, size = [], 0
    yield _decode(batch, heads, checks)


class _Heads(dict[bytes, int]):
    """Head of an event (see the top of this module) -> number of its tag, -1 for other bytes.

    Only heads with a tag are kept, so that other events cannot fill the cache.
    """

    def __init__(self, tags: Tags) -> None:
        super().__init__()
        self.tags = tags

    def __missing__(self, head: bytes) -> int:
        data = bytes([WALL_TIME]) + b"\1" * 8 + head + b"\1" * 4
        try:
            event = Event.FromString(data)
        except DecodeError:
            return -1
        for value in event.summary.value:
            # If protobuf writes the same bytes, they contain nothing else and no field twice.
            summary = Summary(value=[Summary.Value(tag=value.tag, simple_value=value.simple_value)])
            if Event(wall_time=event.wall_time, summary=summary).SerializeToString() == data:
                self[head] = self.tags[None, value.tag]
        return self.get(head, -1)


def _decode(chunks: Sequence[_Chunk], heads: _Heads, checks: Sequence[LogCheck]) -> Scalars:
    """All scalars of N records, in their order; records that are not events count as corrupt."""
    content = b"".join(chunk.content for chunk in chunks)
    starts_C = np.cumsum([0, *(len(chunk.content) for chunk in chunks)])
    chunk_N = np.repeat(np.arange(len(chunks)), np.array([len(c.records.begins) for c in chunks], int))
    begin_N = starts_C[chunk_N] + np.array([begin for c in chunks for begin in c.records.begins], int)
    end_N = starts_C[chunk_N] + np.array([end for c in chunks for end in c.records.ends], int)

    bytes_B = np.frombuffer(content, np.uint8)
    step_N, head_N = _steps(bytes_B, begin_N + 9)
    good_N = (step_N >= 0) & (bytes_B[begin_N] == WALL_TIME) & (bytes_B[end_N - 5] == SIMPLE_VALUE)
    tag_N = np.full(len(begin_N), -1, np.int32)
    places = zip(head_N[good_N].tolist(), (end_N[good_N] - 4).tolist(), strict=True)
    tag_N[good_N] = [heads[content[start:stop]] for start, stop in places]
    rows = np.flatnonzero(tag_N >= 0)
    wall_time = bytes_B[begin_N[rows, None] + np.arange(1, 9)].view("<f8")[:, 0]
    value = bytes_B[end_N[rows, None] + np.arange(-4, 0)].view("<f4")[:, 0]
    with np.errstate(invalid="ignore"):  # signaling NaNs
        columns = [rows, wall_time, step_N[rows], tag_N[rows], value.astype(float)]

    others: list[tuple[int, float, int, int, float]] = []
    for row in np.flatnonzero(tag_N < 0).tolist():
        try:
            event = Event.FromString(content[begin_N[row] : end_N[row]])
            others.extend((row, *scalar) for scalar in _event_scalars(event, heads.tags))
        except (DecodeError, ValueError):
            # Its checksums are correct, but its content is not.
            chunk, place = chunks[chunk_N[row]], begin_N[row] - starts_C[chunk_N[row]]
            checks[chunk.file].valid -= 1
            checks[chunk.file].add_corrupt(chunk.offset + int(place) - HEADER_BYTES)
    if others:
        columns = [np.concatenate(pair) for pair in zip(columns, zip(*others, strict=True), strict=True)]
        order = np.argsort(columns[0], kind="stable")
        columns = [column[order] for column in columns]
    file_C = np.array([chunk.file for chunk in chunks], np.int32)
    return scalars(file_C[chunk_N[columns[0]]], *columns[1:])


def _steps(bytes_B: np.ndarray, place_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The steps at these positions, -1 for a longer one than `STEP_BYTES`, and the positions after them."""
    stepped_N = bytes_B.take(place_N, mode="clip") == STEP
    continues_N, step_N = stepped_N, np.zeros_like(place_N)
    for shift in range(0, 7 * STEP_BYTES, 7):
        place_N = place_N + continues_N
        byte_N = bytes_B.take(place_N, mode="clip").astype(int)
        step_N |= np.where(continues_N, (byte_N & 0x7F) << shift, 0)
        continues_N = continues_N & (byte_N >= 0x80)
    return np.where(continues_N, -1, step_N), place_N + stepped_N


def _event_scalars(event: Event, tags: Tags) -> Iterator[tuple[float, int, int, float]]:
    """(wall time, step, tag number, value) of each scalar of an event, or of the mark of a restart."""
    if event.HasField("session_log") and event.session_log.status == SessionLog.START:
        yield event.wall_time, event.step, tags[None, START], float("nan")
        return
    for value in event.summary.value:
        kind = value.WhichOneof("value")
        number = value.simple_value if kind == "simple_value" else None
        if kind == "tensor":
            number = tensor_number(value.tensor)
        if number is not None:
            yield event.wall_time, event.step, tags[None, value.tag], number


# Data type -> the field with its numbers, and their dtype in `tensor_content`.
TENSOR_TYPES = {
    DataType.DT_FLOAT: ("float_val", "<f4"),
    DataType.DT_DOUBLE: ("double_val", "<f8"),
    DataType.DT_HALF: ("half_val", "<f2"),
    DataType.DT_BFLOAT16: ("half_val", "<u2"),
    DataType.DT_INT8: ("int_val", "i1"),
    DataType.DT_INT16: ("int_val", "<i2"),
    DataType.DT_INT32: ("int_val", "<i4"),
    DataType.DT_INT64: ("int64_val", "<i8"),
    DataType.DT_UINT8: ("int_val", "u1"),
    DataType.DT_UINT16: ("int_val", "<u2"),
    DataType.DT_UINT32: ("uint32_val", "<u4"),
    DataType.DT_UINT64: ("uint64_val", "<u8"),
    DataType.DT_BOOL: ("bool_val", "?"),
}


def tensor_number(tensor: TensorProto) -> float | None:
    """The number in a tensor with one element; None for other tensors (strings, vectors, complex numbers).

    Raises `ValueError` if the number of elements differs from the shape.
    """
    if tensor.dtype not in TENSOR_TYPES or tensor.tensor_shape.unknown_rank:
        return None
    if any(dimension.size != 1 for dimension in tensor.tensor_shape.dim):
        return None
    name, dtype = TENSOR_TYPES[tensor.dtype]
    if tensor.tensor_content:
        (number,) = np.frombuffer(tensor.tensor_content, dtype)
    else:
        (number,) = getattr(tensor, name)
        if name == "half_val":
            number = np.uint16(number & 0xFFFF).view(dtype)
    if tensor.dtype == DataType.DT_BFLOAT16:
        number = (np.uint32(number) << np.uint32(16)).view(np.float32)  # the upper half of a float32
    return float(number)
