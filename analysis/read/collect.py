"""What of the runs fits into a repository and tells nothing of the machine: manifests, scalars, answers.

Trainers also write their command line into the event files, with the folders of whoever started them; the
manifest has it without. Checkpoints and the trainer's own log stay where they are.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path

from google.protobuf.message import DecodeError
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.types_pb2 import DataType

from common import manifest
from common.errors import UserError, enumerate_some
from common.files import atomic_write

from .runs import Run
from .tfrecord import FOOTER_BYTES, HEADER_BYTES, read_records

logger = logging.getLogger(__name__)


def collect(runs: Sequence[Run], root: str | os.PathLike[str], target: str | os.PathLike[str]) -> list[Path]:
    """Copy manifest, predictions and the scalars of each run to the same place below `target`.

    Returns the new folders. Raises `UserError`, before anything is written, where a run has no manifest or
    one of its folders is there already.
    """
    folders = {run.path: Path(target) / run.path.relative_to(root) for run in runs}
    bare = [str(path) for path in folders if not (path / manifest.NAME).is_file()]
    if bare:
        raise UserError(f"{enumerate_some(bare)}: no {manifest.NAME}; only runs that have one are collected")
    taken = [str(folder) for folder in folders.values() if folder.exists()]
    if taken:
        raise UserError(f"{enumerate_some(taken)}: exists; move it away, or collect elsewhere")
    for run in runs:
        folder = folders[run.path]
        for path in [run.path / manifest.NAME, *sorted(run.path.glob("predictions-*.jsonl"))]:
            atomic_write(folder / path.name, path.read_bytes())
        for log in run.logs:
            if log.kind == "events":
                atomic_write(folder / log.path.relative_to(run.path), scalars_only(log.path))
    return list(folders.values())


def scalars_only(path: Path) -> bytes:
    """An event file's good records without texts; those that are damaged are left out, and said."""
    content = path.read_bytes()
    records = read_records(content)
    if records.damaged or records.cut is not None:
        logger.warning("%s: damaged records are left out", path)
    kept = []
    for begin, end in zip(records.begins, records.ends, strict=True):
        try:
            event = Event.FromString(content[begin:end])
        except DecodeError:
            continue  # a good checksum around what is no event: readers pass over it too
        if not any(map(_is_text, event.summary.value)):
            kept.append(content[begin - HEADER_BYTES : end + FOOTER_BYTES])
    return b"".join(kept)


def _is_text(value: Summary.Value) -> bool:
    return value.tensor.dtype == DataType.DT_STRING or value.metadata.plugin_data.plugin_name == "hparams"
