"""Copy manifests, scalars and predictions of runs to a folder or an archive.

The copy can be published. Text records of event files are removed, because trainers write their command line
with local paths into them. Checkpoints and the trainer's log are not copied.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from google.protobuf.message import DecodeError
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.types_pb2 import DataType

from roberta_small.analysis.read.runs import LoggedRun, select_finished
from roberta_small.analysis.read.tfrecord import FOOTER_BYTES, HEADER_BYTES, read_records
from roberta_small.analysis.selection import found_runs
from roberta_small.common import archive, manifest
from roberta_small.common.errors import UserError, enumerate_some
from roberta_small.common.files import atomic_write
from roberta_small.common.run import data_sets, has_runs

logger = logging.getLogger(__name__)


def collect_all(source: str, pattern: str | None, target: str) -> list[Path]:
    """`collect` of the finished runs below a folder or in an archive, also of the data sets of a suite."""
    root = archive.opened(source)
    folders: list[str | os.PathLike[str]] = [source]
    if pattern is None and not has_runs(root):
        folders = list(data_sets(root).values()) or folders
    runs = [run for folder in folders for run in select_finished(found_runs(folder, pattern))]
    return collect(runs, source, target)


def collect(
    runs: Sequence[LoggedRun], root: str | os.PathLike[str], target: str | os.PathLike[str]
) -> list[Path]:
    """Copy manifest, predictions and scalars of each run to the same relative path below `target`.

    If `target` ends in `archive.SUFFIX`, they are packed into one archive (see `common.archive`).

    Returns the new folders, or the archive. Raises `UserError`, before anything is written, if a run has no
    manifest or if the archive or one of the folders exists.
    """
    if str(target).endswith(archive.SUFFIX):
        if Path(target).exists():
            raise UserError(f"{target}: already exists; choose another --out or delete it")
        with tempfile.TemporaryDirectory(prefix="study-") as temporary:
            folder = Path(temporary) / "study"  # a new one, which may be that of a single run
            collect(runs, root, folder)
            archive.write(folder, target)
        return [Path(target)]
    folders = {run.folder: Path(target) / run.folder.relative_to(archive.opened(root)) for run in runs}
    without = [str(path) for path in folders if not (path / manifest.NAME).is_file()]
    if without:
        raise UserError(f"{enumerate_some(without)}: no {manifest.NAME}; collect needs one for every run")
    existing = [str(folder) for folder in folders.values() if folder.exists()]
    if existing:
        raise UserError(f"{enumerate_some(existing)}: already exists; choose another --out or delete it")
    for run in runs:
        folder = folders[run.folder]
        for path in [run.folder / manifest.NAME, *sorted(run.folder.glob("predictions-*.jsonl"))]:
            if not path.is_file():
                logger.warning("%s: not copied, not a regular file", path)
                continue
            atomic_write(folder / path.name, path.read_bytes())
        for log in run.logs:
            if log.kind == "events":
                atomic_write(folder / log.path.relative_to(run.folder), scalars_only(log.path))
    return list(folders.values())


def scalars_only(path: Path) -> bytes:
    """The valid records of an event file, without texts; warns if there are corrupt records."""
    content = path.read_bytes()
    records = read_records(content)
    if records.corrupt or records.truncated is not None:
        logger.warning("%s: corrupt records are not copied", path)
    kept = []
    for begin, end in zip(records.begins, records.ends, strict=True):
        try:
            event = Event.FromString(content[begin:end])
        except DecodeError:
            continue  # valid checksum, but not an event; readers skip it too
        texts = (
            value.tensor.dtype == DataType.DT_STRING or value.metadata.plugin_data.plugin_name == "hparams"
            for value in event.summary.value
        )
        if not any(texts):
            kept.append(content[begin - HEADER_BYTES : end + FOOTER_BYTES])
    return b"".join(kept)
