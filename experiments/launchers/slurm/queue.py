"""Submit a job array (sbatch), ask the state of its tasks (squeue), and wait until they have ended.

The name of its job and its index in the array identify a task. Job names are unique, so the queue shows
what has been submitted even if the record of the submission was lost.
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

from common import manifest
from common.errors import UserError
from common.run import LOG

from ... import report
from ...plan import Job
from ...progress import Follower, Line, duration, read_log, say, validation_words
from ..local import Outcome

QUEUE_SECONDS = 10.0
"""Between calls of squeue: one controller serves a whole cluster."""
LOG_SECONDS = 2.0
"""Between reads of the logs."""
SETTLE_SECONDS = 60.0
"""How long another machine may read an outdated manifest (NFS: acdirmax)."""

Task = tuple[str, int]
"""Name of the job, index in its array."""

ENDED = frozenset(
    {
        *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY"),
        *("PREEMPTED", "REVOKED", "TIMEOUT"),
    }
)
"""Final states of a task. COMPLETING is not one: a requeued task passes through it."""
ERRORS = ("FAILED", "OUT_OF_MEMORY")
FIELDS = "%F %K %T %j %r"  # number of the job, index, state, name, reason for waiting


@dataclass(frozen=True)
class Entry:
    """The state of a task in the queue."""

    job: str
    """The number that SLURM gave the job, and the index: `17_3`."""
    state: str
    reason: str = ""
    """Why it is waiting."""

    @property
    def ended(self) -> bool:
        """Whether it has left the queue for good."""
        return self.state in ENDED


LOST = Entry("", "no longer in the queue")


def require_commands() -> None:
    """Raise `UserError` where SLURM's commands are not on the path."""
    for name in ("sbatch", "squeue"):
        if shutil.which(name) is None:
            raise UserError(
                f"--launcher slurm: {name} is not on the PATH; start on a login node of the cluster, "
                "or use --launcher local"
            )


def submit(options: Sequence[str], script: str) -> str:
    """Submit a batch script; the job's number. Raises `UserError` with the error of sbatch."""
    answer = _run(["sbatch", "--parsable", *options], script)
    number = answer.strip().partition(";")[0]  # the name of the cluster may follow
    if not number.isdigit():
        raise UserError(f"sbatch answered {answer.strip()!r}, not a job number; check --slurm")
    return number


def entries(names: Collection[str]) -> dict[Task, Entry]:
    """The tasks of jobs with these names: those in the queue and those that left it recently.

    Raises `UserError` if squeue fails.
    """
    if not names:
        return {}
    answer = _run(
        [
            *("squeue", "--noheader", "--array", "--states=all", f"--user={os.getuid()}"),
            *(f"--name={','.join(sorted(names))}", f"--format={FIELDS}"),
        ]
    )
    found = {}
    for line in answer.splitlines():
        number, index, state, name, *reason = line.split(maxsplit=4)
        if index.isdigit() and name in names:
            found[name, int(index)] = Entry(f"{number}_{index}", state, "".join(reason).strip())
    return found


