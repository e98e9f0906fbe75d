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

from roberta_small.analysis.commands.options import add_command, add_out, found_runs
from roberta_small.analysis.read.runs import Run, select_finished
from roberta_small.analysis.read.tfrecord import FOOTER_BYTES, HEADER_BYTES, read_records
from roberta_small.common import archive, manifest, suite
from roberta_small.common.errors import UserError, enumerate_some
from roberta_small.common.files import atomic_write

logger = logging.getLogger(__name__)

EXAMPLES = """examples:
  python -m analysis collect runs --out results/runs
  python -m analysis collect runs --out results/study.tar.xz
"""


def register(commands: argparse._SubParsersAction) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "collect",
        _collect,
        "copy manifests, scalars and predictions to a small folder or archive",
        EXAMPLES,
    )
    text = f"target folder, or archive (*{archive.SUFFIX}); run folders keep their relative paths"
    add_out(parser, text, required=True)


def _collect(options: argparse.Namespace) -> None:
    root = options.runs
    runs = [run for folder in _folders(options) for run in select_finished(found_runs(options, folder))]
    for path in collect(runs, root, options.out):
        print(f"wrote {path}", file=sys.stderr)


def _folders(options: argparse.Namespace) -> list[str | os.PathLike[str]]:
    """The folders whose runs are copied: those of the data sets of a suite, or the given one."""
    root = archive.opened(options.runs)
    if options.pattern is not None or suite.has_runs(root):
        return [options.runs]
    return list(suite.data_sets(root).values()) or [options.runs]


def collect(runs: Sequence[Run], root: str | os.PathLike[str], target: str | os.PathLike[str]) -> list[Path]:
    """Copy manifest, predictions and scalars of each run to the same relative path below `target`.

    If `target` ends in `archive.SUFFIX`, they are packed into one archive (see `common.archive`).

    Returns the new folders, or the archive. Raises `UserError`, before anything is written, if a run has no
    manifest or if the archive or one of the folders exists.
    """
    if str(target).endswith(archive.SUFFIX):
        if Path(target).exists():
            raise UserError(f"{target}: already exists; choose another --out or delete it")
        with tempfile.TemporaryDirectory(prefix="study-") as temporary:
            collect(runs, root, temporary)
            archive.write(temporary, target)
        return [Path(target)]
    folders = {run.path: Path(target) / run.path.relative_to(archive.opened(root)) for run in runs}
    without = [str(path) for path in folders if not (path / manifest.NAME).is_file()]
    if without:
        raise UserError(f"{enumerate_some(without)}: no {manifest.NAME}; collect needs one for every run")
    existing = [str(folder) for folder in folders.values() if folder.exists()]
    if existing:
        raise UserError(f"{enumerate_some(existing)}: already exists; choose another --out or delete it")
    for run in runs:
        folder = folders[run.path]
        for path in [run.path / manifest.NAME, *sorted(run.path.glob("predictions-*.jsonl"))]:
            if not path.is_file():
                logger.warning("%s: not copied, not a regular file", path)
                continue
            atomic_write(folder / path.name, path.read_bytes())
        for log in run.logs:
            if log.kind == "events":
                atomic_write(folder / log.path.relative_to(run.path), scalars_only(log.path))
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
