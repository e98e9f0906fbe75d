"""Vectorized decoding of scalar events in their usual encoding.

The protocol buffer of a scalar (https://protobuf.dev/programming-guides/encoding/) is, in this order,

    09  wall time (8 bytes)           Event.wall_time
    10  step (1 to 10 bytes)          Event.step, absent where it is 0
    2a  length  0a  length            Event.summary, its only value
        0a  length  tag                   Summary.Value.tag
        the number                        as one of `LAYOUTS`

Lengths are below 128 and so one byte long. An event with any other byte is left to protobuf.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

SHORTEST = 20
STEP_BYTES = 5  # steps below 2^35
SCALARS_PLUGIN = b"J\x0b\n\t\n\x07scalars"  # Summary.Value.metadata


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


def decode(
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
    wall_time_M = _numbers(bytes_B, begin_M + 1, "<f8")
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
            value_M[rows] = _numbers(bytes_B, begin_M[rows] + len(layout.before), layout.dtype)
        good_M[rows] = True
    return value_M, good_M


def _numbers(bytes_B: np.ndarray, place_M: np.ndarray, dtype: str) -> np.ndarray:
    """The numbers of `dtype` at these positions."""
    return bytes_B[place_M[:, None] + np.arange(np.dtype(dtype).itemsize)].view(dtype)[:, 0]
