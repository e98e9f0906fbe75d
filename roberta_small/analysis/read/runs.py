"""Find the runs below a folder, with their names and states."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from roberta_small.analysis.read.discovery import Found, Log, discover, readable
from roberta_small.analysis.read.layout import Pattern, propose
from roberta_small.common import archive, manifest
from roberta_small.common import run as identity
from roberta_small.common.cli import flags_of
from roberta_small.common.errors import UserError, count, enumerate_some
from roberta_small.common.files import escaped
from roberta_small.common.label_kinds import KIND, SINGLE_LABEL, kind_of

logger = logging.getLogger(__name__)

NO_MANIFEST = "no manifest"
SUITE_DEPTH = 4
"""Number of folders of a run below that of a suite: data set, arm, init and seed."""
MOST_INFERRED = 20


@dataclass(frozen=True, kw_only=True)
class LoggedRun(identity.Run):
    """A run with its logs; `status` is that of the manifest, or "no manifest"."""

    status: str
    recipe: str | None = None
    seconds: float | None = None
    precision: str | None = None
    """Precision of the matrix products."""
    selected_by: str | None = None
    """Metric that selected checkpoint_best.pt, if the manifest records the flags of the recipe."""
    label_kind: str = SINGLE_LABEL
    """The kind of labels (`common.label_kinds`)."""
    label_files: Mapping[str, str] = field(default_factory=dict)
    """Path in the data folder -> SHA-256, as far as the manifest records them."""
    continued: bool = False
    """Whether it was finished once and then got more epochs, so that its learning rate has risen again."""
    named_by: str = manifest.NAME
    """Source of arm, init and seed: the manifest, a pattern or the path."""
    logs: tuple[Log, ...] = ()

    @property
    def finished(self) -> bool:
        """Whether the manifest records that the run is finished."""
        return self.status == "finished"

    @property
    def place(self) -> Path:
        """An existing folder: `folder`, or that of the logs if runs differ only in the names of files."""
        return self.folder if self.folder.is_dir() or not self.logs else self.logs[0].path.parent


def find_runs(root: str | os.PathLike[str], pattern: str | None = None) -> list[LoggedRun]:
    """Every run below `root` (or `root` itself), ordered by arm, init and seed; `root` may be an archive.

    A run is named by its manifest, or by `pattern` (see `layout.Pattern`), or by its path (see `layout`).
    Exports and JSON logs are used only for runs without event files.

    Raises `UserError` for a missing folder, a folder without logs, a folder or file that cannot be read, a
    malformed manifest or pattern, a pattern that matches no log, and two runs with the same name.
    """
    with readable():
        root = archive.opened(root)
        is_folder = root.is_dir()
    if not is_folder:
        raise UserError(
            f"{root}: no such folder; specify the folder of the runs, or their archive ({archive.SUFFIX})"
        )
    runs = [_run(found) for found in discover(root, None if pattern is None else Pattern(pattern))]
    if not runs:
        raise UserError(f"{root}: no logs in this folder (TensorBoard event files, ...); train first")
    runs.sort(key=lambda run: (run.arm, run.init, run.seed))
    seen: dict[str, LoggedRun] = {}
    for run in runs:
        if (other := seen.setdefault(run.name, run)) is run:
            continue
        folders = [one.folder for one in runs if one.named_by != manifest.NAME]
        fixed = [(one.arm, one.init, one.seed) for one in runs if one.named_by == manifest.NAME]
        exported = any(log.kind == "csv" for log in (*other.logs, *run.logs))  # named by the file alone
        by_manifest = other.named_by == run.named_by == manifest.NAME
        remedy = "" if exported or by_manifest else propose(folders, fixed)
        if len(names := _data_sets([other, run], root)) > 1:
            remedy = f", specify {' or '.join(str(root / name) for name in names)}, or see `tables`"
        raise UserError(f"{other.folder} and {run.folder} are both named {run.name}; move one away{remedy}")
    if len(names := _data_sets(runs, root)) > 1:
        logger.warning(
            "%s: the runs of several data sets are read as if they were of one (%s); see `tables`",
            archive.shown(root), enumerate_some(names),
        )  # fmt: skip
    without = [run for run in runs if run.status == NO_MANIFEST]
    if without and len(without) < len(runs):
        logger.warning(
            "%s without %s (first: %s): named by their path, assumed to be unfinished",
            count(len(without), "run"), manifest.NAME, without[0].folder,
        )  # fmt: skip
    for file in ("label/valid.bin", "label/test.bin", "label/valid.label", "label/test.label"):
        # With another dictionary, the same labels may have other ids.
        known = {
            (run.label_files.get("label/dict.txt"), run.label_files[file]): run.name
            for run in runs
            if file in run.label_files
        }
        if len({dictionary for dictionary, _ in known}) < len(known):
            logger.warning(
                "%s: the data of these runs differ in %s; their results are not comparable",
                enumerate_some(known.values()), file,
            )  # fmt: skip
    if continued := [run.name for run in runs if run.continued]:
        logger.warning(
            "%s got more epochs after the end, where the learning rate rises again: %s",
            count(len(continued), "run"), enumerate_some(continued),
        )  # fmt: skip
    return runs


def select_finished(runs: Iterable[LoggedRun], include_unfinished: bool = False) -> list[LoggedRun]:
    """The finished runs, or all with `include_unfinished`; warns about unfinished ones.

    If no run has a manifest (logs of other trainers), all are used. Raises `UserError` if no run is left.
    """
    runs = list(runs)
    unfinished = [run for run in runs if not run.finished]
    if not unfinished:
        return runs
    if all(run.status == NO_MANIFEST for run in runs):
        logger.warning("no run has a %s: using all, finished or not", manifest.NAME)
        return runs
    names = enumerate_some(f"{run.name} ({run.status})" for run in unfinished)
    if include_unfinished:
        logger.warning("%s included: %s", count(len(unfinished), "unfinished run"), names)
        return runs
    if len(unfinished) == len(runs):
        raise UserError(f"no run is finished: {names}; finish them or give --include-unfinished")
    logger.warning(
        "%s excluded (see --include-unfinished): %s", count(len(unfinished), "unfinished run"), names
    )
    return [run for run in runs if run.finished]


def describe(runs: Sequence[LoggedRun]) -> list[str]:
    """The number of runs of each arm and init, and the source of their names if it is not the manifest.

    Then a line for each run without manifest, with arm, init, seed and subsets inferred from its path, and
    for each arm and init whose seeds were trained with different precisions.
    """
    groups = Counter(run.group for run in runs)
    text = f"{count(len(runs), 'run')}: " + ", ".join(f"{number} {name}" for name, number in groups.items())
    named_by = sorted({run.named_by for run in runs} - {manifest.NAME})
    lines = [text + (f" (arm/init named by the {' or the '.join(named_by)})" if named_by else "")]
    inferred = [run for run in runs if run.status == NO_MANIFEST]
    for run in inferred[:MOST_INFERRED]:
        subsets = " ".join(sorted({log.subset or "in tags" for log in run.logs}))
        lines.append(f"  {run.place} -> arm {run.arm}, init {run.init}, seed {run.seed}, subsets {subsets}")
    if len(inferred) > MOST_INFERRED:
        lines.append(f"  and {len(inferred) - MOST_INFERRED} more: roberta-small runs")
    precisions: dict[str, dict[str, list[str]]] = {}
    for run in runs:
        if run.precision is not None:
            seeds = precisions.setdefault(run.group, {})
            seeds.setdefault(str(run.precision), []).append(str(run.seed))
    for name, seeds in precisions.items():
        if len(seeds) > 1:
            parts = (f"seeds {enumerate_some(seeds[one])} in {one}" for one in sorted(seeds))
            lines.append(f"  {name}: {', '.join(parts)}; train all seeds with the same --precision")
    return lines


def _run(found: Found) -> LoggedRun:
    if found.name is not None:
        arm, init, seed = escaped(found.name.arm), escaped(found.name.init), found.name.seed
        return LoggedRun(
            found.folder, arm, init, seed, status=NO_MANIFEST, named_by=found.name.named_by, logs=found.logs
        )
    with readable():
        content = manifest.read(found.folder)
    if content is None:
        raise UserError(
            f"{found.folder / manifest.NAME}: cannot be read (a link without a target?); restore it"
        )
    checksums = content["data"].get("sha256") or {}
    return LoggedRun(
        folder=found.folder,
        arm=content["arm"],
        init=content["init"],
        seed=content["seed"],
        status=content["status"],
        recipe=content["recipe"],
        seconds=content.get("seconds"),
        precision=content.get("precision"),
        selected_by=flags_of(content.get("recipe_flags") or []).get("--best-checkpoint-metric", (None,))[-1],
        label_kind=kind_of(content.get(KIND, SINGLE_LABEL), found.folder / manifest.NAME).name,
        label_files={file: one for file, one in checksums.items() if file.startswith("label/")},
        continued=bool(content.get("continued")),
        logs=found.logs,
    )


def _data_sets(runs: Sequence[LoggedRun], root: Path) -> list[str]:
    """The data sets of the runs if `root` is the folder of a suite (`common.run`), else nothing."""
    paths = [run.folder.relative_to(root).parts for run in runs if run.named_by == manifest.NAME]
    return sorted({parts[0] for parts in paths if len(parts) == SUITE_DEPTH})
