"""Run folders -> the long table, the one thing that every table, statistic and figure is made of."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

import numpy as np
import pandas as pd
from tqdm import tqdm

from common.errors import UserError

from .events import Scalar, read_scalars
from .long_table import COLUMNS, ORDER
from .runs import Run, count, enumerate_some, find_runs, select_finished

logger = logging.getLogger(__name__)


def load_runs(root: str | os.PathLike[str], *, include_unfinished: bool = False) -> pd.DataFrame:
    """The long table of the finished runs below `root`; see `read_runs` and `find_runs`."""
    return read_runs(select_finished(find_runs(root), include_unfinished))


def read_runs(runs: Iterable[Run]) -> pd.DataFrame:
    """The long table of these runs (its columns: see `long_table`).

    A value logged twice for the same step (a resumed run) is the later one. NaN is kept.

    Raises `UserError` where a finished run, or all of them, hold no scalar.
    """
    frames, repeated = [], {}
    for run in tqdm(list(runs), desc="reading", unit="run", delay=1, leave=False):
        frame, repeats = _read_run(run)
        frames.append(frame)
        if repeats:
            repeated[run.name] = repeats
    if repeated:
        logger.warning(
            "%s logged again for the same step, the later one is kept, in %s",
            count(sum(repeated.values()), "value"), enumerate_some(repeated),
        )  # fmt: skip
    if not any(len(frame) for frame in frames):
        raise UserError("the runs hold no scalar at all; was TensorBoard logging on (--tensorboard-logdir)?")
    table = pd.concat([frame for frame in frames if len(frame)], ignore_index=True)
    return table.sort_values(ORDER, ignore_index=True)


def _read_run(run: Run) -> tuple[pd.DataFrame, int]:
    """The rows of one run and how many values a later one replaced."""
    values: dict[tuple[str, str, int], float] = {}
    scalars_read = 0
    for subset, files in groupby(run.event_files(), key=lambda path: path.parent.name):
        for scalar in _in_time(files):
            values[subset, scalar.tag, scalar.step] = scalar.value
            scalars_read += 1
    if not values:
        if run.finished:
            raise UserError(
                f"{run.path}: a finished run without one scalar; delete the folder and run it again"
            )
        return pd.DataFrame(columns=COLUMNS), 0
    subset, metric, step = zip(*values, strict=True)
    frame = pd.DataFrame({"subset": subset, "step": step, "metric": metric, "value": list(values.values())})
    frame["epoch"] = _epochs(frame)
    return frame.assign(arm=run.arm, init=run.init, seed=run.seed)[COLUMNS], scalars_read - len(values)


def _in_time(files: Iterable[Path]) -> list[Scalar]:
    scalars = [scalar for file in files for scalar in read_scalars(file)]
    return sorted(scalars, key=lambda scalar: scalar.wall_time)


def _epochs(frame: pd.DataFrame) -> np.ndarray:
    """int64 (len(frame),): 1 + the validations before each step; 1 throughout where there was none."""
    validations = frame.loc[frame["subset"] == "valid", "step"].unique()
    return np.searchsorted(np.sort(validations), frame["step"], side="left") + 1
