"""Data folders: the report with checksums, shards, and the overlap between splits.

`BIN/preprocess.json`, the report of `python -m preprocess binarize`, has under `files` the SHA-256 of
every other file of the folder by its path inside it; fairseq-preprocess writes no such file.

Running text larger than memory is split into BIN/shard0, BIN/shard1, ... Each is a data folder of
fairseq's, which takes several as `BIN/shard0:BIN/shard1` and opens one at a time, an epoch each.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import UserError
from .files import atomic_write, read_json, sha256

REPORT = "preprocess.json"
PARTS = ("options", "sha256", "files")
"""Of a report, each an object."""
NOT_ONE = "not the report of python -m preprocess binarize; binarize again"


def read_report(folder: Path) -> dict[str, Any]:
    """The report of `folder`; empty where it has none. Raises `UserError` where it is something else."""
    path = folder / REPORT
    if not path.is_file():
        return {}
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        known = all(isinstance(report.get(part, {}), dict) for part in PARTS)
    except (ValueError, AttributeError, RecursionError):
        known = False
    if not known:
        raise UserError(f"{path}: {NOT_ONE}")
    return report


def recorded_checksums(folder: Path) -> dict[str, str]:
    """SHA-256 by name inside `folder`; none where it has no report.

    Raises `UserError` where the report is something else.
    """
    if not (folder / REPORT).is_file():
        return {}
    report = read_report(folder)
    if "files" not in report:
        raise UserError(f"{folder / REPORT}: {NOT_ONE}")
    return report["files"]


def require_recorded(path: Path, found: str, recorded: str | None, folder: Path) -> None:
    """Raise `UserError` where `path` has another SHA-256 than its folder's report records."""
    if recorded is not None and found != recorded:
        raise UserError(
            f"{path}: not the file that {folder / REPORT} records (SHA-256 {str(recorded)[:12]}...): "
            "corrupt, or of other data; binarize again"
        )


def dictionary_digest(symbols: Sequence[str]) -> str:
    """SHA-256 of the symbols in id order, special symbols included; counts do not matter.

    Checkpoints record it to recognize the dictionary that they were trained with.
    """
    return hashlib.sha256("\n".join(symbols).encode()).hexdigest()


def shard_name(number: int) -> str:
    """The folder of a shard, numbered from 0."""
    return f"shard{number}"


def shards_of(folder: Path) -> list[Path]:
    """The shards inside `folder` in order; the folder itself where it has none.

    Raises `UserError` where a number is missing.
    """
    numbers = sorted(
        int(path.name.removeprefix("shard"))
        for path in folder.glob("shard*")
        if path.name.removeprefix("shard").isdecimal() and path.is_dir()
    )
    for expected, number in enumerate(numbers):
        if number != expected:
            raise UserError(
                f"{folder}: {shard_name(expected)} is missing, "
                f"but {shard_name(number)} exists; binarize again"
            )
    return [folder / shard_name(number) for number in numbers] or [folder]


Report = dict[str, Any]


def request(options: dict[str, Any], files: Sequence[str]) -> Report:
    """The part of a report that is known beforehand: the options and the checksum of every file read."""
    return {"options": options, "sha256": {path: sha256(path) for path in files}}


def finished(folder: Path, report_name: str, request: Report) -> Report | None:
    """The report of a folder that already holds what is requested, each file intact; otherwise None."""
    try:
        report = json.loads((folder / report_name).read_text(encoding="utf-8"))
        same = all(report[key] == request[key] for key in request)
        return report if same and report["files"] == _checksums(folder, report_name) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def check_replaceable(folder: Path, report_name: str, *, overwrite: bool) -> None:
    """Raise `UserError` where `folder` is in the way: not ours (it has no report), or without `overwrite`."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not (folder / report_name).is_file():
        raise UserError(f"{folder}: exists and has no {report_name} of this command; choose another --out")
    if not overwrite:
        raise UserError(f"{folder}: exists; choose another --out or pass --overwrite")


def write_report(folder: Path, report_name: str, report: Report) -> Report:
    """Write the report as the last file of the folder; returns it with the checksums added."""
    report = report | {"files": _checksums(folder, report_name)}
    atomic_write(folder / report_name, json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    return report


def _checksums(folder: Path, report_name: str) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != report_name)
    return {path.relative_to(folder).as_posix(): sha256(path) for path in files}


NOTIONS = ("exact", "normalized")
REMEDY = "write it again: python -m preprocess audit --out"


@dataclass(frozen=True)
class Overlap:
    """The lines of `split` whose text also occurs in `other`, by one definition of the same text."""

    split: str
    other: str
    notion: str
    size: int
    """Lines of the split."""
    lines: frozenset[int]
    """Counted from 0."""


def read_overlap(
    path: str | os.PathLike[str], split: str = "test", other: str = "train", notion: str = "exact"
) -> Overlap:
    """One overlap from an audit file; `notion` is "exact" or "normalized" (see `preprocess.audit`).

    Raises `UserError` where the file is no audit or has no such split.
    """
    content = read_json(path, REMEDY)
    try:
        size, lines = content["splits"][split]["lines"], content["duplicates"][notion][split][other]
    except (KeyError, TypeError):
        raise UserError(
            f"{path}: not an audit of {split} and {other} ({notion} duplicates); {REMEDY}"
        ) from None
    if type(size) is not int or not isinstance(lines, list) or not all(type(line) is int for line in lines):
        raise UserError(f"{path}: the lines of {split} that occur in {other} are no line numbers; {REMEDY}")
    if size < 1:
        raise UserError(f"{path}: {split} has {size:,} lines, and nothing can be said of it; {REMEDY}")
    if strange := [line for line in lines if not 0 <= line < size]:
        raise UserError(f"{path}: names line {strange[0]} of {split}, which has {size:,} lines; {REMEDY}")
    return Overlap(split, other, notion, size, frozenset(lines))
