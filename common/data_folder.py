"""What this project adds to fairseq's data layout: a report with checksums, and shards.

`BIN/preprocess.json`, the report of `python -m preprocess binarize`, has under `files` the SHA-256 of
every other file of the folder by its path inside it; fairseq-preprocess writes no such file.

Running text larger than memory is split into BIN/shard0, BIN/shard1, ... Each is a data folder of
fairseq's, which takes several as `BIN/shard0:BIN/shard1` and opens one at a time, an epoch each.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .errors import UserError

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
            "damaged, or of other data; binarize again"
        )


def shard_name(number: int) -> str:
    """The folder of a shard, numbered from 0."""
    return f"shard{number}"


def shards_of(folder: Path) -> list[Path]:
    """The shards inside `folder` in order; the folder itself where it has none.

    Raises `UserError` where one lacks between others.
    """
    numbers = sorted(
        int(path.name.removeprefix("shard"))
        for path in folder.glob("shard*")
        if path.name.removeprefix("shard").isdecimal() and path.is_dir()
    )
    for expected, number in enumerate(numbers):
        if number != expected:
            raise UserError(
                f"{folder}: lacks {shard_name(expected)}, but has {shard_name(number)}; binarize again"
            )
    return [folder / shard_name(number) for number in numbers] or [folder]
