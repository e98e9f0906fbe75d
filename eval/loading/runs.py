"""Finding checkpoints: a path is a file, a run folder, or a folder that contains runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from roberta_small.common import archive, run
from roberta_small.common.errors import UserError
from roberta_small.common.manifest import Manifest
from roberta_small.common.run import BEST_CHECKPOINT, find_checkpoint

GRAPH = ".onnx"
"""Suffix of ONNX files."""


@dataclass(frozen=True)
class RunCheckpoint:
    """A checkpoint and its run."""

    checkpoint: Path
    run: run.Run | None
    """None for a folder without manifest."""
    manifest: Manifest | None
    named_by_path: bool = False
    """Whether the folder is used as the name, because two output folders contain runs of the same name."""

    @classmethod
    def from_file(cls, checkpoint: Path) -> RunCheckpoint:
        """A checkpoint file, with the run in its folder."""
        found = run.Run.at(checkpoint.parent)
        return cls(checkpoint, found, found and found.read_manifest())

    @classmethod
    def from_folder(cls, folder: Path) -> RunCheckpoint:
        """The checkpoint of a run folder; if it has none, the path of its (missing) best checkpoint."""
        return cls.from_file(find_checkpoint(folder) or folder / BEST_CHECKPOINT)

    @property
    def folder(self) -> Path:
        """The run folder, which also contains the prediction files."""
        return self.checkpoint.parent

    @property
    def group(self) -> str:
        """`arm/init`, or the folder: runs of a group differ only in their seed. Empty without a manifest."""
        if self.run is None:
            return ""
        return str(self.folder.parent) if self.named_by_path else self.run.group

    @property
    def name(self) -> str:
        """`arm/init/seedN`, with the file name unless it is the best checkpoint; the path if no manifest."""
        if self.run is None:
            return str(self.checkpoint)
        file = "" if self.checkpoint.name == BEST_CHECKPOINT else f"/{self.checkpoint.name}"
        return f"{self.group}/seed{self.run.seed}{file}"


def find_run(path: str | os.PathLike[str]) -> RunCheckpoint:
    """The single checkpoint of a path; raises `UserError` if there are several or none."""
    found = find_runs([path])
    if len(found) > 1:
        raise UserError(f"{path}: contains {len(found)} runs; choose one, for example {found[0].folder}")
    return found[0]


def find_runs(paths: Iterable[str | os.PathLike[str]], file: str = BEST_CHECKPOINT) -> list[RunCheckpoint]:
    """The checkpoints of the paths.

    For a folder, these are the checkpoints of all finished runs in it; without runs, its own checkpoint
    (`common.run.find_checkpoint`). Unfinished runs are omitted, with a message on standard error. A folder
    counts as a run if it contains `file`: if that is a prediction file, the checkpoint need not exist.

    Raises `UserError` for a path without such a file and for a checkpoint given twice.
    """
    found = [one for path in paths for one in _find(archive.opened(path), file)]
    seen: set[Path] = set()
    for one in found:
        if (resolved := one.checkpoint.resolve()) in seen:
            raise UserError(f"{one.checkpoint}: specified twice; specify each checkpoint once")
        seen.add(resolved)
    if len({one.name for one in found}) < len(found):
        return [replace(one, named_by_path=True) for one in found]
    return found


def _find(path: Path, name: str) -> list[RunCheckpoint]:
    if not path.exists():
        raise UserError(f"{path}: no such checkpoint or folder of runs")
    if path.suffix == GRAPH:
        raise UserError(f"{path}: an ONNX file, which only eval predict reads; pass the folder of the run")
    if path.is_file():
        return [RunCheckpoint.from_file(path)]
    if (path / name).is_file():
        return [RunCheckpoint.from_folder(path)]
    below = sorted(path.rglob(name), key=_seed_order)
    if not below:
        if name == BEST_CHECKPOINT and (weights := find_checkpoint(path)) is not None:
            return [RunCheckpoint.from_file(weights)]
        what = "a checkpoint, a run" if name == BEST_CHECKPOINT else "a run"
        raise UserError(f"{path}: contains no {name}; specify {what} or a folder of runs")
    candidates = [RunCheckpoint.from_folder(file.parent) for file in below]
    finished = [one for one in candidates if one.manifest is None or one.manifest["status"] == "finished"]
    if unfinished := [one for one in candidates if one not in finished]:
        if not finished:
            raise UserError(f"{path}: contains no finished run; finish one, or specify a checkpoint file")
        print(f"omitted, not finished: {', '.join(one.name for one in unfinished)}", file=sys.stderr)
    return finished


def _seed_order(file: Path) -> tuple[str, int, str]:
    """Sort key: seed10 after seed9."""
    name = file.parent.name
    digits = name.removeprefix("seed")
    return str(file.parent.parent), int(digits) if digits.isdigit() else -1, name
