"""The event-file reader against TensorBoard's own, and on damaged files."""

import logging
import math
import struct

import numpy as np
import pytest
from run_trees import write_events
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import crc32c
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.util import tensor_util

from analysis.events import read_scalars
from analysis.tfrecord import crc32c as our_crc32c
from analysis.tfrecord import mask
from common.errors import UserError

ROWS = [(step, tag, float(np.float32(step / 7))) for step in range(1, 21) for tag in ("loss", "accuracy")]


@pytest.fixture
def event_file(tmp_path):
    return write_events(tmp_path, ROWS)


def record_offsets(content):
    """Where each record of an undamaged file starts."""
    offsets, offset = [], 0
    while offset < len(content):
        offsets.append(offset)
        offset += 16 + struct.unpack_from("<Q", content, offset)[0]
    return offsets


def rows_of(scalars):
    return [(scalar.step, scalar.tag, scalar.value) for scalar in scalars]


def test_same_scalars_as_tensorboards_own_reader(event_file):
    expected = [
        (event.wall_time, event.step, value.tag, float(tensor_util.make_ndarray(value.tensor)))
        for event in EventFileLoader(str(event_file)).Load()
        for value in event.summary.value
    ]
    assert [tuple(scalar) for scalar in read_scalars(event_file)] == expected
    assert len(expected) == len(ROWS)


def test_scalars_and_texts_as_the_trainer_writes_them(tmp_path):
    """`torch.utils.tensorboard` is what fairseq logs with; it adds the command line as a text."""
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    with tensorboard.SummaryWriter(str(tmp_path)) as writer:
        writer.add_text("sys.argv", "fairseq-train data")
        writer.add_scalar("accuracy", 79.25, 225)
    (path,) = tmp_path.iterdir()
    assert rows_of(read_scalars(path)) == [(225, "accuracy", 79.25)]


def test_tensor_scalars_are_read_and_arrays_passed_over(tmp_path):
    writer = EventFileWriter(str(tmp_path))
    for tag, array in (("half", np.float32(0.5)), ("one", np.array([1.0])), ("many", np.zeros(3))):
        value = Summary.Value(tag=tag, tensor=tensor_util.make_tensor_proto(array))
        writer.add_event(Event(step=3, summary=Summary(value=[value])))
    writer.close()
    (path,) = tmp_path.iterdir()
    assert rows_of(read_scalars(path)) == [(3, "half", 0.5), (3, "one", 1.0)]


def test_nan_and_infinity_are_kept(tmp_path):
    scalars = read_scalars(write_events(tmp_path, [(1, "loss", math.nan), (2, "loss", math.inf)]))
    assert math.isnan(scalars[0].value)
    assert scalars[1].value == math.inf


@pytest.mark.parametrize("length", [0, 1, 2, 7, 8, 37, 256])
def test_checksum_equals_tensorboards(length):
    data = np.random.default_rng(length).bytes(length)
    crc = crc32c(data)
    assert mask(our_crc32c(data)) == (((crc >> 15) | (crc << 17)) + 0xA282EAD8) % 2**32


@pytest.mark.parametrize("missing", [1, 5, 17, 30])
def test_truncated_file_keeps_the_whole_records(event_file, caplog, missing):
    content = event_file.read_bytes()
    last = record_offsets(content)[-1]
    event_file.write_bytes(content[:-missing])
    assert rows_of(read_scalars(event_file)) == ROWS[:-1]
    (message,) = caplog.messages
    assert str(event_file) in message
    assert f"cut at byte {last:,};" in message


def test_damaged_data_loses_only_its_record(event_file, caplog):
    content = bytearray(event_file.read_bytes())
    offset = record_offsets(content)[11]  # record 0 is the file version: row 10
    content[offset + 20] ^= 0xFF
    event_file.write_bytes(content)
    assert rows_of(read_scalars(event_file)) == ROWS[:10] + ROWS[11:]
    assert f"byte {offset:,} (1 in all); the 40 good records" in caplog.text


def test_damaged_length_loses_only_its_record(event_file, caplog):
    """TensorBoard's own reader stops here; the records behind are found again."""
    content = bytearray(event_file.read_bytes())
    offset = record_offsets(content)[11]
    content[offset] ^= 0xFF
    event_file.write_bytes(content)
    assert rows_of(read_scalars(event_file)) == ROWS[:10] + ROWS[11:]
    assert f"byte {offset:,} (1 in all)" in caplog.text


def test_bytes_lost_in_the_middle(event_file, caplog):
    content = event_file.read_bytes()
    offsets = record_offsets(content)
    event_file.write_bytes(content[: offsets[5] + 3] + content[offsets[7] + 9 :])
    assert rows_of(read_scalars(event_file)) == ROWS[:4] + ROWS[7:]
    assert f"byte {offsets[5]:,} " in caplog.text


def test_a_good_checksum_over_something_else_is_damage(event_file, caplog):
    data = b"\xff\xff not a protocol buffer"
    header = struct.pack("<Q", len(data))
    record = b"".join(
        [header, struct.pack("<I", mask(our_crc32c(header))), data, struct.pack("<I", mask(our_crc32c(data)))]
    )
    event_file.write_bytes(event_file.read_bytes() + record)
    assert rows_of(read_scalars(event_file)) == ROWS
    assert "1 in all" in caplog.text


@pytest.mark.parametrize("content", [b"epoch,accuracy\n1,70.5\n" * 20, bytes(500)])
def test_a_file_without_one_good_record_is_refused(tmp_path, content):
    path = tmp_path / "events.out.tfevents.1"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"tfevents\.1: not one good record \(damaged from byte 0 on\)"):
        read_scalars(path)


def test_an_empty_file_is_a_warning(tmp_path, caplog):
    path = tmp_path / "events.out.tfevents.1"
    path.touch()
    with caplog.at_level(logging.WARNING):
        assert read_scalars(path) == []
    assert f"{path}: empty log" in caplog.text
