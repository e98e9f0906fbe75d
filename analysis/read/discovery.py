"""The log files below a folder, sorted into runs.

Three kinds of logs are known:

    events   TensorBoard event files; torch, fairseq, Transformers and TensorFlow write them
    csv      what TensorBoard exports: run-<run>-tag-<tag>.csv
    json     logs of `fairseq-train --log-format json`: *.log

The last two are what is left of a run whose event files are gone, and not read beside event files.
"""

from __future__ import annotations

import logging
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from common import manifest
from common.errors import UserError

from .layout import Name, Pattern, name_run, plain_subset, split_subset, strip

logger = logging.getLogger(__name__)

Kind = Literal["events", "csv", "json"]

# A browser names a second download "... (1).csv".
EXPORT = re.compile(r"run-(?P<run>.*)-tag-(?P<tag>.*?)( \(\d+\))?\.csv", re.DOTALL)
UNTITLED_LOG = re.compile(r"(hydra_)?train(ing)?|log|output|fairseq")
JSON_LINE = b'{"epoch": '
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Log:
    """One log file; its subset is None where only its content can tell."""

    path: Path
    kind: Kind
    subset: str | None = None


@dataclass(frozen=True)
class Found:
    """The logs of one run; `name` is None where `folder` has a manifest."""

    folder: Path
    name: Name | None
    logs: tuple[Log, ...]


@dataclass(frozen=True)
class _File:
    """A log file and the parts of the absolute path that describes it."""

    path: str
    kind: Kind
    parts: tuple[str, ...]


def discover(root: Path, pattern: Pattern | None) -> list[Found]:
    """All runs below `root`, in the order of their folders; one without logs is there if it has a manifest.

    Raises `UserError` where there are logs, but the pattern describes none.
    """
    files, manifests = _walk(root)
    siblings: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for file in files:
        siblings[file.parts[:-1]].add(file.parts[-1])
    logs: dict[tuple[str, Name | None], list[Log]] = {(folder, None): [] for folder in manifests}
    left_out = []
    for file in files:
        subset, parts = split_subset(file.parts, siblings[file.parts[:-1]])
        if file.kind == "json":
            subset, parts = None, list(file.parts)
        name = None
        if (folder := _with_manifest(file, manifests)) is None:
            if pattern is None:
                name = name_run(parts)
            elif (named := _apply(pattern, file, parts)) is not None:
                name, subset = named[0], named[1] or subset
            else:
                left_out.append(file)
                continue
            folder = name.folder
        elif subset is not None and len("/".join(parts)) < len(folder):
            subset = None  # the folder of the run itself is called like a subset
        logs.setdefault((folder, name), []).append(Log(Path(file.path), file.kind, subset))
    _say_left_out(left_out, pattern, anything=bool(logs))
    absolute = str(root.resolve())
    found = [
        Found(_as_given(folder, root, absolute), name, _plain_subsets(logs[folder, name]))
        for folder, name in sorted(logs, key=lambda key: key[0])
    ]
    return _prefer_events(found)


def _walk(root: Path) -> tuple[list[_File], set[str]]:
    """The log files below `root` and the folders with a manifest, as absolute paths."""
    files, manifests = [], set()
    absolute = str(root.resolve())
    for folder, inside in _folders(root):
        here = os.path.normpath(os.path.join(absolute, os.path.relpath(folder, root)))
        if manifest.NAME in inside:
            manifests.add(here)
        for name in sorted(inside):
            if (kind := _kind(folder, name)) is not None:
                files.append(
                    _File(os.path.join(folder, name), kind, tuple(_describe(here, name, kind).split("/")))
                )
    return files, manifests


def _folders(root: Path) -> Iterator[tuple[str, list[str]]]:
    """Each folder below `root` once, with the names of what is not a folder in it; links are followed.

    A folder goes by its own path where it has one below `root`, else by that of the first link to it: links
    come after everything that is reached without them. So a link to a folder around it ends there, too.
    """
    seen: set[tuple[int, int]] = set()
    starts = [str(root)]
    while starts:
        links = []
        for start in starts:
            for folder, names, inside in os.walk(start):
                if (identity := _identity(folder)) is None or identity in seen:
                    names.clear()
                    continue
                seen.add(identity)
                names.sort()
                links += [path for name in names if os.path.islink(path := os.path.join(folder, name))]
                yield folder, inside
        starts = links


