"""Which runs there are, what state each is in, and what will be done about it."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import manifest
from common.cli import flags_of
from common.errors import UserError
from common.files import atomic_open
from common.run import LAST_CHECKPOINT, LOG, TENSORBOARD, Run, State

from .progress import Progress, read_log
from .recipes import Recipe


@dataclass(frozen=True)
class Planned:
    """A run with its state; `progress` is what its log says so far, and knows the run's recipe."""

    run: Run
    state: State
    progress: Progress

    @property
    def to_train(self) -> bool:
        """Whether a training is to be started for it."""
        return self.state in (State.NEW, State.RESUME)

    @property
    def intention(self) -> str:
        """What will be done, for the table before the start."""
        if self.state is State.FINISHED:
            return "finished: skipped"
        if self.state is State.QUEUED:
            return "in the queue: not submitted again"
        if self.state is State.RESUME:
            saved = self.progress.saved
            return f"resume after epoch {saved[0]}, update {saved[1]}" if saved else "resume"
        return "new"


def inspect(run: Run, identity: dict[str, Any], recipe: Recipe) -> Planned:
    """The state of a run's folder.

    `identity` holds the manifest keys that say which experiment this is (data, checkpoint,
    recipe_flags). Raises `UserError` where the folder holds another experiment, or none that
    is known, because going on there would mix two.
    """
    existing = manifest.read(run.folder)
    if existing is None:
        _refuse_unknown_files(run.folder)
        return Planned(run, State.NEW, Progress(recipe))
    _refuse_another(run, existing, identity)
    progress = read_log(run.folder / LOG, recipe)
    if existing["status"] == "finished":
        return Planned(run, State.FINISHED, progress)
    # "running" here means killed without a chance to say so: the lock shows that nobody runs.
    if _newest_whole(run.folder) is not None:
        return Planned(run, State.RESUME, progress)
    return Planned(run, State.NEW, Progress(recipe))


def mend(run: Run) -> None:
    """Make checkpoint_last.pt whole again.

    fairseq writes one checkpoint atomically and copies it to the other names, so that a kill may cut
    a copy short; the file that it is copied from is then whole.
    """
    source, last = _newest_whole(run.folder), run.folder / LAST_CHECKPOINT
    if source is not None and source != last:
        with open(source, "rb") as content, atomic_open(last, "wb") as stream:
            shutil.copyfileobj(content, stream)


def clear(run: Run) -> None:
    """Remove what an attempt without a checkpoint left, so that its logs do not mix with the next."""
    shutil.rmtree(run.folder / TENSORBOARD, ignore_errors=True)
    for path in [run.folder / LOG, *run.folder.glob("checkpoint*.pt*")]:
        path.unlink(missing_ok=True)


def _newest_whole(folder: Path) -> Path | None:
    """checkpoint_last.pt if it is whole, else the newest whole checkpoint."""
    last = folder / LAST_CHECKPOINT
    others = sorted(folder.glob("checkpoint*.pt"), key=lambda path: path.stat().st_mtime, reverse=True)
    # torch.save writes a zip file, whose directory is at its end: one cut short has none.
    return next((path for path in [last, *others] if path.is_file() and zipfile.is_zipfile(path)), None)


def _refuse_unknown_files(folder: Path) -> None:
    if folder.is_dir() and any(not path.name.startswith(".") for path in folder.iterdir()):
        raise UserError(
            f"{folder}: holds files but no {manifest.NAME}, so it is not a run of ours; "
            f"move it away or choose another --out"
        )


def _refuse_another(run: Run, existing: manifest.Manifest, identity: dict[str, Any]) -> None:
    difference = (
        _name_difference(existing, run)
        or _data_difference(existing["data"], identity["data"])
        or _checkpoint_difference(existing.get("checkpoint"), identity["checkpoint"])
        or _flags_difference(existing.get("recipe_flags"), identity["recipe_flags"])
    )
    if difference:
        raise UserError(
            f"{run.folder / manifest.NAME}: the run there has {difference}; choose another --out, "
            f"or delete the folder to run it anew"
        )


def _name_difference(existing: manifest.Manifest, run: Run) -> str | None:
    for key, now in (("arm", run.arm), ("init", run.init), ("seed", run.seed)):
        if existing[key] != now:
            return f"another {key} ({existing[key]}, now {now})"
    return None


def _data_difference(old: dict[str, Any], new: dict[str, Any]) -> str | None:
    before, now = old.get("sha256") or {}, new["sha256"]
    changed = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    if not changed:
        return None
    return f"other data ({', '.join(changed)} of {old.get('path')} differ from {new['path']})"


def _checkpoint_difference(old: dict[str, Any] | None, new: dict[str, Any] | None) -> str | None:
    if (old or {}).get("sha256") == (new or {}).get("sha256"):
        return None
    return f"another initial checkpoint ({(old or {}).get('path')}, now {(new or {}).get('path')})"


def _flags_difference(old: Sequence[str] | None, new: Sequence[str]) -> str | None:
    before, now = flags_of(old or []), flags_of(new)
    if before == now:
        return None
    flags = [flag for flag in before | now if before.get(flag) != now.get(flag)]
    shown = [
        f"{' '.join(before.get(flag, (f'no {flag}',)))}, now {' '.join(now.get(flag, ('without it',)))}"
        for flag in flags
    ]
    return f"another recipe ({'; '.join(shown)})"


@dataclass(frozen=True)
class Job:
    """What the runner starts: `argv` really, `shown` in the manifest."""

    planned: Planned
    argv: tuple[str, ...]
    shown: tuple[str, ...]
