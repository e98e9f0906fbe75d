"""JSON logs and CSV exports corrupted at random: no crash, and all other lines are read."""

import json
import random

from roberta_small.analysis.read.scalars import LogCheck, Tags
from roberta_small.analysis.read.text_logs import HEADER, read_csv_files, read_json_files
from roberta_small.common.errors import UserError

PIECES = [
    b"{", b"}", b"[" * 5000, b'{"epoch": ', b'"', b"null", b"{}", b"[1]", b"1e30", b"1" + b"0" * 20, b",",
    b"\\ud800", b"\xed\xa0\x80", b"\xff", b"\x00", b"\r", b"\n", b"-", b"e400", b"NaN", b"1" * 5000, b"",
]  # fmt: skip
"""Byte sequences that text readers often fail on."""


def make_json(generator):
    """Lines as fairseq writes them, with the (step, tag, value) of each."""
    for step in range(1, generator.randint(3, 9)):
        subset = generator.choice(["train_inner", "valid", "test"])
        prefix = "" if subset == "train_inner" else f"{subset}_"
        loss = generator.choice(["0.7", "nan", "1e-05", 0.5])
        stats = {"epoch": 1, f"{prefix}loss": loss, f"{prefix}num_updates": str(step)}
        rows = [(step, (subset, "loss"), repr(float(loss)))]
        yield f"2026-11-21 | INFO | {subset} | {json.dumps(stats)}\n".encode(), rows


def make_csv(generator):
    """The heading and lines as TensorBoard exports them, with the (step, tag, value) of each."""
    yield f"{HEADER}\r\n".encode(), []
    for step in range(1, generator.randint(3, 9)):
        value = generator.choice([0.5, 61.25, float("nan")])
        rows = [(step, (None, "accuracy"), repr(value))]
        yield f"{1.7e9 + step},{step},{value}\r\n".encode(), rows


def corrupt_line(line, generator):
    """One corruption: a cut, flipped bits, a piece that should not be there, bytes that are lost."""
    start = generator.randrange(len(line) + 1)
    stop = min(start + generator.choice([1, 2, 8, 30]), len(line))
    flipped = bytes(byte ^ (1 << generator.randrange(8)) for byte in line[start:stop])
    piece = generator.choice(PIECES)
    return generator.choice(
        [
            line[:start] + b"\n",
            line[:start] + flipped + line[stop:],
            line[:start] + piece + line[stop:],
            line[:start] + piece + line[start:],
        ]
    )


def read(reader, path):
    """The (step, tag, value) of a file and its check."""
    tags, check = Tags(), LogCheck(path)
    parts = list(reader([path], tags, [check]))
    names = list(tags)
    rows = [
        (step, names[tag], repr(value))
        for part in parts
        for step, tag, value in zip(*(column.tolist() for column in part[2:]), strict=True)
    ]
    return rows, check


def check_text_file(folder, seed):
    """Read one file with one to three corrupted lines; whether that was reported. Errors name the seed."""
    generator = random.Random(seed)
    make, reader, name = generator.choice(
        [
            (make_json, read_json_files, "train.log"),
            (make_csv, read_csv_files, "run-bert_1_valid-tag-accuracy.csv"),
        ]
    )
    lines = list(make(generator))
    touched = set(generator.sample(range(len(lines)), min(len(lines), generator.randint(1, 3))))
    corrupted = [corrupt_line(line, generator) if n in touched else line for n, (line, _) in enumerate(lines)]
    touched |= {n + 1 for n in touched if not corrupted[n].endswith(b"\n")}  # two lines have become one
    path = folder / name
    path.write_bytes(b"".join(corrupted))
    try:
        rows, check = read(reader, path)
    except UserError:
        assert make is make_csv, f"seed {seed}: not read"
        assert 0 in touched, f"seed {seed}: the heading is whole"
        return True
    expected = [row for n, (_, good) in enumerate(lines) if n not in touched for row in good]
    assert not missing(expected, rows), f"seed {seed}: lines lost that nobody touched"
    return check.corrupt > 0 or check.truncated is not None


def missing(expected, rows):
    """What of the expected rows is not there, in this order."""
    remaining = iter(rows)
    return [row for row in expected if row not in remaining]
