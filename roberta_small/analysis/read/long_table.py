"""The long table: one row for each logged number.

    arm, init   str     the method (with its setting) and the initialization
    seed        int
    subset      str     train, train_inner, valid, test or another name of the trainer; "unnamed" if neither
                        the path nor the tag contains it
    epoch       int     1 + the number of epochs of the run that ended before the step (see `number_epochs`)
    step        int     updates
    metric      str     the tag in the log: loss, accuracy, macro_f1, ...
    value       float   as logged, accuracy in percent; may be NaN

Ordered by arm, init, seed, subset, metric and step, with one row for each combination of these.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from roberta_small.analysis.read.discovery import readable
from roberta_small.analysis.read.events import read_event_files
from roberta_small.analysis.read.layout import NO_SUBSET, split_tag
from roberta_small.analysis.read.runs import NO_MANIFEST, LoggedRun, find_runs, select_finished
from roberta_small.analysis.read.scalars import START, LogCheck, Scalars, Tags, concatenate, report
from roberta_small.analysis.read.sessions import Logged, kept, messages
from roberta_small.analysis.read.text_logs import read_csv_files, read_json_files
from roberta_small.common.errors import UserError, count, enumerate_some
from roberta_small.common.metrics import ACCURACIES, lower_is_better, measures_quality

logger = logging.getLogger(__name__)

RUN = ["arm", "init", "seed"]
GROUP = ["arm", "init"]
COLUMNS = [*RUN, "subset", "epoch", "step", "metric", "value"]
ORDER = [*RUN, "subset", "metric", "step"]
SELECTING, REPORTED = "valid", "test"
"""The usual names of the subset that selects the best checkpoint, and of the one that is reported."""
TRAINING = ("train", "train_inner")
"""The usual names of what is logged during training."""
EPOCH = "epoch"
"""Transformers logs train/epoch with each evaluation."""
NOT_EVALUATED = frozenset({*TRAINING, NO_SUBSET})
Scale = Literal["auto", "percent", "fraction"]
"""How accuracies were logged."""
READERS = {"events": read_event_files, "csv": read_csv_files, "json": read_json_files}
"""Kind of a log -> its reader."""


def usual_or_only(usual: str, subsets: Iterable[str]) -> str:
    """`usual`, unless it is missing and a single other subset was evaluated, which is then returned."""
    evaluated = set(subsets) - NOT_EVALUATED
    return evaluated.pop() if usual not in evaluated and len(evaluated) == 1 else usual


def validated(subsets: Iterable[str]) -> str:
    """The subset whose steps end epochs: valid, or the only evaluated one; without any, the unnamed one."""
    return NO_SUBSET if set(subsets) - set(TRAINING) == {NO_SUBSET} else usual_or_only(SELECTING, subsets)


def values_of(table: pd.DataFrame, subset: str, metric: str) -> pd.DataFrame:
    """The rows of one metric on one subset, with the columns and order of the table.

    Raises `UserError`, listing the subsets or the metrics of quality that exist, if there are none.
    """
    on_subset = table[table["subset"] == subset]
    if on_subset.empty:
        known = sorted(table["subset"].unique())
        remedy = "select (--choose-on) or report (--split) another one, or name the folders with --pattern"
        if validated(known) == NO_SUBSET:
            remedy = f"--choose-on {NO_SUBSET} --split {NO_SUBSET} reads what was logged without one"
        raise UserError(f"no subset '{subset}' in the logs, only {', '.join(known)}; {remedy}")
    rows = on_subset[on_subset["metric"] == metric]
    if rows.empty:
        metrics = sorted(on_subset["metric"].unique())
        suggested = ", ".join(filter(measures_quality, metrics)) or ", ".join(metrics)
        raise UserError(f"no '{metric}' on the subset '{subset}'; available for --metric: {suggested}")
    return rows


def load_runs(
    root: str | os.PathLike[str],
    *,
    include_unfinished: bool = False,
    pattern: str | None = None,
    accuracies: Scale = "auto",
) -> pd.DataFrame:
    """The long table of the finished runs below `root`; see `read_runs` and `find_runs`."""
    return read_runs(select_finished(find_runs(root, pattern), include_unfinished), accuracies)


def read_runs(runs: Iterable[LoggedRun], accuracies: Scale = "auto") -> pd.DataFrame:
    """The long table of these runs.

    Of values that were logged more than once, those of the training are kept (see `sessions`), with a warning
    if they differ. Corrupt records are skipped with a warning, see `scalars.report`. Accuracies that runs
    without manifest logged as fractions are converted to percent: `accuracies` says how they were logged,
    "auto" is decided once for all runs (`_in_percent`).

    Raises `UserError` if a finished run or all runs have no scalars, and for a file that cannot be read or
    has no valid records.
    """
    runs = sorted(runs, key=lambda run: (run.arm, run.init, run.seed))
    tags, parts = Tags(), []
    logs = [(run, log) for run in runs for log in run.logs]
    checks = [LogCheck(log.path, may_grow=not run.finished) for run, log in logs]
    for kind, read in READERS.items():
        numbers = [number for number, (_, log) in enumerate(logs) if log.kind == kind]
        paths = [logs[number][1].path for number in numbers]
        with readable():
            for part in read(paths, tags, [checks[number] for number in numbers]):
                parts.append(part._replace(file=np.array(numbers, np.int32)[part.file]))
    report(checks)
    rows = _rows(runs, concatenate(parts), tags)
    if not len(rows.run):
        raise UserError("no scalars in the logs of any run; train with --tensorboard-logdir")
    for run, scalars in zip(runs, np.bincount(rows.run, minlength=len(runs)), strict=True):
        if run.finished and not scalars:
            raise UserError(
                f"{run.folder}: a finished run without scalars; delete the folder and run it again"
            )
    return _frame(runs, _in_percent(runs, rows, accuracies))


class Rows(NamedTuple):
    """The long table with integer codes: N rows, one for each run, subset, metric and step."""

    run: np.ndarray
    """(N,) int64: position in the list of runs; `subset` and `metric` are positions in the lists below."""
    subset: np.ndarray
    metric: np.ndarray
    step: np.ndarray
    value: np.ndarray
    subsets: list[str]
    metrics: list[str]


def _rows(runs: Sequence[LoggedRun], scalars: Scalars, tags: Tags) -> Rows:
    """The rows, one for each run, subset, metric and step; warns about the others.

    The subset is that of the file, or else of the tag.
    """
    logs = [(number, log) for number, run in enumerate(runs) for log in run.logs]
    tag_names = [split_tag(tag) if subset is None else (subset, tag) for subset, tag in tags]
    subsets = sorted({log.subset for _, log in logs if log.subset} | {subset for subset, _ in tag_names})
    metrics = sorted({tag for _, tag in tags} | {metric for _, metric in tag_names})
    subset_of = {subset: position for position, subset in enumerate(subsets)}
    metric_of = {metric: position for position, metric in enumerate(metrics)}
    run_F = np.array([run for run, _ in logs], np.int64)
    subset_F = np.array([subset_of[log.subset] if log.subset else -1 for _, log in logs], np.int64)
    subset_T = np.array([subset_of[subset] for subset, _ in tag_names], np.int64)
    short_T = np.array([metric_of[metric] for _, metric in tag_names], np.int64)
    whole_T = np.array([metric_of[tag] for _, tag in tags], np.int64)

    file_N, wall_time_N, step_N, tag_N, value_N = scalars
    subset_N = subset_F[file_N]
    in_tag_N = subset_N < 0
    metric_N = np.where(in_tag_N, short_T[tag_N], whole_T[tag_N])
    subset_N = np.where(in_tag_N, subset_T[tag_N], subset_N)
    run_N = run_F[file_N]
    group_N = (run_N * len(subsets) + subset_N) * len(metrics) + metric_N

    training_S = np.array([subset in TRAINING for subset in subsets], bool)
    logged = Logged(
        group=group_N,
        run=run_N,
        file=file_N,
        wall_time=wall_time_N,
        step=step_N,
        value=value_N,
        training=training_S[subset_N] & ~np.isin(metrics, EPOCH)[metric_N],
        quality=np.array([measures_quality(metric) for metric in metrics], bool)[metric_N],
        starts=tag_N == tags.get((None, START), -1),
        paths=[log.path for _, log in logs],
    )
    keep_N, repeated = kept(logged)

    def name(group: int) -> str:
        return f"{subsets[group // len(metrics) % len(subsets)]} {metrics[group % len(metrics)]}"

    for message in messages(repeated, [run.name for run in runs], name):
        logger.warning("%s", message)
    rows = np.flatnonzero(keep_N)
    order = rows[np.lexsort((step_N[rows], group_N[rows]))]
    return Rows(
        run_N[order], subset_N[order], metric_N[order], step_N[order], value_N[order], subsets, metrics
    )


def _in_percent(runs: Sequence[LoggedRun], rows: Rows, accuracies: Scale) -> Rows:
    """Convert accuracies that were logged as fractions to percent: Transformers logs 0.59, fairseq 59.

    Runs with a manifest log percent. The others are decided together, but those whose logs name the subset in
    the tag (Transformers: eval/accuracy) apart from those whose logs are in a folder of the subset (fairseq):
    they logged fractions if none of their accuracies is above 1.
    """
    accuracies_N = np.isin(rows.metrics, list(ACCURACIES))[rows.metric]
    highest_R = np.zeros(len(runs))
    np.fmax.at(highest_R, rows.run[accuracies_N], rows.value[accuracies_N])
    no_manifest_R = np.array([run.status == NO_MANIFEST for run in runs])
    in_tag_R = np.array([any(log.subset is None for log in run.logs) for run in runs])
    fractions_R = np.zeros(len(runs), bool)
    for together_R in (no_manifest_R & in_tag_R, no_manifest_R & ~in_tag_R):
        highest = highest_R[together_R].max(initial=0.0)
        if accuracies == "fraction" or (accuracies == "auto" and 0 < highest <= 1):
            fractions_R |= together_R
    fractions_R &= highest_R > 0
    if not fractions_R.any():
        return rows
    logger.info(
        "%s logged accuracy as a fraction (0 to 1), converted to percent (--accuracies): %s",
        count(int(fractions_R.sum()), "run"),
        enumerate_some(runs[run].name for run in np.flatnonzero(fractions_R).tolist()),
    )  # fmt: skip
    return rows._replace(value=np.where(accuracies_N & fractions_R[rows.run], 100 * rows.value, rows.value))


def _frame(runs: Sequence[LoggedRun], rows: Rows) -> pd.DataFrame:
    """The long table as a data frame."""
    valid = validated([rows.subsets[position] for position in np.unique(rows.subset)])
    valid_N, train_N, updates_N = (
        np.isin(rows.subsets, names)[rows.subset] for names in (valid, "train", TRAINING)
    )
    updates_N = updates_N & ~np.isin(rows.metrics, EPOCH)[rows.metric]
    if valid == NO_SUBSET:  # the loss of each update ends no epoch
        scores_M = np.array([measures_quality(name) and not lower_is_better(name) for name in rows.metrics])
        valid_N = valid_N & (scores_M[rows.metric] | ~scores_M[rows.metric[valid_N]].any())
    columns = {
        "arm": _texts([run.arm for run in runs], rows.run),
        "init": _texts([run.init for run in runs], rows.run),
        "seed": np.array([run.seed for run in runs], np.int64)[rows.run],
        "subset": _texts(rows.subsets, rows.subset),
        "epoch": number_epochs(runs, rows, valid_N, train_N, updates_N),
        "step": rows.step,
        "metric": _texts(rows.metrics, rows.metric),
        "value": rows.value,
    }
    return pd.DataFrame(columns, columns=COLUMNS, copy=False)


def _texts(names: Sequence[str], position_N: np.ndarray) -> pd.api.extensions.ExtensionArray:
    """A column of names by position, which shares the strings."""
    return pd.array(names, dtype="str").take(position_N)


def number_epochs(
    runs: Sequence[LoggedRun], logged: Rows, valid_N: np.ndarray, train_N: np.ndarray, updates_N: np.ndarray
) -> np.ndarray:
    """(N,) int64: 1 + the number of epochs of the run that ended before each step.

    Event files contain steps but no epochs. A run validates after each epoch: its n-th validation ends epoch
    n. The runs of an arm and init differ only in their seed and validate at the same steps. If a log lacks a
    validation that others of its group have, its epochs are taken from the others, with a warning.

    With `--validate-interval`, some epochs end without a validation. The trainers of this project log the
    subset `train` once at the end of every epoch, so their epochs are counted in it. Other trainers also log
    `train` within epochs.

    `logged` has sorted runs; `valid_N`, `train_N`, `updates_N` bool: validations, subset `train`, training.
    """
    run_N, step_N = logged.run, logged.step
    epoch_N = np.ones(len(step_N), np.int64)
    starts_R, stops_R = (np.searchsorted(run_N, np.arange(len(runs)), side) for side in ("left", "right"))
    rows_R = [slice(start, stop) for start, stop in zip(starts_R, stops_R, strict=True)]
    own_R = []
    for run, rows in zip(runs, rows_R, strict=True):
        validations = np.unique(step_N[rows][valid_N[rows]])
        train = np.unique(step_N[rows][train_N[rows]])
        # A run that validates within epochs has validations that are not in `train`.
        in_train = len(validations) and np.isin(validations, train).all()
        own_R.append(train if in_train and run.status != NO_MANIFEST else validations)
    gaps: list[str] = []
    unrelated: list[str] = []
    groups: dict[tuple[str, str], list[int]] = {}
    for position, run in enumerate(runs):
        groups.setdefault((run.arm, run.init), []).append(position)
    for (arm, init), group in groups.items():
        grids = [own_R[run] for run in group if len(own_R[run])]
        shared = shared_grid(grids)
        if shared is None and len({steps.tobytes() for steps in grids}) > 1:
            unrelated.append(f"{arm}/{init}")
        for position in group:
            own, rows = own_R[position], rows_R[position]
            steps = own if shared is None else shared
            numbers = 1 + np.searchsorted(steps, step_N[rows], side="left")
            trained = step_N[rows][updates_N[rows]]
            if len(steps) and len(trained):  # evaluations before and after the training are no epochs
                numbers = np.minimum(numbers, len(steps) + (trained.max() > steps[-1]))
                numbers -= steps[0] == 0 < trained.min()
            epoch_N[rows] = numbers
            missing = np.setdiff1d(steps[steps < own[-1]], own) if len(own) else own
            if len(missing):
                gaps.append(f"{runs[position].name} at step {enumerate_some(map(str, missing))}")
    if gaps:
        logger.warning(
            "%s without a validation that other runs of the group have; epochs are counted as in those: %s",
            count(len(gaps), "run"), enumerate_some(gaps),
        )  # fmt: skip
    if unrelated:
        logger.warning(
            "%s with runs that validated at different steps, so their epochs are not comparable: %s",
            count(len(unrelated), "group"), enumerate_some(unrelated),
        )  # fmt: skip
    return epoch_N


def shared_grid(own_R: Sequence[np.ndarray]) -> np.ndarray | None:
    """All steps at which runs of a group validated; None if all have the same steps, or unrelated ones.

    `own_R`: the steps of each run, int64, ascending, not empty. They are related if one run has all steps, or
    if each run has more than half of those up to its last one.
    """
    if len({steps.tobytes() for steps in own_R}) < 2:
        return None
    union = np.unique(np.concatenate(own_R))
    reached_R = [np.searchsorted(union, steps[-1], side="right") for steps in own_R]
    if max(map(len, own_R)) == len(union):
        return union
    shared = all(2 * len(steps) > reached for steps, reached in zip(own_R, reached_R, strict=True))
    return union if shared else None
