"""The epoch of each step, derived from the validations.

fairseq's event files contain steps but no epochs. A run validates after each epoch: its n-th validation ends
epoch n. The runs of an arm and init differ only in their seed and validate at the same steps. If a log
lacks a validation that others of its group have, its epochs are taken from the others, with a warning.

With `--validate-interval`, some epochs end without a validation. The trainers of this project log the subset
`train` once at the end of every epoch, so their epochs are counted in it. Other trainers also log `train`
within epochs.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from roberta_small.analysis.read.runs import NO_MANIFEST, Run
from roberta_small.common.errors import count, enumerate_some

logger = logging.getLogger(__name__)


def number_epochs(
    runs: Sequence[Run], run_N: np.ndarray, step_N: np.ndarray, valid_N: np.ndarray, train_N: np.ndarray
) -> np.ndarray:
    """(N,) int64: 1 + the number of epochs of the run that ended before each step.

    `run_N` int64, sorted positions in `runs`; `step_N` int64; `valid_N` and `train_N` bool, rows of
    validations and of the subset `train`.
    """
    epoch_N = np.ones(len(step_N), np.int64)
    starts_R, stops_R = (np.searchsorted(run_N, np.arange(len(runs)), side) for side in ("left", "right"))
    rows_R = [slice(start, stop) for start, stop in zip(starts_R, stops_R, strict=True)]
    own_R = [
        _epoch_ends(run, np.unique(step_N[rows][valid_N[rows]]), np.unique(step_N[rows][train_N[rows]]))
        for run, rows in zip(runs, rows_R, strict=True)
    ]
    gaps: list[str] = []
    unrelated: list[str] = []
    for group in _groups(runs):
        grids = [own_R[run] for run in group if len(own_R[run])]
        shared = shared_grid(grids)
        if shared is None and len({steps.tobytes() for steps in grids}) > 1:
            unrelated.append(f"{runs[group[0]].arm}/{runs[group[0]].init}")
        for run in group:
            steps = own_R[run] if shared is None else shared
            epoch_N[rows_R[run]] += np.searchsorted(steps, step_N[rows_R[run]], side="left")
            if len(missing := _missing(own_R[run], steps)):
                gaps.append(f"{runs[run].name} at step {enumerate_some(map(str, missing))}")
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


def _epoch_ends(run: Run, validations: np.ndarray, train: np.ndarray) -> np.ndarray:
    """The steps at which epochs ended: validations, or all of `train` if a run of this project has more.

    A run that validates within epochs has validations that are not in `train`.
    """
    if run.status == NO_MANIFEST or not len(validations) or not np.isin(validations, train).all():
        return validations
    return train


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


def _groups(runs: Sequence[Run]) -> list[list[int]]:
    groups: dict[tuple[str, str], list[int]] = {}
    for position, run in enumerate(runs):
        groups.setdefault((run.arm, run.init), []).append(position)
    return list(groups.values())


def _missing(own: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Steps of the grid before the last validation of a run at which it has no validation."""
    return np.setdiff1d(grid[grid < own[-1]], own) if len(own) else grid[:0]
