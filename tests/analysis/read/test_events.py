"""The event-file reader against TensorBoard's own, and with corrupt files."""

import logging
import re
import struct

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.types_pb2 import DataType
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.util import tensor_util

from roberta_small.analysis.read.events import read_scalars
from roberta_small.common.errors import UserError
from tests.support.analysis.mutations import frame
from tests.support.analysis.run_trees import write_events

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


def write_values(folder, *values):
    """One event that holds these summary values; its file."""
    writer = EventFileWriter(str(folder))
    writer.add_event(Event(summary=Summary(value=values), wall_time=1.7e9, step=3))
    writer.close()
    (path,) = folder.iterdir()
    return path


def test_several_values_in_an_event_keep_their_order(tmp_path):
    rows = [(3, "b", 1.0), (3, "a", 2.0), (3, "b", 3.0)]
    values = [Summary.Value(tag=tag, simple_value=value) for _, tag, value in rows]
    assert rows_of(read_scalars(write_values(tmp_path, *values))) == rows


TYPES = "float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool"


@pytest.mark.parametrize("content", [False, True])
@pytest.mark.parametrize("dtype", TYPES.split())
def test_tensor_scalars_of_every_type(tmp_path, dtype, content):
    """From the field of their type and from `tensor_content`."""
    array = np.array(1.2345).astype(dtype)
    tensor = tensor_util.make_tensor_proto(array)
    if content:
        shape = tensor.tensor_shape
        tensor = TensorProto(dtype=tensor.dtype, tensor_shape=shape, tensor_content=array.tobytes())
    if content or dtype not in ("uint32", "uint64"):  # TensorBoard cannot convert these two
        assert float(tensor_util.make_ndarray(tensor)) == float(array)
    path = write_values(tmp_path, Summary.Value(tag="loss", tensor=tensor))
    assert rows_of(read_scalars(path)) == [(3, "loss", float(array))]


def test_bfloat16_is_the_upper_half_of_a_float32(tmp_path):
    tensor = TensorProto(dtype=DataType.DT_BFLOAT16, half_val=[0x3FA0])  # 1.25
    content = TensorProto(dtype=DataType.DT_BFLOAT16, tensor_content=b"\xa0\xbf")
    path = write_values(tmp_path, *(Summary.Value(tag="x", tensor=value) for value in (tensor, content)))
    assert [value for _, _, value in rows_of(read_scalars(path))] == [1.25, -1.25]


def test_arrays_and_texts_are_skipped(tmp_path):
    arrays = {"one": np.array([1.0]), "many": np.zeros(3), "none": np.zeros(0), "text": "words", "z": 1j}
    values = [
        Summary.Value(tag=tag, tensor=tensor_util.make_tensor_proto(array)) for tag, array in arrays.items()
    ]
    path = write_values(tmp_path, *values, Summary.Value(tag="image", image=Summary.Image(height=1)))
    assert rows_of(read_scalars(path)) == [(3, "one", 1.0)]


def test_a_tensor_without_its_number_is_corrupt(tmp_path, caplog):
    tensor = TensorProto(dtype=DataType.DT_FLOAT)
    path = write_values(tmp_path, Summary.Value(tag="loss", tensor=tensor))
    assert read_scalars(path) == []
    (message,) = caplog.messages
    assert re.search(r"\bcorrupt\b.*\(1\b.*\b1 valid\b", message)  # the file's version is valid


def test_steps_and_tags_of_any_length(tmp_path):
    steps = (0, 1, 127, 128, 300, 2**31, 2**35 - 1, 2**35, 2**62, -1, -(2**40))
    tags = ("", "f", "eval/accuracy", "größer", "x" * 107, "x" * 130, "x" * 500)
    rows = [(step, tag, 0.5) for step in steps for tag in tags]
    assert rows_of(read_scalars(write_events(tmp_path, rows))) == rows


@pytest.mark.parametrize("style", [{}, {"new_style": True}, {"new_style": True, "double_precision": True}])
def test_scalars_of_torch_in_every_style(tmp_path, style):
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    with tensorboard.SummaryWriter(str(tmp_path)) as writer:
        writer.add_text("sys.argv", "fairseq-train data")
        for step in (0, 7, 225, 10**6):
            writer.add_scalar("accuracy", 79.25, step, walltime=step / 8, **style)
    (path,) = tmp_path.iterdir()
    expected = [(step / 8, step, "accuracy", 79.25) for step in (0, 7, 225, 10**6)]
    assert [tuple(scalar) for scalar in read_scalars(path)] == expected


@pytest.mark.parametrize("missing", [1, 5, 17, 30])
def test_complete_records_of_a_truncated_file(event_file, caplog, missing):
    content = event_file.read_bytes()
    last = record_offsets(content)[-1]
    event_file.write_bytes(content[:-missing])
    assert rows_of(read_scalars(event_file)) == ROWS[:-1]
    (message,) = caplog.messages
    assert str(event_file) in message
    assert re.search(rf"\btruncated\b.* {last:,}\b", message)


def test_a_corrupt_length_loses_only_its_record(event_file, caplog):
    """TensorBoard's own reader stops here; the following records are found."""
    content = bytearray(event_file.read_bytes())
    offset = record_offsets(content)[11]
    content[offset] ^= 0xFF
    event_file.write_bytes(content)
    assert rows_of(read_scalars(event_file)) == ROWS[:10] + ROWS[11:]
    assert re.search(rf"\bcorrupt\b.* {offset:,} \(1\b", caplog.text)


def test_a_valid_checksum_of_other_data_is_corrupt(event_file, caplog):
    with event_file.open("ab") as stream:
        stream.write(frame(b"\xff\xff not a protocol buffer"))
    assert rows_of(read_scalars(event_file)) == ROWS
    assert re.search(r"\bcorrupt\b.*\(1\b", caplog.text)


@pytest.mark.parametrize("content", [b"epoch,accuracy\n1,70.5\n" * 20, bytes(500)])
def test_a_file_without_valid_records_is_an_error(tmp_path, content):
    path = tmp_path / "events.out.tfevents.1"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"tfevents\.1: .*byte 0\b"):
        read_scalars(path)


def test_an_empty_file_is_a_warning(tmp_path, caplog):
    path = tmp_path / "events.out.tfevents.1"
    path.touch()
    with caplog.at_level(logging.WARNING):
        assert read_scalars(path) == []
    (message,) = caplog.messages
    assert str(path) in message
