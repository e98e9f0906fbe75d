"""Submits a job array (sbatch), reads the states of its tasks (squeue), and waits until they have ended.

A task is identified by the name of its job and its index in the array. Job names are unique, so the queue
shows which tasks were submitted even if the submitting command was killed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tqdm import tqdm

from roberta_small.common import manifest
from roberta_small.common.errors import UserError
from roberta_small.common.run import LOG
from roberta_small.experiments import report
from roberta_small.experiments.launchers.local import Outcome
from roberta_small.experiments.plan import Job
from roberta_small.experiments.progress import (
    Follower,
    ProgressLine,
    duration,
    print_above,
    read_log,
    validation_parts,
)

QUEUE_SECONDS = 10.0
"""Time between calls of squeue; one controller serves a whole cluster."""
LOG_SECONDS = 2.0
"""Time between reads of the logs."""
SETTLE_SECONDS = 60.0
"""How long a manifest written on a node may appear outdated on this machine (NFS: acdirmax), and how long a
task that was interrupted may take to return to the queue."""

Task = tuple[str, int]
"""Name of the job and index in its array."""

ENDED = frozenset(
    {
        *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY"),
        *("PREEMPTED", "REVOKED", "TIMEOUT"),
    }
)
"""Final states of a task. COMPLETING is not final: a requeued task passes through it."""
REQUEUED = ("BOOT_FAIL", "FAILED", "NODE_FAIL", "PREEMPTED")
"""Final states in which a task may be for a moment before SLURM puts it into the queue again."""
ERRORS = ("FAILED", "OUT_OF_MEMORY")
"""Final states after which the same command would fail again; runs in the other states can resume."""
FIELDS = "%F %K %T %j %r"  # job id, index, state, job name, reason for waiting


@dataclass(frozen=True)
class Entry:
    """The state of a task in the queue."""

    job: str
    """SLURM's job id and the index: `17_3`."""
    state: str
    reason: str = ""
    """The reason why the task is waiting."""

    @property
    def ended(self) -> bool:
        """Whether the state is final."""
        return self.state in ENDED


LOST = Entry("", "no longer in the queue")


def require_commands() -> None:
    """Raise `UserError` if SLURM's commands are not on the PATH."""
    for name in ("sbatch", "squeue"):
        if shutil.which(name) is None:
            raise UserError(
                f"--launcher slurm: {name} is not on the PATH; run this command on a login node of the "
                "cluster, or use --launcher local"
            )


def submit(options: Sequence[str], script: str) -> str:
    """Submit a batch script; returns the job id. Raises `UserError` with the error message of sbatch."""
    output = _run(["sbatch", "--parsable", *options], script)
    job = output.strip().partition(";")[0]  # the name of the cluster may follow
    if not job.isdigit():
        raise UserError(f"sbatch printed {output.strip()!r} instead of a job id; check --slurm")
    return job


def entries(names: Collection[str]) -> dict[Task, Entry]:
    """The tasks of the jobs with these names, in the queue or recently ended.

    Raises `UserError` if squeue fails.
    """
    if not names:
        return {}
    output = _run(
        [
            *("squeue", "--noheader", "--array", "--states=all", f"--user={os.getuid()}"),
            *(f"--name={','.join(sorted(names))}", f"--format={FIELDS}"),
        ]
    )
    found = {}
    for line in output.splitlines():
        job, index, state, name, *reason = line.split(maxsplit=4)
        if index.isdigit() and name in names:
            found[name, int(index)] = Entry(f"{job}_{index}", state, "".join(reason).strip())
    return found


