"""Data are compared with the checksums that `python -m preprocess binarize` recorded, when they are opened.

A flipped bit in `.bin` is another word, and nothing else would tell. fairseq reads the whole file when it
opens it anyway (fairseq/data/indexed_dataset.py, `_warmup_mmap_file`). Data without a report, as
fairseq-preprocess writes them, are taken as they are.
"""

from __future__ import annotations

from functools import wraps
from pathlib import Path
from typing import Any

from fairseq.data import data_utils

from common.data_folder import recorded_checksums, require_recorded
from common.files import sha256


def check_when_opened() -> None:
    """Let every task of fairseq's compare the data it loads."""
    load = data_utils.load_indexed_dataset
    if hasattr(load, "__wrapped__"):
        return

    @wraps(load)
    def compared(path: str, *args: Any, **kwargs: Any) -> Any:
        check(Path(path))
        return load(path, *args, **kwargs)

    data_utils.load_indexed_dataset = compared


def check(prefix: Path) -> None:
    """Raise `UserError` where `prefix`'s .bin or .idx, or dict.txt beside it, is not the recorded file."""
    for folder in prefix.absolute().parents[:2]:  # of BIN/train, BIN/input0/train or BIN/shard0/train
        recorded = recorded_checksums(folder)
        for path in (Path(f"{prefix}.bin"), Path(f"{prefix}.idx"), prefix.parent / "dict.txt"):
            name = path.absolute().relative_to(folder).as_posix()
            if name in recorded and path.is_file():
                require_recorded(path, sha256(path), recorded[name], folder)
