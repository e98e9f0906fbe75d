"""The state of a run before a command starts: new, resume, finished or elsewhere.

A run resumes if its method finds a checkpoint in its folder, and its manifest records the same data, initial
checkpoint and recipe flags. Only a finished run continues with other flags, those of a longer run.
"""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roberta_small.common import manifest
from roberta_small.common.cli import flags_of
from roberta_small.common.errors import UserError
from roberta_small.common.files import atomic_open
from roberta_small.common.run import LAST_CHECKPOINT, LOG, TENSORBOARD, THRESHOLDS, Run, State
from roberta_small.experiments.progress import Progress, read_log
from roberta_small.experiments.recipe.recipe import LIMITS, same
from roberta_small.experiments.sweep import Training

LENGTH = (*LIMITS, "--total-num-update", "--warmup-updates", "--validate-interval", "--save-interval")
"""Flags of which the length of a run, and its learning-rate schedule, follow."""


@dataclass(frozen=True)
class Planned:
    """A run with its state; `progress` is read from its log and contains the run's recipe."""

    run: Run
    state: State
    progress: Progress
    replaces: bool = False
    """Whether the folder contains a failed run of another experiment, which is removed at the start."""
    holder: str = ""
    """The process that trains the run elsewhere."""
    manifest: manifest.Manifest | None = None
    """What the folder contained when the state was read."""
    longer: bool = False
    """Whether it was finished with fewer epochs or updates, and resumes for the others."""

    @property
    def to_train(self) -> bool:
        """Whether the run has to be trained."""
        return self.state in (State.NEW, State.RESUME)

    @property
    def action(self) -> str:
        """What the command will do with the run, for the table printed before the start."""
        if self.state is State.FINISHED:
            return "finished (skipped)"
        if self.state is State.ELSEWHERE:
            return f"elsewhere ({self.holder})"
        if self.state is State.RESUME:
            saved, verb = self.progress.saved, "continue" if self.longer else "resume"
            return f"{verb} after epoch {saved[0]}, update {saved[1]}" if saved else verb
        replaced = " (replaces a run that failed before its first logged update)"
        return f"new{replaced if self.replaces else ''}"


def inspect(training: Training, resumable: Callable[[Path], bool], *, extends: bool = False) -> Planned:
    """The state of a run, read from its folder; `resumable` and `extends` are those of its method.

    Raises `UserError` if the folder contains unknown files or another experiment that has made an update.
    """
    run, recipe, identity = training.run, training.recipe, training.identity
    existing = manifest.read(run.folder)
    files = list(run.folder.iterdir()) if existing is None and run.folder.is_dir() else []
    if any(not path.name.startswith(".") for path in files):
        # Another launcher may have started the run meanwhile. It writes the manifest before other files.
        existing = manifest.read(run.folder)
        if existing is None:
            raise UserError(
                f"{run.folder}: contains files but no {manifest.NAME}, so it is not a run folder; "
                f"move or delete it, or choose another --out"
            )
    if existing is None:
        return Planned(run, State.NEW, Progress(recipe))
    progress = read_log(run.folder / LOG, recipe)
    if difference := _difference(run, existing, identity):
        failed = existing["status"] == "failed" and progress.update == 0 and progress.validations == 0
        early = failed and not any(run.folder.rglob("checkpoint*"))  # of any method
        if early and _other_name(existing, run) is None:
            return Planned(run, State.NEW, Progress(recipe), replaces=True, manifest=existing)
        if extends and _is_longer(run, existing, identity) and resumable(run.folder):
            return Planned(run, State.RESUME, progress, manifest=existing, longer=True)
        raise UserError(
            f"{run.folder / manifest.NAME}: the existing run was started with {difference}; choose another "
            f"--out, or delete the folder to restart the run"
        )
    if existing["status"] == "finished":
        return Planned(run, State.FINISHED, progress, manifest=existing)
    # "running" means that the process was killed, unless another one has locked the folder (`execute`).
    if resumable(run.folder):
        return Planned(run, State.RESUME, progress, manifest=existing)
    return Planned(run, State.NEW, Progress(recipe), manifest=existing)


