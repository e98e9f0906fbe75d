"""Data folders: the report with checksums, index files, shards, and the overlap between splits.

`BIN/preprocess.json` is the report of `roberta-small prepare`; fairseq-preprocess writes none. Its
object `files` maps the relative path of every other file in the folder to its SHA-256.

Running text larger than memory is split into BIN/shard0, BIN/shard1, ... Each shard is a fairseq data folder.
fairseq accepts several as `BIN/shard0:BIN/shard1` and opens one per epoch.

Index files (`.idx` of fairseq's data format `mmap`) are written and read without fairseq:

    header    magic (9 bytes), version 1 (uint64), code of the ids' dtype (uint8), sentences N (uint64)
    body      sizes in tokens (int32, N), byte offsets in `.bin` (int64, N)

All values are little-endian. The bytes are those of `MMapIndexedDatasetBuilder` in
`fairseq/data/indexed_dataset.py` of fairseq 0.12.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_small.common.errors import UserError
from roberta_small.common.files import atomic_write, read_json, sha256

REPORT = "preprocess.json"
REPORT_OBJECTS = ("options", "sha256", "files")
"""Keys of a report whose values are JSON objects."""
WRITE_AGAIN = "write the data folder again (roberta-small prepare)"
"""The remedy for a corrupt data folder."""
INPUTS = "inputs"
"""The folder of a run with what is needed to classify text: a data folder without examples."""
NOT_A_REPORT = f"not a report of `roberta-small`; {WRITE_AGAIN}"

MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
OTHER_MAGIC = (b"TNTIDX\0\0", b"HUFFIDX\0")
"""First bytes of the other index formats that fairseq reads."""
ID_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 8: 2, 9: 4, 10: 8}
"""Bytes of an id, by the code of its dtype; integer types only."""
DTYPE_CODES = {np.dtype("<u2"): 8, np.dtype("<u4"): 9}
SIZE = np.dtype("<i4")
OFFSET = np.dtype("<i8")

_LAYOUT = struct.Struct("<9sQBQ")
HEADER_BYTES = _LAYOUT.size


def read_report(folder: Path) -> dict[str, Any]:
    """Read the report of `folder`, empty if there is none; raises `UserError` if it is not a report."""
    path = folder / REPORT
    if not path.is_file():
        return {}
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        valid = all(isinstance(report.get(part, {}), dict) for part in REPORT_OBJECTS)
    except (ValueError, AttributeError, RecursionError):
        valid = False
    if not valid:
        raise UserError(f"{path}: {NOT_A_REPORT}")
    return report


def recorded_checksums(folder: Path) -> dict[str, str]:
    """The recorded SHA-256 of each file by its path in `folder`; empty without a report.

    Raises `UserError` if the report is not one of `preprocess`.
    """
    if not (folder / REPORT).is_file():
        return {}
    report = read_report(folder)
    if "files" not in report:
        raise UserError(f"{folder / REPORT}: {NOT_A_REPORT}")
    return report["files"]


def require_recorded(path: Path, found: str, recorded: str | None, folder: Path) -> None:
    """Raise `UserError` if the SHA-256 `found` of `path` differs from the one recorded in its folder."""
    if recorded is not None and found != recorded:
        raise UserError(
            f"{path}: not the file that {folder / REPORT} records (SHA-256 {str(recorded)[:12]}...): "
            f"it is corrupt or belongs to other data; {WRITE_AGAIN}"
        )


def dictionary_digest(symbols: Sequence[str]) -> str:
    """SHA-256 of the symbols in the order of their ids, including special symbols; counts are not included.

    Checkpoints record it to identify the dictionary that they were trained with.
    """
    return hashlib.sha256("\n".join(symbols).encode()).hexdigest()


def keys_of(columns: Iterable[Iterable[str]]) -> list[str]:
    """The key of each example; `columns` has the texts of all examples, of pairs first and second ones."""
    texts = ("\t".join(parts) for parts in zip(*columns, strict=True))
    return [hashlib.sha256(text.encode()).hexdigest()[:16] for text in texts]


def keys_digest(keys: Sequence[str | None] | None) -> str | None:
    """One key for examples in this order, as in an audit; None if the key of one is not known."""
    known = [key for key in keys or () if key]
    return keys_of([["\n".join(known)]])[0] if known and len(known) == len(keys or ()) else None


def shard_name(number: int) -> str:
    """Name of a shard's folder; shards are numbered from 0."""
    return f"shard{number}"


def shards_of(folder: Path) -> list[Path]:
    """The shards in `folder` in order, or the folder itself if it has none.

    Raises `UserError` if a number is missing.
    """
    numbers = sorted(
        int(path.name.removeprefix("shard"))
        for path in folder.glob("shard*")
        if path.name.removeprefix("shard").isdecimal() and path.is_dir()
    )
    for expected, number in enumerate(numbers):
        if number != expected:
            raise UserError(
                f"{folder}: {shard_name(expected)} is missing, but {shard_name(number)} exists; {WRITE_AGAIN}"
            )
    return [folder / shard_name(number) for number in numbers] or [folder]


def soft_labels_file(folder: Path, split: str) -> Path:
    """Where the class probabilities of the examples of a split are, fp32 (N, K) of `numpy.save`.

    The classes are in the order of `label/dict.txt`.
    """
    return folder / "label" / f"{split}.soft.npy"


def find_soft_labels(folder: Path, split: str) -> Path | None:
    """The file of the soft labels of a split; None if it has none.

    Raises `UserError` if the report of the folder records a file that is missing.
    """
    path = soft_labels_file(folder, split)
    if path.is_file():
        return path
    if path.relative_to(folder).as_posix() in recorded_checksums(folder):
        raise UserError(f"{path}: no such file, but {folder / REPORT} records it; {WRITE_AGAIN}")
    return None


