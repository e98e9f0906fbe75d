"""Find the log files below a folder and group them into runs.

There are three kinds of logs:

    events   TensorBoard event files, as written by torch, fairseq, Transformers and TensorFlow
    csv      TensorBoard's CSV exports: run-<run>-tag-<tag>.csv
    json     logs of `fairseq-train --log-format json`: *.log

The last two are only read for runs without event files.
"""

from __future__ import annotations

import errno
import logging
import os
import re
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from roberta_small.analysis.read.layout import LAST_TAG, Name, Pattern, name_run, plain_subset, split_subset
from roberta_small.common import manifest
from roberta_small.common.errors import UserError, count, enumerate_some
from roberta_small.common.files import escaped

logger = logging.getLogger(__name__)

Kind = Literal["events", "csv", "json"]

# A browser names a second download "... (1).csv".
EXPORT = re.compile(r"run-(?P<run>.*)-tag-(?P<tag>.*?)( \(\d+\))?\.csv", re.DOTALL)
UNTITLED_LOG = re.compile(r"(hydra_)?train(ing)?|log|output|fairseq")
JSON_LINE = b'{"epoch": '
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Log:
    """A log file; `subset` is None if it depends on the content (tags or lines)."""

    path: Path
    kind: Kind
    subset: str | None = None


@dataclass(frozen=True)
class Found:
    """The logs of a run; `name` is None if `folder` has a manifest."""

    folder: Path
    name: Name | None
    logs: tuple[Log, ...]


def discover(root: Path, pattern: Pattern | None) -> list[Found]:
    """All runs below `root`, ordered by folder, including those with a manifest but no logs.

    Raises `UserError` if a folder or log cannot be read, and if there are logs but none matches the pattern.
    """
    files, manifests = _walk(root)
    siblings: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for _, (*parents, last) in files:
        siblings[tuple(parents)].add(last)
    logs: dict[tuple[str, Name | None], list[Log]] = {(folder, None): [] for folder in manifests}
    unmatched = []
    for log, place in files:
        subset, parts = split_subset(place, siblings[place[:-1]])
        if log.kind == "json":
            subset, parts = None, list(place)
        elif (
            subset is None and place[-2] in siblings[place[:-2]] and (split := LAST_TAG.fullmatch(place[-1]))
        ):
            # SummaryWriter.add_scalars("accuracy", ...) writes into the folder accuracy_valid.
            subset, parts = split["subset"], list(place[:-1])
        name = None
        around = ("/".join(place[:end]) for end in range(len(place), 0, -1))
        folder = next((parent for parent in around if parent in manifests), None)
        if folder is None:
            if pattern is None:
                name = name_run(parts)
            else:
                if log.kind == "csv":
                    exported, _ = export_name(log.path.name)
                    named = pattern.name_export(exported, str(log.path.parent))
                else:
                    named = pattern.name("/".join(place if pattern.has_subset else parts))
                if named is None:
                    unmatched.append((log.path, "/".join(place)))
                    continue
                name, subset = named[0], named[1] or subset
            folder = name.folder
        elif subset is not None and len("/".join(parts)) < len(folder):
            subset = None  # the run's own folder has the name of a subset
        logs.setdefault((folder, name), []).append(replace(log, subset=subset))
    if pattern is not None and unmatched:
        path, described = unmatched[0]
        if not logs:
            raise UserError(
                f"--pattern '{pattern.text}': matches no log; the first log is {path} ({described})"
            )
        logger.warning(
            "%d logs excluded because they do not match the pattern '%s'; the first: %s",
            len(unmatched), pattern.text, path,
        )  # fmt: skip
    found = []
    absolute = root.resolve()
    for (folder, name), own in sorted(logs.items(), key=lambda item: item[0][0]):
        inside = Path(folder).is_relative_to(absolute)
        path = root / os.path.relpath(folder, absolute) if inside else Path(folder)  # relative if root is
        subsets = {log.subset for log in own if log.subset}
        usual = [log.subset and escaped(plain_subset(log.subset, subsets)) for log in own]
        renamed = tuple(replace(log, subset=subset) for log, subset in zip(own, usual, strict=True))
        found.append(Found(path, name, renamed))
    return _prefer_events(found)


def _walk(root: Path) -> tuple[list[tuple[Log, tuple[str, ...]]], set[str]]:
    """The log files below `root`, each with the parts of the absolute path from which it is named.

    Also the folders with a manifest, as absolute paths.
    """
    files, manifests = [], set()
    absolute = str(root.resolve())
    for folder, inside in _folders(root):
        here = os.path.normpath(os.path.join(absolute, os.path.relpath(folder, root)))
        if manifest.NAME in inside:
            manifests.add(here)
        for name in inside:
            path = os.path.join(folder, name)
            kind: Kind
            if "tfevents" in name:
                kind = "events"
            elif EXPORT.fullmatch(name):
                kind = "csv"
            elif name.endswith(".log"):
                kind, tail = "json", b""
                with readable(), open(path, "rb") as stream:
                    while (chunk := stream.read(CHUNK_BYTES)) and JSON_LINE not in tail + chunk:
                        tail = chunk[-len(JSON_LINE) :]
                if not chunk:
                    continue
            else:
                continue
            files.append((Log(Path(path), kind), tuple(_describe(here, name, kind).split("/"))))
    return files, manifests


