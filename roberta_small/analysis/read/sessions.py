"""Values that a run logged more than once: after a restart, in another training, in a later evaluation.

A session is what one process logged of a metric: its steps ascend. A new file, or a step below the previous
one, begins another session. Of several sessions,

    workers      files were written at the same time: they are one session, or an error if they differ
    evaluation   no training belongs to the session, because no training metric goes back or on before it, or
                 there are none and it has a single step: not part of the training
    restart      a later session begins within the steps of an earlier one: the earlier values from that step
                 on are abandoned, on all subsets if the restart is visible in the training metrics
    training     it begins at or before the first step, or it is in another file and has other steps: another
                 training. In the same folder the later one is used, in another folder it is an error

TensorBoard's own mark of a restart, `SessionLog.START` with a step (`SummaryWriter(purge_step=...)`), removes
earlier values of the same folder from that step on (`EventAccumulator`, "purge").

N logged values, F files, M values of one metric.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from roberta_small.analysis.read.layout import SUBSET, propose
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
    """bool: metrics of training, which every process logs that trains, and no other."""
    quality: np.ndarray
    """bool: metrics of the quality of a model, not of speed or progress."""
    starts: np.ndarray
    """bool: marks of a restart, which have no value."""
    paths: Sequence[Path]


@dataclass
class Repeated:
    """What was found in the sessions, as parts of messages."""

    restarts: Counter[int] = field(default_factory=Counter)
    """Run -> number of abandoned values that differ from, or are missing in, the later session."""
    trainings: dict[int, str] = field(default_factory=dict)
    """Run -> the files of two trainings in one folder."""
    evaluations: dict[int, tuple[int, int, float, float]] = field(default_factory=dict)
    """Run -> group, step, value of the training, and of the evaluation."""
    workers: dict[int, str] = field(default_factory=dict)
    """Run -> the files that were written at the same time."""


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
    _purge(logged, clock_N, rank_F, keep_N, found)
    rows = np.flatnonzero(keep_N)
    order = rows[np.lexsort((rows, rank_F[logged.file[rows]], logged.group[rows]))]
    same = logged.group[order][1:] == logged.group[order][:-1]
    files = np.diff(logged.file[order]) != 0
    again = order[1:][same & (files | (np.diff(logged.step[order]) <= 0))]
    again = again[np.argsort(~logged.quality[again], kind="stable")]  # messages are about the first
    suspicious = np.array(list(dict.fromkeys(logged.group[again].tolist())), np.int64)
    begins, ends = (np.searchsorted(logged.group[order], suspicious, side) for side in ("left", "right"))
    rows_T = order[logged.training[order]]
    runs, starts = np.unique(logged.run[rows_T], return_index=True)
    updates = dict(zip(runs.tolist(), np.split(rows_T, starts[1:]), strict=False))
    sessions = _Sessions(logged, clock_N, keep_N, updates, found)
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        sessions.resolve(order[begin:end])
    for run, clock, step in sessions.restarts:
        lost = keep_N & (logged.run == run) & (clock_N < clock) & (logged.step > step)
        if lost.any():
            keep_N &= ~lost
            found.restarts[run] += int(lost.sum())
    return keep_N, found


def _purge(
    logged: Logged, clock_N: np.ndarray, rank_F: np.ndarray, keep_N: np.ndarray, found: Repeated
) -> None:
    """Apply the marks of restarts, to what is before them in their file and in files that began earlier."""
    position_N = np.arange(len(logged.step))
    for mark in np.flatnonzero(logged.starts).tolist():
        folder = logged.paths[logged.file[mark]].parent
        inside_F = np.array([path.parent == folder for path in logged.paths])
        file = logged.file[mark]
        earlier_N = (rank_F < rank_F[file])[logged.file] & (clock_N < clock_N[mark])
        earlier_N |= (logged.file == file) & (position_N < mark)
        lost = keep_N & inside_F[logged.file] & earlier_N & (logged.step >= logged.step[mark])
        keep_N &= ~lost
        if lost.any():
            found.restarts[int(logged.run[mark])] += int(lost.sum())


@dataclass
class _Sessions:
    """Decides about the sessions of each metric: (N,) `clock` and `keep` as in `kept`."""

    logged: Logged
    clock: np.ndarray
    keep: np.ndarray
    updates: dict[int, np.ndarray]
    """Run -> its rows of `Logged.training`, in the order of metric and time."""
    found: Repeated
    restarts: list[tuple[int, float, int]] = field(default_factory=list)
    """Run, time and first step of each restart that the training metrics show."""

    def resolve(self, rows_M: np.ndarray) -> None:
        """Decide about the values of one metric of a run; `rows_M` are its rows in the order of time."""
        logged, keep, found = self.logged, self.keep, self.found
        run, training = int(logged.run[rows_M[0]]), bool(logged.training[rows_M[0]])
        sessions = [
            (number > 0, session)
            for part in self._parts(rows_M)
            for number, session in enumerate(
                np.split(part, np.flatnonzero(np.diff(logged.step[part]) < 0) + 1)
            )
        ]
        current: dict[int, int] = {}  # step -> row
        for same_file, session in sessions:
            steps: dict[int, int] = {}
            for row in session.tolist():
                step = int(logged.step[row])
                if training and step in steps:
                    keep[steps[step]] = False
                    steps[step] = row
                elif step in steps:  # twice in one session: the first value is that of the training
                    self._note_evaluation(steps[step], row)
                else:
                    steps[step] = row
            if not current:
                current = steps
                continue
            first, end, single = min(steps), max(current), len(steps) == 1
            trained = None if training else self._trained(current, steps)
            if first > end and (trained is not False or same_file or not single):
                current |= steps
                continue
            evaluated = single if trained is None else not trained
            if training:
                evaluated = single and len(current) > 1 and (same_file or first < min(current))
            if evaluated:
                for step, row in steps.items():
                    self._note_evaluation(current.get(step, current[end]), row)
                continue
            # A session with the same steps where both logged restarts, and logs them again.
            last = min(end, max(steps))
            same_grid = {s for s in current if first <= s <= last} == {s for s in steps if s <= last}
            another = first <= min(current) or not (training or same_file or same_grid)
            if another and len(current) > 1:
                self._check_trainings(next(iter(current.values())), steps[first])
            lost = {step: row for step, row in current.items() if another or step >= first}
            keep[list(lost.values())] = False
            if training and end > first:  # `first` itself may be that of the checkpoint, logged again
                self.restarts.append((run, float(self.clock[steps[first]]), first))
            changed = [s for s, row in lost.items() if s not in steps or not self._equal(row, steps[s])]
            if changed and run not in found.trainings:
                found.restarts[run] += len(changed)
            current = {step: row for step, row in current.items() if step not in lost} | steps

    def _parts(self, rows_M: np.ndarray) -> list[np.ndarray]:
        """The rows of each file. Files that were written at the same time are one, in the order of steps."""
        parts, end = list[np.ndarray](), -np.inf
        for file in dict.fromkeys(self.logged.file[rows_M].tolist()):
            rows = rows_M[self.logged.file[rows_M] == file]
            time = self.logged.wall_time[rows]
            if time.min() < end:  # never for NaN
                parts[-1] = self._merged(np.append(parts[-1], rows))
            else:
                parts.append(rows)
            end = np.fmax(end, time.max())
        return parts

    def _merged(self, rows: np.ndarray) -> np.ndarray:
        """The rows of several workers by step; raises `UserError` if they differ or are in two folders."""
        logged, files = self.logged, self.logged.file[rows]
        if logged.paths[files[0]].parent != logged.paths[files[-1]].parent:
            self._check_trainings(rows[0], rows[-1])
        names = enumerate_some(str(logged.paths[file]) for file in dict.fromkeys(files.tolist()))
        rows = rows[np.argsort(logged.step[rows], kind="stable")]
        again = np.diff(logged.step[rows]) == 0
        for one, other in zip(rows[:-1][again].tolist(), rows[1:][again].tolist(), strict=True):
            if not self._equal(one, other):
                raise UserError(
                    f"{names}: written at the same time with different values, {logged.value[one]:.6g} and "
                    f"{logged.value[other]:.6g} at step {logged.step[one]:,}; keep the file of one worker, "
                    "move the others out of the folder of the runs"
                )
        self.keep[rows[1:][again]] = False
        self.found.workers[int(logged.run[rows[0]])] = names
        return rows[np.append(True, ~again)]

    def _trained(self, current: dict[int, int], steps: dict[int, int]) -> bool | None:
        """Whether the run trained for these later steps; None if it logged no metrics of training.

        Then these go back between the values of `current` and of `steps`, or beyond the steps of `current`.
        """
        logged, rows = self.logged, list(steps.values())
        rows_T = self.updates.get(int(logged.run[rows[0]]))
        if rows_T is None:
            return None
        time_T, step_T = self.clock[rows_T], logged.step[rows_T]
        after_T = time_T > self.clock[list(current.values())].max()
        back_T = after_T & np.append(False, (np.diff(step_T) <= 0) & (np.diff(logged.group[rows_T]) == 0))
        again = time_T[back_T].min(initial=np.inf)
        until, last = self.clock[rows].max(), max(steps)
        # fairseq logs the training metrics of an epoch after its validation.
        further_T = (step_T > max(current)) & ((time_T <= until) | (step_T == last))
        return bool(
            again <= until or (last > max(current) and (after_T & (time_T < again) & further_T).any())
        )

    def _equal(self, one: int, other: int) -> bool:
        value = self.logged.value
        return bool(value[one] == value[other] or np.isnan(value[[one, other]]).all())

    def _note_evaluation(self, trained: int, evaluated: int) -> None:
        """Drop the later value, and note it if it differs."""
        logged = self.logged
        self.keep[evaluated] = False
        if logged.quality[trained] and not self._equal(trained, evaluated):
            place = int(logged.group[evaluated]), int(logged.step[evaluated])
            values = float(logged.value[trained]), float(logged.value[evaluated])
            self.found.evaluations.setdefault(int(logged.run[evaluated]), (*place, *values))

    def _check_trainings(self, earlier: int, later: int) -> None:
        """Note the files of two trainings; raises `UserError` if they are in different folders."""
        logged = self.logged
        paths = [logged.paths[logged.file[row]] for row in (earlier, later)]
        parts = []
        for path, row in zip(paths, (earlier, later), strict=True):
            inside = (logged.file == logged.file[row]) & (logged.group == logged.group[row])
            steps, values = logged.step[inside], logged.value[inside]
            first, last = (f"{values[end]:.6g} at step {steps[end]:,}" for end in (0, -1))
            parts.append(f"{path} ({count(len(steps), 'value')}, {first} to {last})")
        described = " and ".join(parts)
        if paths[0].parent != paths[1].parent:
            inside = (path.parent for path in paths)
            remedy = propose(one.parent if SUBSET.fullmatch(one.name) else one for one in inside)
            raise UserError(
                f"two trainings are logged as one run: {described}; move one of the folders away{remedy}"
            )
        self.found.trainings[int(logged.run[later])] = described if paths[0] != paths[1] else str(paths[0])


def messages(found: Repeated, runs: Sequence[str], names: Callable[[int], str]) -> list[str]:
    """A line for each kind of repetition; `runs` are the names of the runs, `names` those of a group."""
    lines = []
    if found.restarts:
        lines.append(
            f"{count(found.restarts.total(), 'value')} logged before a restart from an earlier step, "
            f"not used: {enumerate_some(runs[run] for run in found.restarts)}"
        )
    if found.workers:
        described = [f"{runs[run]} ({files})" for run, files in found.workers.items()]
        lines.append(f"event files that were written at the same time, merged: {enumerate_some(described)}")
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
