"""What this project adds to fairseq's data layout: a report with checksums, and shards.

`BIN/preprocess.json`, the report of `python -m preprocess binarize`, has under `files` the SHA-256 of
every other file of the folder by its path inside it; fairseq-preprocess writes no such file.

Running text larger than memory is split into BIN/shard0, BIN/shard1, ... Each is a data folder of
fairseq's, which takes several as `BIN/shard0:BIN/shard1` and opens one at a time, an epoch each.
"""

from __future__ import annotations

import json
from pathlib import Path

from .errors import UserError

REPORT = "preprocess.json"


def recorded_checksums(folder: Path) -> dict[str, str]:
    """SHA-256 by name inside `folder`; none where it has no report.

    Raises `UserError` where the report is something else.
    """
    report = folder / REPORT
    if not report.is_file():
        return {}
    try:
        files = json.loads(report.read_text(encoding="utf-8"))["files"]
    except (ValueError, LookupError, TypeError, RecursionError):
        files = None
    if not isinstance(files, dict):
        raise UserError(f"{report}: not the report of python -m preprocess binarize; binarize again")
    return files


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
