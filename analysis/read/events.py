"""TensorBoard event files -> scalars, without TensorFlow or torch.

Each record of an event file (`tfrecord`) is an `Event` protocol buffer. Nearly all are scalars in the same
encoding, which `plain_scalars` decodes; the others are decoded by protobuf.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from google.protobuf.message import DecodeError
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.types_pb2 import DataType
from tqdm import tqdm

from roberta_small.analysis.read import plain_scalars
from roberta_small.analysis.read.scalars import LogCheck, Scalars, Tags, concatenate, report, scalars
from roberta_small.analysis.read.tfrecord import HEADER_BYTES, Records, read_records

BATCH_BYTES = 1 << 21
"""Size of the chunks in memory, unless a single record is longer."""


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
        Scalar(wall_time, step, names[tag], value) for wall_time, step, tag, value in zip(*rows, strict=True)
    ]


def read_event_files(paths: Sequence[Path], tags: Tags, checks: Sequence[LogCheck]) -> Iterator[Scalars]:
    """The scalars of these files in batches; `checks` has one entry per file, which is updated.

    Tags are numbered in `tags` without a subset: `(None, tag)`.
    """
    numbers = _TagNumbers(tags)
    batch = _Batch()
    for file, path in enumerate(tqdm(paths, desc="reading", unit="file", delay=1, leave=False)):
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
        plain = plain_scalars.decode(content, begins_N, ends_N, numbers.__getitem__)
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
    """(wall time, step, tag number, value) of each scalar of an event."""
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
