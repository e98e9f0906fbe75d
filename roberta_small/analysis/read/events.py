"""TensorBoard event files -> scalars, without TensorFlow or torch.

Each record of an event file (`tfrecord`) is an `Event` protocol buffer. Nearly all are scalars in the same
encoding (https://protobuf.dev/programming-guides/encoding/), which `decode_plain` decodes for many events at
once; the others are decoded by protobuf. In this order,

    09  wall time (8 bytes)           Event.wall_time
    10  step (1 to 10 bytes)          Event.step, absent where it is 0
    2a  length  0a  length            Event.summary, its only value
        0a  length  tag                   Summary.Value.tag
        the number                        as one of `LAYOUTS`

Lengths are below 128 and so one byte long. An event with any other byte is left to protobuf.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
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
SHORTEST = 20
STEP_BYTES = 5  # steps below 2^35
SCALARS_PLUGIN = b"J\x0b\n\t\n\x07scalars"  # Summary.Value.metadata


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


def read_event_files(paths: Sequence[Path], tags: Tags, checks: Sequence[LogCheck]) -> Iterator[Scalars]:
    """The scalars of these files in batches; `checks` has one entry per file, which is updated.

    Tags are numbered in `tags` without a subset: `(None, tag)`.
    """
    numbers = _TagNumbers(tags)
    batch = _Batch()
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
                batch.add(file, offset, content, records)
                offset, content = offset + records.done, content[records.done :]
                if batch.size >= BATCH_BYTES:
                    yield batch.decode(numbers, checks)
                    batch = _Batch()
    yield batch.decode(numbers, checks)


class _TagNumbers(dict[bytes, int]):
    """Bytes of a tag -> its number, -1 if they are not UTF-8."""

    def __init__(self, tags: Tags) -> None:
        super().__init__()
        self.tags = tags

    def __missing__(self, tag: bytes) -> int:
        try:
            self[tag] = self.tags[None, tag.decode()]
        except UnicodeDecodeError:
            self[tag] = -1
        return self[tag]


class _Batch:
    """Records of several files, or of a chunk of one, which are decoded together."""

    def __init__(self) -> None:
        self.size = 0
        self.contents: list[bytes] = []
        self.files: list[int] = []
        self.counts: list[int] = []
        self.shifts: list[int] = []
        """File offset minus position in the concatenated contents."""
        self.begins: list[np.ndarray] = []
        self.ends: list[np.ndarray] = []

    def add(self, file: int, offset: int, content: bytes, records: Records) -> None:
        """Add the records of a chunk that begins at `offset` of the file."""
        if not records.begins:
            return
        self.contents.append(content)
        self.files.append(file)
        self.counts.append(len(records.begins))
        self.shifts.append(offset - self.size)
        self.begins.append(np.array(records.begins) + self.size)
        self.ends.append(np.array(records.ends) + self.size)
        self.size += len(content)

    def decode(self, numbers: _TagNumbers, checks: Sequence[LogCheck]) -> Scalars:
        """All scalars, in the order of the records; records that are not events count as corrupt."""
        if not self.begins:
            return concatenate([])
        content = b"".join(self.contents)
        begins_N, ends_N = np.concatenate(self.begins), np.concatenate(self.ends)
        file_N = np.repeat(np.array(self.files, np.int32), self.counts)
        shift_N = np.repeat(self.shifts, self.counts)
        plain = decode_plain(content, begins_N, ends_N, numbers.__getitem__)
        others = np.ones(len(begins_N), bool)
        others[plain.which] = False
        rows: list[tuple[int, float, int, int, float]] = []
        for record in np.flatnonzero(others).tolist():
            try:
                event = Event.FromString(content[begins_N[record] : ends_N[record]])
                rows.extend((record, *row) for row in _event_scalars(event, numbers.tags))
            except (DecodeError, ValueError):
                offset = int(begins_N[record] + shift_N[record]) - HEADER_BYTES
                checks[file_N[record]].reject(offset)
        if not rows:
            return scalars(file_N[plain.which], *plain[1:])
        columns = [np.concatenate(pair) for pair in zip(plain, zip(*rows, strict=True), strict=True)]
        order = np.argsort(columns[0], kind="stable")
        which_N, *columns = (column[order] for column in columns)
        return scalars(file_N[which_N.astype(np.int64)], *columns)


def _event_scalars(event: Event, tags: Tags) -> list[tuple[float, int, int, float]]:
    """(wall time, step, tag number, value) of each scalar of an event, or of the mark of a restart."""
    if event.HasField("session_log") and event.session_log.status == SessionLog.START:
        return [(event.wall_time, event.step, tags[None, START], float("nan"))]
    numbers = [(value.tag, _number(value)) for value in event.summary.value]
    return [
        (event.wall_time, event.step, tags[None, tag], number)
        for tag, number in numbers
        if number is not None
    ]


def _number(value: Summary.Value) -> float | None:
    """The scalar in a summary value, a float or a tensor; None for other values."""
    kind = value.WhichOneof("value")
    if kind == "simple_value":
        return value.simple_value
    return tensor_number(value.tensor) if kind == "tensor" else None


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


class Layout(NamedTuple):
    """The encoding of the number after the tag, between constant bytes."""

    before: bytes
    dtype: str
    after: bytes = b""

    @property
    def size(self) -> int:
        """In bytes."""
        return len(self.before) + np.dtype(self.dtype).itemsize + len(self.after)


LAYOUTS = (
    Layout(b"\x15", "<f4"),  # simple_value: torch, TensorFlow 1
    Layout(b"B\x08\x08\x01*\x04", "<f4", SCALARS_PLUGIN),  # tensor, float_val: torch's new_style
    Layout(b"B\n\x08\x01\x12\x00*\x04", "<f4", SCALARS_PLUGIN),  # with a shape: TensorFlow 2
    Layout(b'B\n\x08\x01\x12\x00"\x04', "<f4", SCALARS_PLUGIN),  # tensor_content: tf.make_tensor_proto
)


class PlainScalars(NamedTuple):
    """The M decoded events, arrays of shape (M,); `which` are their ascending positions."""

    which: np.ndarray
    wall_time: np.ndarray
    step: np.ndarray
    tag: np.ndarray
    value: np.ndarray


def decode_plain(
    content: bytes, begins_N: np.ndarray, ends_N: np.ndarray, tag_number: Callable[[bytes], int]
) -> PlainScalars:
    """Decode the events `content[begin:end]` that are scalars in the usual encoding.

    `tag_number` returns the number of a tag, negative if it is not UTF-8; such events are skipped.
    """
    bytes_B = np.frombuffer(content, np.uint8)
    which_M = np.flatnonzero(ends_N - begins_N >= SHORTEST)

    def byte(place: np.ndarray) -> np.ndarray:
        return bytes_B.take(place, mode="clip").astype(np.int64)

    def keep(good: np.ndarray, *columns: np.ndarray) -> tuple[np.ndarray, ...]:
        return columns if good.all() else tuple(column[good] for column in columns)

    begin_M, end_M = begins_N[which_M], ends_N[which_M]
    step_M, summary_M = _steps(byte, begin_M)
    left_M = end_M - summary_M
    good = (byte(begin_M) == 0x09) & (byte(summary_M) == 0x2A) & (left_M < 128)
    good &= (byte(summary_M + 1) == left_M - 2) & (byte(summary_M + 2) == 0x0A)
    good &= (byte(summary_M + 3) == left_M - 4) & (byte(summary_M + 4) == 0x0A)
    tag_end_M = summary_M + 6 + byte(summary_M + 5)
    good &= tag_end_M < end_M
    which_M, begin_M, end_M, step_M, tag_M, tag_end_M = keep(
        good, which_M, begin_M, end_M, step_M, summary_M + 6, tag_end_M
    )
    value_M, good = _values(bytes_B, tag_end_M, end_M)
    which_M, begin_M, step_M, value_M, tag_M, tag_end_M = keep(
        good, which_M, begin_M, step_M, value_M, tag_M, tag_end_M
    )
    numbers = [
        tag_number(content[start:stop])
        for start, stop in zip(tag_M.tolist(), tag_end_M.tolist(), strict=True)
    ]
    tag_M = np.array(numbers, np.int32)
    wall_time_M = _numbers_at(bytes_B, begin_M + 1, "<f8")
    return PlainScalars(*keep(tag_M >= 0, which_M, wall_time_M, step_M, tag_M, value_M))


def _steps(byte: Callable[[np.ndarray], np.ndarray], begin_M: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The steps, and the positions after them; after a step that is too long there is no valid summary."""
    place_M = begin_M + 9
    has_step_M = byte(place_M) == 0x10
    place_M = place_M + has_step_M
    continues_M, step_M = has_step_M, np.zeros_like(begin_M)
    for shift in range(0, 7 * STEP_BYTES, 7):
        byte_M = byte(place_M)
        step_M |= np.where(continues_M, (byte_M & 0x7F) << shift, 0)
        place_M = place_M + continues_M
        continues_M = continues_M & (byte_M >= 0x80)
        if not continues_M.any():
            break
    return step_M, np.where(continues_M, begin_M, place_M)


def _values(bytes_B: np.ndarray, begin_M: np.ndarray, end_M: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The numbers in bytes `begin` to `end`, and whether each has a known layout."""
    value_M, good_M = np.zeros(len(begin_M)), np.zeros(len(begin_M), bool)
    sizes_M = end_M - begin_M
    for layout in LAYOUTS:
        rows = np.flatnonzero(sizes_M == layout.size)
        for constant, place_M in (
            (layout.before, begin_M),
            (layout.after, end_M - len(layout.after)),
        ):
            for offset, expected in enumerate(constant):
                rows = rows[bytes_B[place_M[rows] + offset] == expected]
        with np.errstate(invalid="ignore"):  # signaling NaNs
            value_M[rows] = _numbers_at(bytes_B, begin_M[rows] + len(layout.before), layout.dtype)
        good_M[rows] = True
    return value_M, good_M


def _numbers_at(bytes_B: np.ndarray, place_M: np.ndarray, dtype: str) -> np.ndarray:
    """The numbers of `dtype` at these positions."""
    return bytes_B[place_M[:, None] + np.arange(np.dtype(dtype).itemsize)].view(dtype)[:, 0]
