"""The command `collect`: copy manifests, scalars and predictions of runs to a folder or an archive.

The copy can be published. Text records of event files are removed, because trainers write their command line
with local paths into them. Checkpoints and the trainer's log are not copied.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from google.protobuf.message import DecodeError
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.types_pb2 import DataType

from roberta_small.analysis.options import add, add_command
from roberta_small.analysis.query import found_runs
from roberta_small.analysis.read.runs import LoggedRun, select_finished
from roberta_small.analysis.read.tfrecord import FOOTER_BYTES, HEADER_BYTES, read_records
from roberta_small.common import archive, manifest
from roberta_small.common.errors import UserError, enumerate_some
from roberta_small.common.files import atomic_write
from roberta_small.common.run import data_sets, has_runs

logger = logging.getLogger(__name__)

EXAMPLES = """examples:
  roberta-small collect runs --out results/runs
  roberta-small collect runs --out results/study.tar.xz
"""


def register(commands: argparse._SubParsersAction) -> None:
    """Add the command."""
    parser = add_command(
        commands, "collect", _collect, "copy manifests, scalars and predictions to a small folder or archive",
        EXAMPLES,
    )  # fmt: skip
    text = f"target folder, or archive (*{archive.SUFFIX}); run folders keep their relative paths"
    add(parser, ["out"], required=True, help=text)


def _collect(options: argparse.Namespace) -> None:
    folders = _folders(options.runs, options.pattern)
    runs = [run for folder in folders for run in select_finished(found_runs(folder, options.pattern))]
    for path in collect(runs, options.runs, options.out):
        print(f"wrote {path}", file=sys.stderr)


def _folders(source: str, pattern: str | None) -> list[str | os.PathLike[str]]:
    """The folders whose runs are copied: those of the data sets of a suite, or the given one."""
    root = archive.opened(source)
    if pattern is not None or has_runs(root):
        return [source]
    return list(data_sets(root).values()) or [source]


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
        if not any(map(_is_text, event.summary.value)):
            kept.append(content[begin - HEADER_BYTES : end + FOOTER_BYTES])
    return b"".join(kept)


def _is_text(value: Summary.Value) -> bool:
    return value.tensor.dtype == DataType.DT_STRING or value.metadata.plugin_data.plugin_name == "hparams"
