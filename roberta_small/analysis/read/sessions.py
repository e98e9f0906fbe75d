"""Values that a run logged more than once: after a restart, in another training, in a later evaluation.

A session is what one process logged of a metric: its steps ascend. A new file, or a step below the previous
one, begins another session. Of several sessions,

    restart      a later session begins within the steps of an earlier one: the earlier values from that step
                 on are abandoned, on all subsets if the restart is visible in the training metrics
    training     it begins at or before the first step, or it is in another file and has other steps: another
                 training. In the same folder the later one is used, in another folder it is an error
    evaluation   it has a single step that the training has logged or passed already: not part of the training

TensorBoard's own mark of a restart, `SessionLog.START` with a step (`SummaryWriter(purge_step=...)`), removes
earlier values of the same folder from that step on (`EventAccumulator`, "purge").

N logged values, F files, M values of one metric.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from roberta_small.common.errors import UserError, count, enumerate_some


@dataclass(frozen=True)
class Logged:
    """The logged values of all runs in the order of the files, arrays of shape (N,)."""

    group: np.ndarray
    """int64: run, subset and metric as one number."""
    run: np.ndarray
    """int64: position of the run."""
    file: np.ndarray
    """int32: position in `paths`."""
    wall_time: np.ndarray
    """float64; NaN in logs without times."""
    step: np.ndarray
    value: np.ndarray
    training: np.ndarray
    """bool: metrics of training, which every process logs."""
    quality: np.ndarray
    """bool: metrics of the quality of a model, not of speed or progress."""
    starts: np.ndarray
    """bool: marks of a restart, which have no value."""
    paths: Sequence[Path]


@dataclass
class Repeated:
    """What was found in the sessions, as parts of messages."""

    restarts: dict[int, int] = field(default_factory=dict)
    """Run -> number of abandoned values that differ from, or are missing in, the later session."""
    trainings: dict[int, str] = field(default_factory=dict)
    """Run -> the files of two trainings in one folder."""
    evaluations: dict[int, tuple[int, int, float, float]] = field(default_factory=dict)
    """Run -> group, step, value of the training, and of the evaluation."""


def kept(logged: Logged) -> tuple[np.ndarray, Repeated]:
    """(N,) bool: the values to keep, one for each group and step; and what was found.

    Raises `UserError` for two trainings in different folders that have the same name.
    """
    found = Repeated()
    keep_N = ~logged.starts
    # The wall time, or the position in a log without times. Files are ordered by their first value.
    clock_N = np.where(np.isnan(logged.wall_time), np.arange(len(logged.step)), logged.wall_time)
    first_F = np.full(len(logged.paths), np.inf)
    np.minimum.at(first_F, logged.file[keep_N], clock_N[keep_N])
    rank_F = np.argsort(np.argsort(first_F, kind="stable"))
    _purge(logged, rank_F, keep_N, found)
    rows = np.flatnonzero(keep_N)
    order = rows[np.lexsort((rows, rank_F[logged.file[rows]], logged.group[rows]))]
    same = logged.group[order][1:] == logged.group[order][:-1]
    again = order[1:][same & (np.diff(logged.step[order]) <= 0)]
    again = again[np.argsort(~logged.quality[again], kind="stable")]  # messages are about the first
    suspicious = np.array(list(dict.fromkeys(logged.group[again].tolist())), np.int64)
    begins, ends = (np.searchsorted(logged.group[order], suspicious, side) for side in ("left", "right"))
    restarts: list[tuple[int, float, int]] = []
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        _resolve(logged, clock_N, order[begin:end], keep_N, found, restarts)
    for run, clock, step in restarts:
        lost = keep_N & (logged.run == run) & (clock_N < clock) & (logged.step > step)
        if lost.any():
            keep_N &= ~lost
            found.restarts[run] = found.restarts.get(run, 0) + int(lost.sum())
    return keep_N, found


def _purge(logged: Logged, rank_F: np.ndarray, keep_N: np.ndarray, found: Repeated) -> None:
    """Apply the marks of restarts, to what is before them in their file and in earlier files."""
    position_N = np.arange(len(logged.step))
    for mark in np.flatnonzero(logged.starts).tolist():
        folder = logged.paths[logged.file[mark]].parent
        inside_F = np.array([path.parent == folder for path in logged.paths])
        file = logged.file[mark]
        earlier_N = (rank_F < rank_F[file])[logged.file] | ((logged.file == file) & (position_N < mark))
        lost = keep_N & inside_F[logged.file] & earlier_N & (logged.step >= logged.step[mark])
        keep_N &= ~lost
        if lost.any():
            run = int(logged.run[mark])
            found.restarts[run] = found.restarts.get(run, 0) + int(lost.sum())


def _resolve(
    logged: Logged,
    clock_N: np.ndarray,
    rows_M: np.ndarray,
    keep_N: np.ndarray,
    found: Repeated,
    restarts: list[tuple[int, float, int]],
) -> None:
    """Decide about the values of one metric of a run; `rows_M` are its rows in the order of time."""
    run, training = int(logged.run[rows_M[0]]), bool(logged.training[rows_M[0]])
    boundary = (np.diff(logged.file[rows_M]) != 0) | (np.diff(logged.step[rows_M]) < 0)
    sessions = np.split(rows_M, np.flatnonzero(boundary) + 1)
    current: dict[int, int] = {}  # step -> row
    for number, session in enumerate(sessions):
        steps: dict[int, int] = {}
        for row in session.tolist():
            step = int(logged.step[row])
            if training and step in steps:  # Transformers logs the epoch once more with each evaluation
                keep_N[steps[step]] = False
                steps[step] = row
            elif step in steps:  # twice in one session: the first value is that of the training
                _note_evaluation(logged, found, steps[step], row)
                keep_N[row] = False
            else:
                steps[step] = row
        first = min(steps)
        if not current or first > max(current):
            current |= steps
            continue
        same_file = logged.file[session[0]] == logged.file[sessions[number - 1][0]]
        if len(steps) == 1 and len(current) > 1 and (same_file or first < min(current)):
            _note_evaluation(
                logged, found, current.get(first, next(reversed(current.values()))), steps[first]
            )
            keep_N[steps[first]] = False
            continue
        # A session with the same steps where both logged restarts, and logs them again.
        last = min(max(current), max(steps))
        same_grid = {s for s in current if first <= s <= last} == {s for s in steps if s <= last}
        another = first <= min(current) or not (training or same_file or same_grid)
        if another and len(current) > 1:
            _check_trainings(logged, found, run, next(iter(current.values())), steps[first])
        lost = {step: row for step, row in current.items() if another or step >= first}
        keep_N[list(lost.values())] = False
        if training and max(current) > first:  # `first` itself may be that of the checkpoint, logged again
            restarts.append((run, float(clock_N[steps[first]]), first))
        values = logged.value
        changed = [
            s for s, row in lost.items() if s not in steps or not _equal(values[row], values[steps[s]])
        ]
        if changed and run not in found.trainings:
            found.restarts[run] = found.restarts.get(run, 0) + len(changed)
        current = {step: row for step, row in current.items() if step not in lost} | steps


def _equal(one: float, other: float) -> bool:
    return one == other or (np.isnan(one) and np.isnan(other))


def _note_evaluation(logged: Logged, found: Repeated, trained: int, evaluated: int) -> None:
    values = float(logged.value[trained]), float(logged.value[evaluated])
    if logged.quality[trained] and not _equal(*values):
        place = int(logged.group[evaluated]), int(logged.step[evaluated])
        found.evaluations.setdefault(int(logged.run[evaluated]), (*place, *values))


def _check_trainings(logged: Logged, found: Repeated, run: int, earlier: int, later: int) -> None:
    """Note the files of two trainings; raises `UserError` if they are in different folders."""
    paths = [logged.paths[logged.file[row]] for row in (earlier, later)]
    parts = []
    for path, row in zip(paths, (earlier, later), strict=True):
        inside = (logged.file == logged.file[row]) & (logged.group == logged.group[row])
        steps, values = logged.step[inside], logged.value[inside]
        last = f"{values[-1]:.6g} at step {steps[-1]:,}"
        first = f"{values[0]:.6g} at step {steps[0]:,}"
        parts.append(f"{path} ({count(len(steps), 'value')}, {first} to {last})")
    described = " and ".join(parts)
    if paths[0].parent != paths[1].parent:
        raise UserError(
            f"two trainings are logged as one run: {described}; move one of the folders away, or distinguish "
            "them with --pattern"
        )
    found.trainings[run] = described if paths[0] != paths[1] else str(paths[0])


def messages(found: Repeated, runs: Sequence[str], names: Callable[[int], str]) -> list[str]:
    """A line for each kind of repetition; `runs` are the names of the runs, `names` those of a group."""
    lines = []
    if found.restarts:
        lines.append(
            f"{count(sum(found.restarts.values()), 'value')} logged before a restart from an earlier step, "
            f"not used: {enumerate_some(runs[run] for run in found.restarts)}"
        )
    if found.trainings:
        lines.append(
            "two trainings logged into one folder, only the later one is used: "
            + enumerate_some(f"{runs[run]} ({files})" for run, files in found.trainings.items())
        )
    if found.evaluations:
        described = [
            f"{runs[run]}, {names(group)} at step {step:,}: {trained:.6g}, later {evaluated:.6g}"
            for run, (group, step, trained, evaluated) in found.evaluations.items()
        ]
        lines.append(
            "evaluated again under the same name after the training, the first value is used; log another "
            "split under another name (Transformers: metric_key_prefix): " + enumerate_some(described)
        )
    return lines
