"""Event files corrupted at random, and the records that must be found in them.

The expected result is known without reading: a record whose bytes are all still there, wherever they
moved, is valid; every other byte is corrupt.
"""

import random
import struct
from pathlib import Path

from google.protobuf.message import DecodeError
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import crc32c
from tensorboard.util import tensor_util

from roberta_small.analysis.read import events
from roberta_small.analysis.read.scalars import LogCheck, Tags

TAGS = ("loss", "accuracy", "f", "a tag with ümlauts")
BATCHES = (1 << 21, 300, 61)
"""Bytes read at once: the whole file, several records, about one."""


def masked_crc(data):
    """TensorBoard's own checksum."""
    crc = crc32c(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) % 2**32)


def frame(data):
    """The bytes as a record of an event file."""
    length = struct.pack("<Q", len(data))
    return length + masked_crc(length) + data + masked_crc(data)


def make_events(random):
    """Events as trainers write them: the version, scalars of all kinds, a text."""
    yield Event(wall_time=1.7e9, file_version="brain.Event:2")
    for step in range(random.randint(1, 12)):
        time_ = 1.7e9 + random.random()
        for tag in random.sample(TAGS, random.randint(1, 3)):
            value = Summary.Value(tag=tag)
            kind = random.choice(["simple", "simple", "simple", "float", "double", "text"])
            if kind == "simple":
                value.simple_value = random.choice([random.random(), float("nan"), float("inf"), 0.0])
            else:
                content = "words" if kind == "text" else random.random()
                dtype = {"float": "float32", "double": "float64"}.get(kind)
                value.tensor.CopyFrom(tensor_util.make_tensor_proto(content, dtype and dtype))
            step_ = random.choice([step, step * 1000, step << 33])
            yield Event(wall_time=time_, step=step_, summary=Summary(value=[value]))


def stock_scalars(event):
    """(wall time, step, tag, value as text) of each scalar, by TensorBoard's own conversion."""
    for value in event.summary.value:
        number = value.simple_value if value.WhichOneof("value") == "simple_value" else None
        if value.WhichOneof("value") == "tensor" and value.tensor.dtype != 7:  # DT_STRING
            array = tensor_util.make_ndarray(value.tensor)
            number = array.item() if array.size == 1 else None
        if number is not None:
            yield event.wall_time, event.step, value.tag, repr(float(number))


def mutate(content, random):
    """One to three corruptions: cut, flipped, lost, inserted, doubled or zeroed bytes, a foreign header."""
    for _ in range(random.randint(1, 3)):
        start = random.randrange(len(content) + 1)
        size = random.choice([1, 2, 4, 12, 60, 400])
        stop = min(start + random.randint(1, size), len(content))
        garbage = random.randbytes(stop - start)
        content = random.choice(
            [
                content[:start],
                content[:start] + content[stop:],
                content[:start] + garbage + content[stop:],
                content[:start] + garbage + content[start:],
                content[:start] + content[start:stop] + content[start:],
                content[:start] + bytes(stop - start) + content[stop:],
                content[:start] + bytes(size * 3) + content[start:],
                content[:start] + frame(bytes(random.choice([0, 40, 1 << 12])))[:12] + content[stop:],
                content[:start] + flip(content[start:stop], random) + content[stop:],
            ]
        )
    return content


def flip(content, random):
    """One bit of each byte."""
    return bytes(byte ^ (1 << random.randrange(8)) for byte in content)


def surviving(content, records):
    """(offset, record) of each whole record in the bytes, in their order, by searching for it."""
    found = []
    for record in set(records):
        place = content.find(record)
        while place >= 0:
            found.append((place, record))
            place = content.find(record, place + 1)
    return sorted(found)


def first_gap(content, found):
    """The offset of the first byte that belongs to no record, None where there is none."""
    offset = 0
    for place, record in found:
        if place > offset:
            break
        offset = place + len(record)
    return offset if offset < len(content) else None


def read(path, batch):
    """Our scalars as `stock_scalars` gives them, and the check."""
    tags, check = Tags(), LogCheck(path)
    usual, events.BATCH_BYTES = events.BATCH_BYTES, batch
    try:
        parts = list(events.read_event_files([path], tags, [check]))
    finally:
        events.BATCH_BYTES = usual
    names = [tag for _, tag in tags]
    columns = [[item for part in parts for item in part[column].tolist()] for column in range(1, 5)]
    rows = [(wall, step, names[tag], repr(value)) for wall, step, tag, value in zip(*columns, strict=True)]
    return rows, check


def check_damaged_file(path, seed):
    """Read one file that is corrupted at random; an AssertionError names the seed."""
    generator = random.Random(seed)
    all_events = list(make_events(generator))
    records = {frame(event.SerializeToString()): event for event in all_events}
    content = mutate(b"".join(records), generator)
    path.write_bytes(content)
    found = surviving(content, records)
    expected = [row for _, record in found for row in stock_scalars(records[record])]
    rows, check = read(path, generator.choice(BATCHES))
    assert rows == expected, f"seed {seed}: scalars lost or made up"
    assert check.valid == len(found), f"seed {seed}: records lost or made up"
    places = [place for place in (check.first, check.truncated) if place is not None]
    assert (min(places) if places else None) == first_gap(content, found), f"seed {seed}: check not reported"
    return len(found), bool(places)


def check_foreign_event(path, seed):
    """Read a record whose checksums are right and whose content was changed; protobuf says what it means."""
    generator = random.Random(seed)
    event = generator.choice(list(make_events(generator))).SerializeToString()
    data = mutate(event, generator)
    path.write_bytes(frame(Event(file_version="brain.Event:2").SerializeToString()) + frame(data))
    rows, check = read(path, BATCHES[0])
    try:
        expected = list(stock_scalars(Event.FromString(data)))
    except DecodeError:
        assert (rows, check.corrupt) == ([], 1), f"seed {seed}: not an event"
    except (ValueError, TypeError):  # a tensor that is not what it says
        assert rows == [], f"seed {seed}: not a number"
    else:
        assert (rows, check.corrupt) == (expected, 0), f"seed {seed}: not what protobuf says"


def check_many(folder, count, first_seed=0):
    """Both checks with `count` files, three of four corrupted; the valid records and the corrupted files."""
    path = Path(folder) / "events.out.tfevents.1"
    kept = corrupted = 0
    for seed in range(first_seed, first_seed + count):
        if seed % 4 == 3:
            check_foreign_event(path, seed)
            continue
        records, is_corrupt = check_damaged_file(path, seed)
        kept, corrupted = kept + records, corrupted + is_corrupt
    return kept, corrupted
