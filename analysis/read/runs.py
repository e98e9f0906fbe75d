"""Which runs lie below a folder, who they are and whether they are finished."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import common.run
from common import manifest
from common.errors import UserError, count, enumerate_some

from .discovery import Found, Log, discover
from .layout import Pattern

logger = logging.getLogger(__name__)

NO_MANIFEST = "no manifest"
EXAMPLE = "--pattern '{arm}/*/{init}/{seed}/{subset}'"


@dataclass(frozen=True, kw_only=True)
class Run(common.run.Run):
    """A run with its logs; `status` is "no manifest" where its folder has none (see `common.manifest`)."""

    status: str
    recipe: str | None = None
    seconds: float | None = None
    precision: str | None = None
    """Of the matrix products."""
    named_by: str = manifest.NAME
    """Where arm, init and seed come from: the manifest, a pattern or the path."""
    logs: tuple[Log, ...] = ()

    @property
    def finished(self) -> bool:
        """Only the manifest says so, never the mere existence of a folder."""
        return self.status == "finished"

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self.folder

    @property
    def place(self) -> Path:
        """A folder that exists: `path`, else that of the logs, where the names of files tell runs apart."""
        return self.path if self.path.is_dir() or not self.logs else self.logs[0].path.parent


def find_runs(root: str | os.PathLike[str], pattern: str | None = None) -> list[Run]:
    """Every run below `root` (or `root` itself), ordered by arm, init and seed.

    A run is named by its manifest, else by `pattern` (see `pattern.Pattern`), else by its path (see
    `layout`). Exports and JSON logs count only where there are no event files of the run.

    Raises `UserError` for a missing folder, a folder without logs, a malformed manifest or pattern, a
    pattern that describes no log, and two runs of the same name.
    """
    root = Path(root)
    if not root.is_dir():
        raise UserError(f"{root}: no such folder; give the folder that holds the runs")
    runs = [_run(found) for found in discover(root, None if pattern is None else Pattern(pattern))]
    if not runs:
        raise UserError(f"{root}: no logs below it (event files of TensorBoard, ...); train first")
    runs.sort(key=lambda run: (run.arm, run.init, run.seed))
    _refuse_duplicates(runs)
    bare = [run for run in runs if run.status == NO_MANIFEST]
    if bare and len(bare) < len(runs):
        logger.warning(
            "%s without %s (first: %s): named by their path, taken for unfinished",
            count(len(bare), "run"), manifest.NAME, bare[0].path,
        )  # fmt: skip
    return runs


def run_at(folder: Path) -> Run | None:
    """The run of this very folder, whatever lies below it; None where there is none with logs."""
    return next((_run(found) for found in discover(folder, None) if found.folder == folder), None)


def select_finished(runs: Iterable[Run], include_unfinished: bool = False) -> list[Run]:
    """The runs that tables and figures may use; what is left out or let in is said in one line.

    Logs of other trainers have no manifest at all: where no run has one, all are used.
    Raises `UserError` where no run is left.
    """
    runs = list(runs)
    unfinished = [run for run in runs if not run.finished]
    if not unfinished:
        return runs
    if all(run.status == NO_MANIFEST for run in runs):
        logger.warning("no run has a %s: all are used, finished or not", manifest.NAME)
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
    """One line: how many runs of each arm and init, and what named those without manifest."""
    groups = Counter(f"{run.arm}/{run.init}" for run in runs)
    line = f"{count(len(runs), 'run')}: " + ", ".join(f"{number} {name}" for name, number in groups.items())
    named_by = sorted({run.named_by for run in runs} - {manifest.NAME})
    return line + (f" (arm/init named by the {' or the '.join(named_by)})" if named_by else "")


def inferred(runs: Sequence[Run], limit: int = 20) -> list[str]:
    """A line for each run without manifest: what its path was taken for."""
    guessed = [run for run in runs if run.status == NO_MANIFEST]
    lines = [
        f"  {run.place} -> arm {run.arm}, init {run.init}, seed {run.seed}, "
        f"subsets {' '.join(sorted({log.subset or 'in tags' for log in run.logs}))}"
        for run in guessed[:limit]
    ]
    if len(guessed) > limit:
        lines.append(f"  and {len(guessed) - limit} more: python -m analysis runs")
    return lines


def mixed_precision(runs: Iterable[Run]) -> list[str]:
    """A line for each arm and init whose seeds differ in more than the seed."""
    groups: dict[str, dict[str, list[str]]] = {}
    for run in runs:
        if run.precision is not None:
            of_group = groups.setdefault(f"{run.arm}/{run.init}", {})
            of_group.setdefault(str(run.precision), []).append(str(run.seed))
    lines = []
    for name, seeds in groups.items():
        if len(seeds) > 1:
            parts = (
                f"seeds {enumerate_some(seeds[precision])} in {precision}" for precision in sorted(seeds)
            )
            lines.append(f"  {name}: {', '.join(parts)}; seeds are compared best with one --precision")
    return lines


def _run(found: Found) -> Run:
    if found.name is not None:
        name = found.name
        return Run(
            found.folder,
            name.arm,
            name.init,
            name.seed,
            status=NO_MANIFEST,
            named_by=name.named_by,
            logs=found.logs,
        )
    content = manifest.read(found.folder)
    return Run(
        folder=found.folder,
        arm=content["arm"],
        init=content["init"],
        seed=content["seed"],
        status=content["status"],
        recipe=content["recipe"],
        seconds=content.get("seconds"),
        precision=content.get("precision"),
        logs=found.logs,
    )


def _refuse_duplicates(runs: Sequence[Run]) -> None:
    seen: dict[str, Run] = {}
    for run in runs:
        if run.name in seen:
            one = seen[run.name]
            by_manifest = one.named_by == run.named_by == manifest.NAME
            remedy = "" if by_manifest else f", or tell them apart (for example {EXAMPLE})"
            raise UserError(
                f"{one.path} and {run.path} both say that they are {run.name}; move one out{remedy}"
            )
        seen[run.name] = run
