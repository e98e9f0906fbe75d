"""Run folders -> the long table, the one thing that every table, statistic and figure is made of."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from common.errors import UserError, count, enumerate_some
from common.metrics import ACCURACIES

from ..long_table import COLUMNS
from .epochs import number_epochs
from .events import read_event_files
from .layout import split_tag
from .runs import NO_MANIFEST, Run, find_runs, select_finished
from .scalars import Damage, Scalars, Tags, concatenate, report
from .text_logs import read_csv_files, read_json_files

logger = logging.getLogger(__name__)

READERS = {"events": read_event_files, "csv": read_csv_files, "json": read_json_files}


def load_runs(
    root: str | os.PathLike[str], *, include_unfinished: bool = False, pattern: str | None = None
) -> pd.DataFrame:
    """The long table of the finished runs below `root`; see `read_runs` and `find_runs`."""
    return read_runs(select_finished(find_runs(root, pattern), include_unfinished))


def read_runs(runs: Iterable[Run]) -> pd.DataFrame:
    """The long table of these runs (its columns: see `long_table`).

    Of values logged for the same step (a resumed run) the last one by the clock is kept, NaN too; that others
    were replaced is said where they differ.
    Damaged records are left out and reported, see `damage.report`. Accuracy that a run without manifest
    logged as a share is given in percent, which is said.

    Raises `UserError` where a finished run, or all of them, hold no scalar, and for a file without one
    good record.
    """
    runs = sorted(runs, key=lambda run: (run.arm, run.init, run.seed))
    tags = Tags()
    rows, repeated_R = _rows(runs, _read_logs(runs, tags), tags)
    _refuse_without_scalars(runs, rows)
    rows = _in_percent(runs, rows)
    if repeated_R.any():
        logger.warning(
            "%s logged again for the same step, the later one is kept, in %s",
            count(int(repeated_R.sum()), "value"),
            enumerate_some(runs[run].name for run in np.flatnonzero(repeated_R)),
        )
    return _frame(runs, rows)


class Rows(NamedTuple):
    """The long table in numbers: N rows in its order, one for each run, subset, metric and step."""

    run: np.ndarray
    """int64 (N,): position in the list of runs; `subset` and `metric` are positions in the lists below."""
    subset: np.ndarray
    metric: np.ndarray
    step: np.ndarray
    value: np.ndarray
    subsets: list[str]
    metrics: list[str]


def _read_logs(runs: Sequence[Run], tags: Tags) -> Scalars:
    """The scalars of all runs; files are numbered as they come, run after run."""
    logs = [(run, log) for run in runs for log in run.logs]
    damage = [Damage(log.path, may_grow=not run.finished) for run, log in logs]
    parts = []
    for kind, read in READERS.items():
        numbers = [number for number, (_, log) in enumerate(logs) if log.kind == kind]
        paths = [logs[number][1].path for number in numbers]
        for part in read(paths, tags, [damage[number] for number in numbers]):
            parts.append(part._replace(file=np.array(numbers, np.int32)[part.file]))
    report(damage)
    return concatenate(parts)


def _rows(runs: Sequence[Run], scalars: Scalars, tags: Tags) -> tuple[Rows, np.ndarray]:
    """The rows, and for each run how many values another one replaced.

    The subset is that of the file, else of the tag.
    """
    logs = [(number, log) for number, run in enumerate(runs) for log in run.logs]
    tag_names = [name if name[0] is not None else split_tag(name[1]) for name in tags]
    subsets = sorted({log.subset for _, log in logs if log.subset} | {subset for subset, _ in tag_names})
    metrics = sorted({tag for _, tag in tags} | {metric for _, metric in tag_names})
    subset_of, metric_of = _positions(subsets), _positions(metrics)
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

    order = np.lexsort((step_N, group_N))
    last = _last_of_equal(group_N[order], step_N[order])
    if not last.all():  # the clock decides, whatever the files are called
        order = np.lexsort((wall_time_N, step_N, group_N))
    replaced = np.flatnonzero(~last)
    replaced = replaced[_differ(value_N[order[replaced]], value_N[order[replaced + 1]])]
    repeated_R = np.bincount(run_N[order[replaced]], minlength=len(runs))
    order = order[last]
    rows = Rows(
        run_N[order], subset_N[order], metric_N[order], step_N[order], value_N[order], subsets, metrics
    )
    return rows, repeated_R


def _positions(names: Sequence[str]) -> dict[str, int]:
    return {name: position for position, name in enumerate(names)}


def _last_of_equal(*columns: np.ndarray) -> np.ndarray:
    """Which rows differ from the next one; bool, of the columns' length."""
    differs = np.ones(len(columns[0]), bool)
    differs[:-1] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return differs


def _differ(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Where the values differ; NaN is equal to NaN."""
    return (one != other) & ~(np.isnan(one) & np.isnan(other))


def _refuse_without_scalars(runs: Sequence[Run], rows: Rows) -> None:
    if not len(rows.run):
        raise UserError("the runs hold no scalar at all; was TensorBoard logging on (--tensorboard-logdir)?")
    for run, scalars in zip(runs, np.bincount(rows.run, minlength=len(runs)), strict=True):
        if run.finished and not scalars:
            raise UserError(
                f"{run.path}: a finished run without one scalar; delete the folder and run it again"
            )


def _in_percent(runs: Sequence[Run], rows: Rows) -> Rows:
    """Shares of right answers as percentages: Transformers' metrics give 0.59 where fairseq logs 59.

    A run logged shares where none of its accuracies is above 1. Runs with a manifest log percent.
    """
    accuracies = np.flatnonzero(np.isin(rows.metrics, list(ACCURACIES))[rows.metric])
    highest_R = np.zeros(len(runs))
    np.fmax.at(highest_R, rows.run[accuracies], rows.value[accuracies])
    foreign_R = np.array([run.status == NO_MANIFEST for run in runs])
    shares_R = foreign_R & (highest_R > 0) & (highest_R <= 1)
    if not shares_R.any():
        return rows
    logger.info(
        "%s logged accuracy as a share (0 to 1), given in percent: %s",
        count(int(shares_R.sum()), "run"), enumerate_some(runs[run].name for run in np.flatnonzero(shares_R)),
    )  # fmt: skip
    accuracies = accuracies[shares_R[rows.run[accuracies]]]
    value_N = rows.value.copy()
    value_N[accuracies] *= 100
    return rows._replace(value=value_N)


def _frame(runs: Sequence[Run], rows: Rows) -> pd.DataFrame:
    """The long table, as `long_table` describes it."""
    valid = _positions(rows.subsets).get("valid", -1)
    columns = {
        "arm": _texts([run.arm for run in runs], rows.run),
        "init": _texts([run.init for run in runs], rows.run),
        "seed": np.array([run.seed for run in runs], np.int64)[rows.run],
        "subset": _texts(rows.subsets, rows.subset),
        "epoch": number_epochs(runs, rows.run, rows.step, rows.subset == valid),
        "step": rows.step,
        "metric": _texts(rows.metrics, rows.metric),
        "value": rows.value,
    }
    return pd.DataFrame(columns, columns=COLUMNS, copy=False)


def _texts(names: Sequence[str], position_N: np.ndarray) -> pd.api.extensions.ExtensionArray:
    """A column of names; taking them by position shares the strings."""
    return pd.array(names, dtype="str").take(position_N)
