"""A folder that appears whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from common.errors import UserError


def check_replaceable(folder: Path, marker: str, *, overwrite: bool) -> None:
    """Raise `UserError` where `folder` is in the way: without `overwrite`, or when it lacks our `marker` file."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not (folder / marker).is_file():
        raise UserError(
            f"{folder}: exists and was not written by this command (no {marker}); choose another --destdir"
        )
    if not overwrite:
        raise UserError(f"{folder}: exists; choose another --destdir or pass --overwrite")


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary sibling that takes the place of `folder` when the block ends without an error."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.", suffix=".tmp"))
    try:
        content = temporary / "new"
        content.mkdir()
        yield content
        if folder.exists():
            os.replace(folder, temporary / "old")
        os.replace(content, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
