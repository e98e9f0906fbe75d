"""A result folder that appears whole or not at all, with a JSON report of what it was made of.

The report is an object with at least the keys `options` and `sha256` (the request: all that determines the
result) and `files` (checksum of every other file of the folder, by its path inside it).
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.files import atomic_write, sha256

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
        raise UserError(
            f"{folder}: exists and has no {report_name} of this command; choose another --destdir"
        )
    if not overwrite:
        raise UserError(f"{folder}: exists; choose another --destdir or pass --overwrite")


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary sibling that takes the place of `folder` when the block ends without an error.

    A `UserError` from the block names the files as they would have stood in `folder`.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.", suffix=".tmp"))
    try:
        new, old = temporary / "new", temporary / "old"
        new.mkdir()
        yield new
        if folder.exists():
            os.replace(folder, old)
        try:
            os.replace(new, folder)
        except OSError:
            if old.exists():
                os.replace(old, folder)
            raise
    except UserError as error:
        raise UserError(str(error).replace(str(temporary / "new"), str(folder))) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_report(folder: Path, report_name: str, report: Report) -> Report:
    """Write the report as the last file of the folder; returns it with the checksums added."""
    report = report | {"files": _checksums(folder, report_name)}
    atomic_write(folder / report_name, json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    return report


def _checksums(folder: Path, report_name: str) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != report_name)
    return {path.relative_to(folder).as_posix(): sha256(path) for path in files}
