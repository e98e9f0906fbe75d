"""Which epoch a step belongs to, told from the validations.

fairseq's event files know steps only. A run validates after each epoch, so that the n-th validation ends
epoch n; the runs of an arm and init, which differ by their seed alone, validate at the same steps. Where a
log lacks a validation that others of its group have, the others tell its epochs, and this is said.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from common.errors import count, enumerate_some

from .runs import Run

logger = logging.getLogger(__name__)


def number_epochs(
    runs: Sequence[Run], run_N: np.ndarray, step_N: np.ndarray, valid_N: np.ndarray
) -> np.ndarray:
    """int64 (N,): 1 + the validations of the run before each step; 1 throughout where there was none.

    `run_N` int64, in order, positions in `runs`; `step_N` int64; `valid_N` bool, rows of a validation.
    """
    epoch_N = np.ones(len(step_N), np.int64)
    starts_R, stops_R = (np.searchsorted(run_N, np.arange(len(runs)), side) for side in ("left", "right"))
    rows_R = [slice(start, stop) for start, stop in zip(starts_R, stops_R, strict=True)]
    own_R = [np.unique(step_N[rows][valid_N[rows]]) for rows in rows_R]
    gaps: list[str] = []
    apart: list[str] = []
    for group in _groups(runs):
        grids = [own_R[run] for run in group if len(own_R[run])]
        shared = shared_grid(grids)
        if shared is None and len({steps.tobytes() for steps in grids}) > 1:
            apart.append(f"{runs[group[0]].arm}/{runs[group[0]].init}")
        for run in group:
            steps = own_R[run] if shared is None else shared
            epoch_N[rows_R[run]] += np.searchsorted(steps, step_N[rows_R[run]], side="left")
            if len(missing := _missing(own_R[run], steps)):
                gaps.append(f"{runs[run].name} at step {enumerate_some(map(str, missing))}")
    if gaps:
        logger.warning(
            "%s without a validation that others of the group have (epochs are counted as in these): %s",
            count(len(gaps), "run"), enumerate_some(gaps),
        )  # fmt: skip
    if apart:
        logger.warning(
            "%s of runs that validated at different steps, so that an epoch is not the same step for all: %s",
            count(len(apart), "group"), enumerate_some(apart),
        )  # fmt: skip
    return epoch_N


def shared_grid(own_R: Sequence[np.ndarray]) -> np.ndarray | None:
    """All steps at which runs of a group validated; None where they are the same, or each run has its own.

    `own_R`: the steps of each run, int64, ascending, not empty. Shared, where one run has all of them, or
    each more than half of those up to its last one.
    """
    if len({steps.tobytes() for steps in own_R}) < 2:
        return None
    union = np.unique(np.concatenate(own_R))
    reached_R = [np.searchsorted(union, steps[-1], side="right") for steps in own_R]
    if max(map(len, own_R)) == len(union):
        return union
    shared = all(2 * len(steps) > reached for steps, reached in zip(own_R, reached_R, strict=True))
    return union if shared else None


def _groups(runs: Sequence[Run]) -> list[list[int]]:
    groups: dict[tuple[str, str], list[int]] = {}
    for position, run in enumerate(runs):
        groups.setdefault((run.arm, run.init), []).append(position)
    return list(groups.values())


def _missing(own: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Steps of the grid that a run passed without a validation."""
    return np.setdiff1d(grid[grid < own[-1]], own) if len(own) else grid[:0]