def _run(words: Sequence[str], text: str = "") -> str:
    """Run a SLURM command and return its output; raises `UserError` with its error message."""
    # SQUEUE_STATES and similar variables set by the user would hide tasks.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SQUEUE_")}
    done = subprocess.run(
        words, input=text, env=environ, capture_output=True, encoding="utf-8", errors="surrogateescape"
    )
    if done.returncode:
        raise UserError(f"{words[0]}: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout


@dataclass
class Running:
    """A run that is being trained, with its progress line."""

    job: Job
    line: ProgressLine
    position: int
    follower: Follower = field(init=False)
    _bytes: int = field(init=False)
    """Size of the log when it was last read."""

    def __post_init__(self) -> None:
        self._follow()
        self.follower.skip()
        self._bytes = self._size()

    def show(self) -> None:
        """Update the progress line."""
        size = self._size()
        if size < self._bytes:  # the log was replaced because the run was restarted
            self._follow()
        self._bytes = size
        self.line.show(self.follower)

    def _size(self) -> int:
        log = self.job.planned.run.folder / LOG
        return log.stat().st_size if log.is_file() else 0

    def _follow(self) -> None:
        self.follower = Follower(self.job.planned.run.folder / LOG, self.job.planned.progress.recipe)


def watch(jobs: Mapping[Task, Job], folder: Path) -> list[Outcome]:
    """Wait until all tasks have ended; returns their outcomes in the order in which they ended.

    `folder` contains the output files of the tasks. After Ctrl-C the tasks stay in the queue.
    """
    watcher = _Watcher(dict(jobs), folder)
    try:
        while watcher.unfinished:
            watcher.update_states()
            watcher.follow_logs(QUEUE_SECONDS)
    except KeyboardInterrupt:
        names = ",".join(sorted({name for name, _ in jobs}))
        print_above(
            "The tasks stay in the queue. To wait for them, run the same command again; to cancel them: "
            f"scancel --name={names}"
        )
        raise
    finally:
        watcher.close()
    return watcher.outcomes


class _Watcher:
    """The tasks that have not ended yet, and their progress lines."""

    def __init__(self, unfinished: dict[Task, Job], folder: Path) -> None:
        self.unfinished = unfinished
        self.outcomes: list[Outcome] = []
        self._folder = folder
        self._running: dict[Task, Running] = {}
        self._ended_at: dict[Task, float] = {}
        """Time at which a task was first found to have ended or left the queue."""
        self._squeue_failed = False
        self._held: set[Task] = set()
        """Tasks that have been reported as held."""
        self._bar = tqdm(
            total=len(unfinished),
            position=0,
            leave=False,
            dynamic_ncols=True,
            disable=not sys.stderr.isatty(),
            bar_format="|{bar:12}| {n_fmt}/{total_fmt} runs  {desc}",
        )

    def update_states(self) -> None:
        """Read the state of each task from the queue, and collect the outcomes of those that have ended."""
        try:
            found = entries({name for name, _ in self.unfinished})
        except UserError as error:
            if not self._squeue_failed:
                print_above(f"{error}; still waiting for the tasks")
            self._squeue_failed = True
            return
        self._squeue_failed = False
        reasons = set()
        for task, job in list(self.unfinished.items()):
            entry = found.get(task, LOST)
            if entry.state == "PENDING":
                reasons.add(entry.reason)
                self._report_held(task, entry)
            if entry.state == "RUNNING":
                self._show(task, job)
            else:
                self._hide(task)
            if not (entry.ended or entry is LOST):
                self._ended_at.pop(task, None)
            elif outcome := self._outcome(task, job, entry):
                del self.unfinished[task]
                self.outcomes.append(outcome)
                _print_outcome(outcome)
        self._bar.n = len(self.outcomes)
        waiting = f", others pending ({', '.join(sorted(reasons))})" if reasons else ""
        self._bar.set_description_str(f"{len(self._running)} running{waiting}")

    def _report_held(self, task: Task, entry: Entry) -> None:
        """Report a held task once; it waits until a user releases it."""
        if "held" in entry.reason.lower() and task not in self._held:
            self._held.add(task)
            print_above(
                f"{self.unfinished[task].planned.run.label}  held in the queue ({entry.reason}): "
                f"scontrol release {entry.job} starts it, scancel {entry.job} cancels it"
            )

    def follow_logs(self, seconds: float) -> None:
        """Update the progress lines from the logs for a number of seconds."""
        until = time.monotonic() + seconds
        while self.unfinished and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, LOG_SECONDS))
            for running in self._running.values():
                running.show()

    def close(self) -> None:
        """Remove the progress lines from the terminal."""
        for task in list(self._running):
            self._hide(task)
        self._bar.close()

    def _show(self, task: Task, job: Job) -> None:
        if task not in self._running:
            taken = {running.position for running in self._running.values()}
            position = next(free for free in range(1, len(taken) + 2) if free not in taken)
            self._running[task] = Running(job, ProgressLine(job.planned.run.label, position), position)

    def _hide(self, task: Task) -> None:
        if running := self._running.pop(task, None):
            running.show()
            running.line.close()

    def _outcome(self, task: Task, job: Job, entry: Entry) -> Outcome | None:
        """The outcome of a task that has ended or left the queue; None if that may not be its final state."""
        run = job.planned.run
        content = manifest.read(run.folder) or {}
        status = content.get("status")
        ended_at = self._ended_at.setdefault(task, time.monotonic())
        # The manifest of a completed task contains "finished", but this machine may still see an older one.
        completed = entry.state == "COMPLETED" or entry is LOST
        interrupted = status in ("interrupted", "running")
        unsettled = (completed and status != "finished") or (entry.state in REQUEUED and interrupted)
        if unsettled and time.monotonic() - ended_at < SETTLE_SECONDS:
            return None
        progress = read_log(run.folder / LOG, job.planned.progress.recipe)
        seconds = content.get("seconds", 0.0)
        if status == "finished":
            return Outcome(run, progress, seconds, None)
        where = f"task {entry.job} " if entry.job else "its task is "
        output = report.tail(self._folder / f"{entry.job}.out", lines=1)
        problem = where + entry.state + (f" ({output[0].strip()})" if output else "")
        stopped = entry.state not in ERRORS or (entry.state == "FAILED" and interrupted)
        return Outcome(run, progress, seconds, problem, stopped)


def _print_outcome(outcome: Outcome) -> None:
    if outcome.problem is None:
        ending = "  ".join(["finished", *validation_parts(outcome.progress)])
    else:
        ending = f"{outcome.status.upper()}: {outcome.problem}"
    print_above(f"{outcome.run.label}  {ending}  in {duration(outcome.seconds)}")