def _folders(root: Path) -> Iterator[tuple[str, list[str]]]:
    """Each folder below `root` once, with the names of the files in it; follows symbolic links.

    Links are followed after everything that is reached without them: a folder below `root` has its own path,
    another folder that of the first link to it. Visiting each folder once also ends cycles of links. Warns
    about links without a target and logs that are no regular files. Raises `UserError` for a folder that
    cannot be read.
    """
    seen: set[tuple[int, int]] = set()  # device and inode, which are the same for all paths of a folder
    broken: list[str] = []
    special: list[str] = []  # pipes, sockets and devices, which would block a reader
    left, links = [str(root)], deque[str]()
    while left or links:
        folder = left.pop() if left else links.popleft()
        folders: list[str] = []
        files: list[str] = []
        with readable():
            try:
                state = os.stat(folder)
                if (place := (state.st_dev, state.st_ino)) in seen:
                    continue
                entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            except (FileNotFoundError, NotADirectoryError):  # deleted meanwhile
                continue
            seen.add(place)
            for entry in entries:
                name = entry.name
                if is_broken := entry.is_symlink() and _is_broken(entry.path):
                    broken.append(entry.path)
                if is_broken or entry.is_file() or name == manifest.NAME:  # a manifest is never skipped
                    files.append(name)
                elif entry.is_dir():
                    (links if entry.is_symlink() else folders).append(entry.path)
                elif "tfevents" in name or name.endswith(".log") or EXPORT.fullmatch(name):
                    special.append(entry.path)
        left += reversed(folders)
        yield folder, files
    if broken:
        logger.warning("%s without a target: %s", count(len(broken), "link"), enumerate_some(broken))
    if special:
        logger.warning(
            "%s skipped, not a regular file (a pipe, a device): %s",
            count(len(special), "log"), enumerate_some(special),
        )  # fmt: skip


def _is_broken(link: str) -> bool:
    """Whether a link leads to nothing or to itself."""
    try:
        os.stat(link)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno == errno.ELOOP:
            return True
        raise
    return False


@contextmanager
def readable() -> Iterator[None]:
    """Raise the errors of folders and logs that cannot be read as `UserError` with path and remedy.

    Without these files, the statistics would lack runs.
    """
    try:
        yield
    except OSError as error:
        if error.filename is None:
            raise
        denied = isinstance(error, PermissionError)
        remedy = "make it readable (chmod -R u+rX) or move it" if denied else "restore it, or move it"
        raise UserError(
            f"{error.filename}: cannot be read ({error.strerror}); {remedy} out of the folder of the runs"
        ) from None


def export_name(name: str) -> tuple[str, str]:
    """Run and tag in the file name of a TensorBoard export, which matches `EXPORT`."""
    match = EXPORT.fullmatch(name)
    assert match is not None
    return match["run"], match["tag"]


def _describe(folder: str, name: str, kind: Kind) -> str:
    """The path from which a log is named: its folder, extended by the file name for some kinds.

    TensorBoard exports the run `random/seed1/valid` as `run-random_seed1_valid-tag-loss.csv`.
    """
    if kind == "csv":
        run, _ = export_name(name)
        if run == ".":
            return folder
        train_inner = "/train_inner" if re.search(r"(^|[/_])train_inner$", run) else ""
        return folder + "/" + run.removesuffix(train_inner[1:]).rstrip("_/").replace("_", "/") + train_inner
    stem = name.removesuffix(".log")
    return folder if kind == "events" or UNTITLED_LOG.fullmatch(stem) else f"{folder}/{stem}"


def _prefer_events(found: Sequence[Found]) -> list[Found]:
    """Exclude exports and JSON logs of runs with event files: in or below the folder, or of the same name."""
    with_events = [run for run in found if any(log.kind == "events" for log in run.logs)]
    names = {(run.name.arm, run.name.init, run.name.seed) for run in with_events if run.name}
    around = {parent for run in with_events for parent in (run.folder, *run.folder.parents)}
    kept, dropped = [], 0
    for run in found:
        covered = run.folder in around or (run.name and (run.name.arm, run.name.init, run.name.seed) in names)
        logs = tuple(log for log in run.logs if log.kind == "events" or not covered)
        if run.name is not None:  # in a run folder it is the trainer's own log
            dropped += len(run.logs) - len(logs)
        if logs or run.name is None:
            kept.append(Found(run.folder, run.name, logs))
    if dropped:
        logger.info("%d exports or JSON logs not read, because their runs have event files", dropped)
    return kept