def _identity(folder: str) -> tuple[int, int] | None:
    """The same for every path to a folder; None where it has gone meanwhile."""
    try:
        state = os.stat(folder)
    except FileNotFoundError:
        return None
    return state.st_dev, state.st_ino


def _kind(folder: str, name: str) -> Kind | None:
    if "tfevents" in name:
        return "events"
    if EXPORT.fullmatch(name):
        return "csv"
    if name.endswith(".log") and _has_json_lines(os.path.join(folder, name)):
        return "json"
    return None


def _has_json_lines(path: str) -> bool:
    tail = b""
    with open(path, "rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            if JSON_LINE in tail + chunk:
                return True
            tail = chunk[-len(JSON_LINE) :]
    return False


def _describe(folder: str, name: str, kind: Kind) -> str:
    """The path that describes a log: its folder, and for some kinds what the name of the file adds.

    A browser saves the run `random/seed1/valid` as `run-random_seed1_valid-tag-loss.csv`.
    """
    if kind == "csv":
        run = EXPORT.fullmatch(name)["run"]
        if run == ".":
            return folder
        train_inner = "/train_inner" if re.search(r"(^|[/_])train_inner$", run) else ""
        return folder + "/" + run.removesuffix(train_inner[1:]).rstrip("_/").replace("_", "/") + train_inner
    stem = name.removesuffix(".log")
    return folder if kind == "events" or UNTITLED_LOG.fullmatch(stem) else f"{folder}/{stem}"


def _with_manifest(file: _File, manifests: set[str]) -> str | None:
    """The nearest folder around the log that has a manifest."""
    for end in range(len(file.parts), 0, -1):
        if (folder := "/".join(file.parts[:end])) in manifests:
            return folder
    return None


def _apply(pattern: Pattern, file: _File, parts: Sequence[str]) -> tuple[Name, str | None] | None:
    if file.kind == "csv":
        return pattern.name_export(
            EXPORT.fullmatch(os.path.basename(file.path))["run"], os.path.dirname(file.path)
        )
    return pattern.name("/".join(file.parts if pattern.has_subset else strip(parts)))


def _plain_subsets(logs: Sequence[Log]) -> tuple[Log, ...]:
    """The logs of a run; a pattern has found their subsets under the names that the folders have."""
    siblings = {log.subset for log in logs if log.subset}
    return tuple(
        replace(log, subset=plain_subset(log.subset, siblings)) if log.subset else log for log in logs
    )


def _say_left_out(left_out: Sequence[_File], pattern: Pattern | None, anything: bool) -> None:
    if not left_out:
        return
    if not anything:
        raise UserError(
            f"pattern '{pattern.text}': it describes no log; the first is {left_out[0].path} "
            f"({'/'.join(left_out[0].parts)})"
        )
    logger.warning(
        "%d logs left out, not described by the pattern '%s'; the first: %s",
        len(left_out), pattern.text, left_out[0].path,
    )  # fmt: skip


def _as_given(folder: str, root: Path, absolute: str) -> Path:
    """The folder as the user would write it: relative if `root` is."""
    inside = folder == absolute or folder.startswith(absolute + "/")
    return root / os.path.relpath(folder, absolute) if inside else Path(folder)


def _prefer_events(found: Iterable[Found]) -> list[Found]:
    """Leave out exports and JSON logs of runs that have event files: in it, below it, or of the same name."""
    found = list(found)
    with_events = [run for run in found if any(log.kind == "events" for log in run.logs)]
    names = {(run.name.arm, run.name.init, run.name.seed) for run in with_events if run.name}
    around = {parent for run in with_events for parent in (run.folder, *run.folder.parents)}
    kept, dropped = [], 0
    for run in found:
        covered = run.folder in around or (run.name and (run.name.arm, run.name.init, run.name.seed) in names)
        logs = tuple(log for log in run.logs if log.kind == "events" or not covered)
        if run.name is not None:  # the trainer's log in a run folder is no export
            dropped += len(run.logs) - len(logs)
        if logs or run.name is None:
            kept.append(Found(run.folder, run.name, logs))
    if dropped:
        logger.info("%d exports or JSON logs beside event files are not read", dropped)
    return kept