Report = dict[str, Any]


def request(options: dict[str, Any], files: Sequence[str]) -> Report:
    """The part of a report that is known before the work: options, and the checksum of every input file."""
    return {"options": options, "sha256": {path: sha256(path) for path in files}}


def finished(folder: Path, report_name: str, request: Report) -> Report | None:
    """The report of a folder that was written for the same request and is intact; otherwise None."""
    try:
        report = json.loads((folder / report_name).read_text(encoding="utf-8"))
        same = all(report[key] == request[key] for key in request)
        return report if same and report["files"] == _checksums(folder, report_name) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def check_replaceable(folder: Path, report_name: str, *, overwrite: bool) -> None:
    """Raise `UserError` if `folder` exists and has no report of the command, or `overwrite` is not set."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not (folder / report_name).is_file():
        raise UserError(
            f"{folder}: exists but was not written by this command ({report_name} is missing); "
            "choose another --out"
        )
    if not overwrite:
        raise UserError(f"{folder}: exists; choose another --out or pass --overwrite")


def write_report(folder: Path, report_name: str, report: Report) -> Report:
    """Write the report after all other files of the folder; returns it with their checksums."""
    report = report | {"files": _checksums(folder, report_name)}
    atomic_write(folder / report_name, json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    return report


def _checksums(folder: Path, report_name: str) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != report_name)
    return {path.relative_to(folder).as_posix(): sha256(path) for path in files}


NOTIONS = ("exact", "normalized")
"""Two texts are the same if they are equal, or equal after normalization (`preprocess.audit`)."""
REMEDY = "use the audit.json of a data folder that roberta-small prepare wrote"


@dataclass(frozen=True)
class Overlap:
    """The lines of `split` whose text also occurs in `other`."""

    split: str
    other: str
    notion: str
    """When two texts count as the same, one of `NOTIONS`."""
    size: int
    """Number of lines of `split`."""
    lines: frozenset[int]
    """Line numbers, counted from 0."""
    texts: str | None = None
    """`keys_digest` of the texts of `split`, if the audit has it."""


def read_overlap(
    path: str | os.PathLike[str], split: str = "test", other: str = "train", notion: str = "exact"
) -> Overlap:
    """Read an overlap from an audit file; `notion` is "exact" or "normalized" (see `preprocess.audit`).

    Raises `UserError` if the file is not an audit or does not contain these splits.
    """
    content = read_json(path, REMEDY)
    try:
        size, lines = content["splits"][split]["lines"], content["duplicates"][notion][split][other]
    except (KeyError, TypeError):
        raise UserError(
            f"{path}: not an audit of {split} and {other} ({notion} duplicates); {REMEDY}"
        ) from None
    if type(size) is not int or not isinstance(lines, list) or not all(type(line) is int for line in lines):
        raise UserError(f"{path}: the lines of {split} that occur in {other} are not numbers; {REMEDY}")
    if size < 1:
        raise UserError(f"{path}: {split} has {size:,} lines; {REMEDY}")
    if invalid := [line for line in lines if not 0 <= line < size]:
        raise UserError(f"{path}: lists line {invalid[0]} of {split}, which has {size:,} lines; {REMEDY}")
    return Overlap(split, other, notion, size, frozenset(lines), content["splits"][split].get("texts"))


@dataclass(frozen=True)
class Header:
    """The header fields that differ between files."""

    code: int
    """Code of the ids' dtype, a key of `ID_BYTES`."""
    sentences: int

    def pack(self) -> bytes:
        """The header as bytes."""
        return _LAYOUT.pack(MAGIC, VERSION, self.code, self.sentences)


def read_header(path: str | os.PathLike[str]) -> Header | None:
    """Read the header of an index file; None if the file does not begin with a valid header."""
    with open(path, "rb") as stream:
        content = stream.read(HEADER_BYTES)
    if len(content) < HEADER_BYTES:
        return None
    magic, version, code, sentences = _LAYOUT.unpack(content)
    valid = magic == MAGIC and version == VERSION and code in ID_BYTES
    return Header(code, sentences) if valid else None


def read_sizes(path: str | os.PathLike[str]) -> NDArray[np.int32] | None:
    """Tokens of each sentence, (N,); None if the file is not an index of this format."""
    header = read_header(path)
    return None if header is None else np.fromfile(path, SIZE, header.sentences, offset=HEADER_BYTES)


def is_index(path: str | os.PathLike[str]) -> bool:
    """Whether `path` is a valid index: complete, and each sentence begins where the previous one ends.

    fairseq does not check offsets, so a wrong one silently selects other tokens. For index formats other than
    `mmap`, only the first bytes are checked.
    """
    with open(path, "rb") as stream:
        if stream.read(len(OTHER_MAGIC[0])).startswith(OTHER_MAGIC):
            return True
    header = read_header(path)
    body_bytes = os.path.getsize(path) - HEADER_BYTES
    if header is None or body_bytes != (SIZE.itemsize + OFFSET.itemsize) * header.sentences:
        return False
    body = np.fromfile(path, np.uint8, offset=HEADER_BYTES)
    sizes_end = SIZE.itemsize * header.sentences
    sizes, offsets = body[:sizes_end].view(SIZE), body[sizes_end:].view(OFFSET)
    id_bytes = ID_BYTES[header.code]
    ends = np.cumsum(sizes, dtype=np.int64) * id_bytes
    return bool((sizes >= 0).all() and np.array_equal(offsets, ends - sizes.astype(np.int64) * id_bytes))