def _run(words: Sequence[str], text: str = "") -> str:
    """The output of a SLURM command; raises `UserError` with its error message."""
    # SQUEUE_STATES and similar variables of the user would hide tasks.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SQUEUE_")}
    done = subprocess.run(
        words, input=text, env=environ, capture_output=True, encoding="utf-8", errors="surrogateescape"
    )
    if done.returncode:
        raise UserError(f"{words[0]}: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout


@dataclass
class Shown:
    """A run being trained, with its progress line."""

    job: Job
    line: Line
    position: int
    follower: Follower = field(init=False)
    _bytes: int = field(init=False)
    """Size of the log when it was last read."""

    def __post_init__(self) -> None:
        self._follow()
        self.follower.skip()
        self._bytes = self._size()

    def show(self) -> None:
        """Bring the line up to date."""
        size = self._size()
        if size < self._bytes:  # the run was restarted
            self._follow()
        self._bytes = size
        self.line.show(self.follower)

    def _size(self) -> int:
        log = self.job.planned.run.folder / LOG
        return log.stat().st_size if log.is_file() else 0

    def _follow(self) -> None:
        self.follower = Follower(self.job.planned.run.folder / LOG, self.job.planned.progress.recipe)


def watch(jobs: Mapping[Task, Job], folder: Path) -> list[Outcome]:
    """Wait until all tasks have ended; their outcomes in the order in which they ended.

    `folder` contains their output. On Ctrl-C the tasks stay in the queue.
    """
    watching = _Watch(dict(jobs), folder)
    try:
        while watching.waiting:
            watching.ask()
            watching.look(QUEUE_SECONDS)
    except KeyboardInterrupt:
        names = ",".join(sorted({name for name, _ in jobs}))
        say(f"The tasks stay in the queue; the same command waits, scancel --name={names} cancels them")
        raise
    finally:
        watching.close()
    return watching.outcomes


class _Watch:
    """The tasks that have not ended yet, and their progress lines."""

    def __init__(self, waiting: dict[Task, Job], folder: Path) -> None:
        self.waiting = waiting
        self.outcomes: list[Outcome] = []
        self._folder = folder
        self._shown: dict[Task, Shown] = {}
        self._left: dict[Task, float] = {}
        """When a task was first seen to have left the queue."""
        self._silent = False
        self._held: set[Task] = set()
        """Those already reported as held by SLURM."""
        self._bar = tqdm(
            total=len(waiting),
            position=0,
            leave=False,
            dynamic_ncols=True,
            disable=not sys.stderr.isatty(),
            bar_format="|{bar:12}| {n_fmt}/{total_fmt} runs  {desc}",
        )

    def ask(self) -> None:
        """Ask the queue for the state of each task."""
        try:
            found = entries({name for name, _ in self.waiting})
        except UserError as error:
            if not self._silent:
                say(f"{error}; still waiting for the tasks")
            self._silent = True
            return
        self._silent = False
        reasons = set()
        for task, job in list(self.waiting.items()):
            entry = found.get(task, LOST)
            if entry.state == "PENDING":
                reasons.add(entry.reason)
                self._say_held(task, entry)
            if entry.state == "RUNNING":
                self._show(task, job)
            else:
                self._hide(task)
            if not (entry.ended or entry is LOST):
                self._left.pop(task, None)
            elif outcome := self._outcome(task, job, entry):
                del self.waiting[task]
                self.outcomes.append(outcome)
                _say_end(outcome)
        self._bar.n = len(self.outcomes)
        waits = f", others waiting ({', '.join(sorted(reasons))})" if reasons else ""
        self._bar.set_description_str(f"{len(self._shown)} in training{waits}")

    def _say_held(self, task: Task, entry: Entry) -> None:
        """Report a held task once: it waits until a user releases it."""
        if "held" in entry.reason.lower() and task not in self._held:
            self._held.add(task)
            say(
                f"{self.waiting[task].planned.run.label}  is held by SLURM ({entry.reason}): "
                f"scontrol release {entry.job} starts it, scancel {entry.job} cancels it"
            )

    def look(self, seconds: float) -> None:
        """Follow the logs for some seconds."""
        until = time.monotonic() + seconds
        while self.waiting and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, LOG_SECONDS))
            for shown in self._shown.values():
                shown.show()

    def close(self) -> None:
        """Clear the screen."""
        for task in list(self._shown):
            self._hide(task)
        self._bar.close()

    def _show(self, task: Task, job: Job) -> None:
        if task not in self._shown:
            taken = {shown.position for shown in self._shown.values()}
            position = next(free for free in range(1, len(taken) + 2) if free not in taken)
            self._shown[task] = Shown(job, Line(job.planned.run.label, position), position)

    def _hide(self, task: Task) -> None:
        if shown := self._shown.pop(task, None):
            shown.show()
            shown.line.close()

    def _outcome(self, task: Task, job: Job, entry: Entry) -> Outcome | None:
        """How a task that has left the queue ended; None if its manifest may be outdated."""
        run = job.planned.run
        content = manifest.read(run.folder) or {}
        status = content.get("status")
        since = self._left.setdefault(task, time.monotonic())
        done = (
            entry.state == "COMPLETED" or entry is LOST
        )  # the manifest should then contain the final status
        if done and status != "finished" and time.monotonic() - since < SETTLE_SECONDS:
            return None
        progress = read_log(run.folder / LOG, job.planned.progress.recipe)
        seconds = content.get("seconds", 0.0)
        if status == "finished":
            return Outcome(run, progress, seconds, None)
        where = f"task {entry.job} " if entry.job else "its task is "
        output = report.tail(self._folder / f"{entry.job}.out", lines=1)
        problem = where + entry.state + (f" ({output[0].strip()})" if output else "")
        stopped = entry.state not in ERRORS or (
            entry.state == "FAILED" and status in ("interrupted", "running")
        )
        return Outcome(run, progress, seconds, problem, stopped)


def _say_end(outcome: Outcome) -> None:
    if outcome.problem is None:
        ending = "  ".join(["finished", *validation_words(outcome.progress)])
    else:
        ending = f"{outcome.status.upper()}: {outcome.problem}"
    say(f"{outcome.run.label}  {ending}  in {duration(outcome.seconds)}")