def repair(folder: Path) -> None:
    """Replace a truncated checkpoint_last.pt by the newest intact checkpoint.

    fairseq writes one checkpoint atomically and copies it to the other names. If the process is killed
    meanwhile, a copy may be truncated; its source is then intact.
    """
    source, last = newest_intact(folder), folder / LAST_CHECKPOINT
    if source is not None and source != last:
        with open(source, "rb") as content, atomic_open(last, "wb") as stream:
            shutil.copyfileobj(content, stream)


def clear(run: Run) -> None:
    """Remove the files of an earlier start without an intact checkpoint, so that two logs do not mix."""
    shutil.rmtree(run.folder / TENSORBOARD, ignore_errors=True)
    for path in [run.folder / LOG, run.folder / THRESHOLDS, *run.folder.glob("checkpoint*.pt*")]:
        path.unlink(missing_ok=True)


def newest_intact(folder: Path) -> Path | None:
    """checkpoint_last.pt if it is intact, else the newest intact checkpoint."""
    last = folder / LAST_CHECKPOINT
    others = sorted(folder.glob("checkpoint*.pt"), key=lambda path: path.stat().st_mtime, reverse=True)
    # torch.save writes a zip file, whose directory is at its end: a truncated file has no directory.
    return next((path for path in [last, *others] if path.is_file() and zipfile.is_zipfile(path)), None)


def _difference(run: Run, existing: manifest.Manifest, identity: Mapping[str, Any]) -> str | None:
    """How the run in the folder differs from the planned one; None if it is the same."""
    if (other := _other_name(existing, run)) is not None:
        return other
    old, new = existing["data"], identity["data"]
    before, now = old.get("sha256") or {}, new["sha256"]
    changed = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    if changed:
        return f"other data ({', '.join(changed)} of {old.get('path')} differ from {new['path']})"
    for key, what, absent in (
        ("checkpoint", "initial checkpoint", "random weights"),
        ("teacher", "teacher", "none"),
    ):
        old, new = existing.get(key) or {}, identity.get(key) or {}
        if old.get("sha256") != new.get("sha256"):
            return f"another {what} ({old.get('path', absent)}, now {new.get('path', absent)})"
    flags, planned = flags_of(existing.get("recipe_flags") or []), flags_of(identity["recipe_flags"])
    words = {flag: (flags.get(flag, ()), planned.get(flag, ())) for flag in flags | planned}
    shown = [
        f"{' '.join(was or (flag, 'not set'))}, now {' '.join(wanted or ('not set',))}"
        for flag, (was, wanted) in words.items()
        if len(was) != len(wanted) or not all(map(same, was, wanted))  # as text or as numbers
    ]
    return f"another recipe ({'; '.join(shown)})" if shown else None


def _other_name(existing: manifest.Manifest, run: Run) -> str | None:
    for key, now in (("arm", run.arm), ("init", run.init), ("seed", run.seed)):
        if existing[key] != now:
            return f"another {key} ({existing[key]}, now {now})"
    return None


def _is_longer(run: Run, existing: manifest.Manifest, identity: Mapping[str, Any]) -> bool:
    """Whether the planned run is the finished one in the folder with more epochs or updates."""
    before, now = flags_of(existing.get("recipe_flags") or []), flags_of(identity["recipe_flags"])
    kept = {flag: group for flag, group in now.items() if flag not in LENGTH}
    kept |= {flag: group for flag, group in before.items() if flag in LENGTH}
    shortened = dict(identity) | {"recipe_flags": [word for group in kept.values() for word in group]}
    if existing["status"] != "finished" or _difference(run, existing, shortened) is not None:
        return False
    lengths = [(before.get(flag), now.get(flag)) for flag in LIMITS]
    given = [(float(old[1]), float(new[1])) for old, new in lengths if old is not None and new is not None]
    return all(old <= new for old, new in given) and any(old < new for old, new in given)
