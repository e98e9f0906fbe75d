"""Which runs lie below a folder, who they are and whether they are finished."""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from common import manifest
from common.errors import UserError

logger = logging.getLogger(__name__)

EVENT_FILES = "tensorboard/*/events.out.tfevents.*"


@dataclass(frozen=True)
class Run:
    """One run folder (see `common.manifest`); `status` is "no manifest" where there is none."""

    path: Path
    arm: str
    init: str
    seed: int
    status: str
    recipe: str | None = None
    seconds: float | None = None

    @property
    def finished(self) -> bool:
        """Only the manifest says so, never the mere existence of a folder."""
        return self.status == "finished"

    @property
    def name(self) -> str:
        """`arm/init/seedN`, as the folders are called."""
        return f"{self.arm}/{self.init}/seed{self.seed}"

    def event_files(self) -> list[Path]:
        """Its event files, oldest first within a subset: their names start with the time of creation."""
        return sorted(self.path.glob(EVENT_FILES))


def find_runs(root: str | os.PathLike[str]) -> list[Run]:
    """Every run below `root` (or `root` itself), ordered by arm, init and seed.

    Raises `UserError` for a missing folder, a folder without event files, a malformed manifest, a run
    that neither a manifest nor its path `<arm>/<init>/seed<N>` names, and two runs of the same name.
    """
    root = Path(root)
    if not root.is_dir():
        raise UserError(f"{root}: no such folder; give the folder that holds the runs")
    event_files = list(root.rglob(EVENT_FILES))
    if not event_files:
        raise UserError(f"{root}: no event files below it (<arm>/<init>/seed<N>/{EVENT_FILES}); train first")
    # A run that failed before its first log has a manifest and no events: it belongs in the listing.
    folders = {path.parents[2] for path in event_files}
    folders |= {path.parent for path in root.rglob(manifest.NAME)}
    runs = [_read_run(folder) for folder in sorted(folders)]
    runs.sort(key=lambda run: (run.arm, run.init, run.seed))
    _refuse_duplicates(runs)
    if bare := [run for run in runs if run.status == "no manifest"]:
        logger.warning(
            "%s without %s (first: %s): named by their path, taken for unfinished",
            count(len(bare), "run"), manifest.NAME, bare[0].path,
        )  # fmt: skip
    return runs


def select_finished(runs: Iterable[Run], include_unfinished: bool = False) -> list[Run]:
    """The runs that tables and figures may use; what is left out or let in is said in one line.

    Raises `UserError` where no run is left.
    """
    runs = list(runs)
    unfinished = [run for run in runs if not run.finished]
    if not unfinished:
        return runs
    names = enumerate_some(f"{run.name} ({run.status})" for run in unfinished)
    if include_unfinished:
        logger.warning("%s included: %s", count(len(unfinished), "unfinished run"), names)
        return runs
    if len(unfinished) == len(runs):
        raise UserError(f"no run is finished: {names}; finish them or add --include-unfinished")
    logger.warning(
        "%s left out (--include-unfinished keeps them): %s", count(len(unfinished), "unfinished run"), names
    )
    return [run for run in runs if run.finished]


def describe(runs: Sequence[Run]) -> str:
    """One line: how many runs of each arm and init."""
    groups = Counter(f"{run.arm}/{run.init}" for run in runs)
    return f"{count(len(runs), 'run')}: " + ", ".join(f"{number} {name}" for name, number in groups.items())


def count(number: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def enumerate_some(names: Iterable[str], limit: int = 3) -> str:
    """The first few names, and how many more there are."""
    names = list(names)
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def _read_run(folder: Path) -> Run:
    if (content := manifest.read(folder)) is None:
        return _run_from_path(folder)
    return Run(
        path=folder,
        arm=content["arm"],
        init=content["init"],
        seed=content["seed"],
        status=content["status"],
        recipe=content["recipe"],
        seconds=content.get("seconds"),
    )


def _run_from_path(folder: Path) -> Run:
    path = folder.resolve()
    seed = re.fullmatch(r"seed(\d+)", path.name)
    if seed is None:
        raise UserError(
            f"{folder}: neither {manifest.NAME} nor a path <arm>/<init>/seed<N>; rename the folder"
        )
    return Run(folder, path.parent.parent.name, path.parent.name, int(seed[1]), "no manifest")


def _refuse_duplicates(runs: Sequence[Run]) -> None:
    seen: dict[str, Path] = {}
    for run in runs:
        if run.name in seen:
            raise UserError(
                f"{seen[run.name]} and {run.path} both say that they are {run.name}; move one out"
            )
        seen[run.name] = run.path
