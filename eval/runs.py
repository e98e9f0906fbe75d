"""Which checkpoints the user means: a file, a run folder, or a folder with runs below it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from common import manifest
from common.errors import UserError
from common.run import BEST_CHECKPOINT as BEST
from common.run import find_checkpoint


@dataclass(frozen=True)
class Run:
    """A checkpoint and what its run's manifest says, where there is one."""

    checkpoint: Path
    manifest: manifest.Manifest | None
    named_by_path: bool = False
    """Two sweeps may have runs of one name: then all are called after their folders."""

    @property
    def folder(self) -> Path:
        """The run folder: where its prediction files go."""
        return self.checkpoint.parent

    @property
    def group(self) -> str:
        """`arm/init`, or its path: within it runs differ by their seed alone. Empty without manifest."""
        if self.manifest is None:
            return ""
        if self.named_by_path:
            return str(self.folder.parent)
        return f"{self.manifest['arm']}/{self.manifest['init']}"

    @property
    def name(self) -> str:
        """`arm/init/seedN`, or the checkpoint's path; another file than the best is named too."""
        if self.manifest is None:
            return str(self.checkpoint)
        file = "" if self.checkpoint.name == BEST else f"/{self.checkpoint.name}"
        return f"{self.group}/seed{self.manifest['seed']}{file}"


def find_run(path: str | os.PathLike[str]) -> Run:
    """The checkpoint of one file or run folder; raises `UserError` where the folder holds several or none."""
    found = find_runs([path])
    if len(found) > 1:
        raise UserError(f"{path}: {len(found)} runs below it; name one of them, such as {found[0].folder}")
    return found[0]


def find_runs(paths: Iterable[str | os.PathLike[str]], file: str = BEST) -> list[Run]:
    """The checkpoints behind the paths: of a folder, the best of each finished run in or below it, or the
    model file of a folder that has no run (`common.run.find_checkpoint`).

    `file` is what a run must have to count: a prediction file, where the checkpoint is not asked for. Runs
    that are not finished are left out, which is said on standard error. Raises `UserError` for a path without
    such a file and for one that is named twice.
    """
    runs = [run for path in paths for run in _find(Path(path), file)]
    seen: set[Path] = set()
    for run in runs:
        if (resolved := run.checkpoint.resolve()) in seen:
            raise UserError(f"{run.checkpoint}: named twice; name each checkpoint once")
        seen.add(resolved)
    if len({run.name for run in runs}) < len(runs):
        return [replace(run, named_by_path=True) for run in runs]
    return runs


def _find(path: Path, name: str) -> list[Run]:
    if not path.exists():
        raise UserError(f"{path}: no such checkpoint or folder of runs")
    if path.is_file():
        return [Run(path, manifest.read(path.parent))]
    if (path / name).is_file():
        return [Run(_checkpoint(path), manifest.read(path))]
    candidates = [
        Run(_checkpoint(file.parent), manifest.read(file.parent))
        for file in sorted(path.rglob(name), key=_by_seed)
    ]
    if not candidates:
        weights = find_checkpoint(path)
        if name == BEST and weights is not None:
            return [Run(weights, manifest.read(path))]
        what = "a checkpoint, a run" if name == BEST else "a run"
        raise UserError(f"{path}: no {name} in or below it; name {what} or a folder of runs")
    finished = [run for run in candidates if run.manifest is None or run.manifest["status"] == "finished"]
    if left := [run for run in candidates if run not in finished]:
        if not finished:
            raise UserError(f"{path}: no run below it is finished; finish them, or name a checkpoint itself")
        print(f"left out, not finished: {', '.join(run.name for run in left)}", file=sys.stderr)
    return finished


def _checkpoint(folder: Path) -> Path:
    """The checkpoint of a run folder; where only prediction files are left, the one that they came from."""
    return find_checkpoint(folder) or folder / BEST


def _by_seed(file: Path) -> tuple[str, int, str]:
    """seed10 after seed9."""
    name = file.parent.name
    digits = name.removeprefix("seed")
    return str(file.parent.parent), int(digits) if digits.isdigit() else -1, name
