"""How many examples a subset has: what a test set of that size can tell."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

from common import manifest, predictions
from common.errors import UserError
from common.files import sha256

from .runs import Run

INDEX_HEADER = struct.Struct("<9sQBQ")  # of fairseq's mmap format: magic, version, dtype, sentences
MAGIC = b"MMIDIDX\x00\x00"


def find_size(runs: Iterable[Run], subset: str = "test") -> int | None:
    """The examples of `subset`: as many as the runs' prediction files have, else as their data folder has.

    The data folder is the one that a run's manifest names, and counts only where its `label/<subset>.idx` is
    the file that the manifest recorded. None where no run has either. Raises `UserError` where runs differ.
    """
    sizes: dict[int, Run] = {}
    for run in runs:
        size = _from_predictions(run, subset) or _from_data(run, subset)
        if size:
            sizes.setdefault(size, run)
    if len(sizes) > 1:
        (one, run), (other, other_run), *_ = sizes.items()
        raise UserError(
            f"{run.name} has {one:,} {subset} examples and {other_run.name} {other:,}; give --test-size"
        )
    return next(iter(sizes), None)


def _from_predictions(run: Run, subset: str) -> int | None:
    path = run.path / predictions.file_name(subset)
    return len(predictions.read(path)) if path.exists() else None


def _from_data(run: Run, subset: str) -> int | None:
    data = (manifest.read(run.path) or {}).get("data", {})
    name = f"label/{subset}.idx"
    digest = (data.get("sha256") or {}).get(name)
    path = Path(data.get("path") or "") / name
    if digest is None or not path.is_file() or sha256(path) != digest:
        return None
    with open(path, "rb") as stream:
        header = stream.read(INDEX_HEADER.size)
    if len(header) < INDEX_HEADER.size or not header.startswith(MAGIC):
        return None
    return INDEX_HEADER.unpack(header)[3]
