"""The local launcher: trains several runs at a time in processes on this machine and follows their logs."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from roberta_small.common import manifest
from roberta_small.common.cpu import environment
from roberta_small.common.errors import UserError
from roberta_small.common.run import LOG, TENSORBOARD, Run, State
from roberta_small.experiments.plan import Job, clear, repair
from roberta_small.experiments.progress import (
    Follower,
    Progress,
    ProgressLine,
    duration,
    print_above,
    validation_parts,
)
from roberta_small.experiments.provenance import Machine, now
from roberta_small.experiments.recipes import Recipe

POLL_SECONDS = 0.5
GRACE_SECONDS = 10
"""Time between SIGTERM and SIGKILL."""
LOCK = ".lock"
LOCK_SECONDS = 10
"""How long to wait for a lock: when a launcher is killed, its trainers' data workers take seconds to exit."""
STOP_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
PR_SET_PDEATHSIG = 1


@dataclass
class Active:
    """A run that is being trained."""

    job: Job
    slot: int
    process: subprocess.Popen[bytes]
    follower: Follower
    line: ProgressLine
    content: manifest.Manifest
    started: float


@dataclass(frozen=True)
class Outcome:
    """How a run ended; `problem` is None for a finished run."""

    run: Run
    progress: Progress
    seconds: float
    problem: str | None
    stopped: bool = False
    """Whether it was interrupted, so that the same command resumes it."""

    @property
    def status(self) -> str:
        """The status in the final table."""
        if self.stopped:
            return "not finished"
        return "failed" if self.problem else "finished"


class Runner:
    """Trains jobs, `slots` at a time."""

    def __init__(
        self,
        *,
        slots: int,
        machine: Machine,
        recipe: Recipe,
        record: Callable[[Job], dict[str, Any]],
        lock: IO[str],
        finish: Callable[[Run], None] = lambda run: None,
    ) -> None:
        """Parameters of all jobs.

        slots: number of runs at a time.
        recipe: its validation subsets are those of all runs.
        record: returns the manifest keys of a job.
        lock: the lock of the output folder, which the trainers inherit.
        finish: called with each run whose trainer has ended without an error.
        """
        self._slots = slots
        self._machine = machine
        self._recipe = recipe
        self._record = record
        self._lock = lock
        self._finish = finish
        self._active: list[Active] = []

    def run(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Train all jobs; a failed run does not stop the others.

        SIGINT, SIGTERM and SIGHUP stop the trainers, mark their runs as interrupted and raise
        KeyboardInterrupt.
        """
        waiting = list(jobs)
        outcomes: list[Outcome] = []
        with _signals_interrupt():
            try:
                while waiting or self._active:
                    while waiting and len(self._active) < self._slots:
                        self._active.append(self._start(waiting.pop(0)))
                    time.sleep(POLL_SECONDS)
                    outcomes += self._poll()
            finally:
                with _signals_ignored():
                    self._stop()
        return outcomes

    def _start(self, job: Job) -> Active:
        run, slot = job.planned.run, self._free_slot()
        if job.planned.state is State.NEW:
            clear(run)
        else:
            repair(run)
        follower = Follower(run.folder / LOG, job.planned.progress.recipe)
        follower.skip()
        content = self._record(job) | {"status": "running", "started": now(), "ended": None}
        previous = manifest.read(run.folder)
        resumed = previous if job.planned.state is State.RESUME else None
        content["seconds"] = (resumed or {}).get("seconds", 0)
        manifest.write(run.folder, content)
        with open(run.folder / LOG, "ab") as log:
            process = subprocess.Popen(
                job.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ
                | environment(self._machine.threads)
                | {"CUDA_VISIBLE_DEVICES": self._machine.visible_gpu(slot)},
                start_new_session=True,  # Ctrl-C interrupts only the launcher, which then stops the trainers
                preexec_fn=_die_with_parent,
                pass_fds=(self._lock.fileno(),),  # the folder stays locked until the last trainer exits
            )
        line = ProgressLine(run.label, position=slot)
        return Active(job, slot, process, follower, line, content, time.monotonic())

    def _free_slot(self) -> int:
        taken = {active.slot for active in self._active}
        return next(slot for slot in range(self._slots) if slot not in taken)

    def _poll(self) -> list[Outcome]:
        """Update all progress lines and close the runs that have ended; returns their outcomes."""
        ended = []
        for active in list(self._active):
            code = active.process.poll()  # before the log is read, so that its last lines are included
            active.line.show(active.follower)
            if code is not None:
                ended.append(self._close(active, code))
                self._active.remove(active)
        return ended

    def _close(self, active: Active, code: int) -> Outcome:
        run = active.job.planned.run
        problem = f"the trainer exited with {_exit_text(code)}" if code else self._missing_output(run)
        if problem is None:
            try:
                self._finish(run)
            except (UserError, OSError) as error:
                problem = str(error)
        self._write_end(active, "failed" if problem else "finished")
        active.line.close()
        seconds, progress = active.content["seconds"], active.follower.progress
        ending = f"FAILED: {problem}" if problem else "  ".join(["finished", *validation_parts(progress)])
        print_above(f"{run.label}  {ending}  in {duration(seconds)}")
        return Outcome(run, progress, seconds, problem)

    def _missing_output(self, run: Run) -> str | None:
        """An error message if an output file of a run is missing, else None."""
        if not (run.folder / "checkpoint_best.pt").is_file():
            return "the trainer exited without an error but wrote no checkpoint_best.pt"
        for subset in ("train", *self._recipe.valid_subsets):
            if not any((run.folder / TENSORBOARD / subset).glob("events.out.tfevents.*")):
                return f"the trainer exited without an error but wrote no {TENSORBOARD}/{subset}/ events"
        return None

    def _write_end(self, active: Active, status: str) -> None:
        active.content["seconds"] = round(active.content["seconds"] + time.monotonic() - active.started, 3)
        active.content |= {"status": status, "ended": now()}
        if active.follower.progress.precision is not None:
            active.content["precision"] = active.follower.progress.precision
        manifest.write(active.job.planned.run.folder, active.content)

    def _stop(self) -> None:
        """Stop the remaining trainers with their process groups and mark their runs as interrupted."""
        for active in self._active:
            _signal_group(active.process, signal.SIGTERM)
        deadline = time.monotonic() + GRACE_SECONDS
        for active in self._active:
            try:
                active.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                _signal_group(active.process, signal.SIGKILL)
                active.process.wait()
        for active in self._active:  # after all have stopped: writing may fail (full disk, closed terminal)
            ending = "interrupted; run the same command again to resume"
            try:
                self._write_end(active, "interrupted")
            except (UserError, OSError) as error:
                ending = f"stopped; {error}"
            active.line.close()
            print_above(f"{active.job.planned.run.label}  {ending}")
        self._active.clear()


@contextlib.contextmanager
def locked(out: Path, *, shared: bool = False, seconds: float | None = None) -> Iterator[IO[str]]:
    """Lock an output folder; raises `UserError` if another sweep has not released it after `seconds`.

    Several processes may have a `shared` lock at the same time. `seconds` None: `LOCK_SECONDS`.
    """
    out.mkdir(parents=True, exist_ok=True)
    with open(out / LOCK, "a+", encoding="utf-8") as lock:
        deadline = time.monotonic() + (LOCK_SECONDS if seconds is None else seconds)
        while not _try_lock(lock, fcntl.LOCK_SH if shared else fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                raise UserError(
                    f"{out}: the folder is locked by another command; wait until it ends, stop it "
                    f"(fuser -v {out / LOCK} lists its processes), or choose another --out"
                )
            time.sleep(POLL_SECONDS)
        yield lock


def _try_lock(lock: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise UserError(
            f"{lock.name}: {error.strerror}: the file system does not support locks; choose another --out"
        ) from None
    return True


def _die_with_parent() -> None:
    """Called in the trainer's process before it starts: exit when the launcher is killed (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _exit_text(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


@contextlib.contextmanager
def _signals_interrupt() -> Iterator[None]:
    """SIGTERM and SIGHUP raise KeyboardInterrupt, as SIGINT does."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    # SIGINT is included because a shell starts background jobs with SIGINT ignored.
    with _handlers((*_stop_signals(), signal.SIGINT), interrupt):
        yield


@contextlib.contextmanager
def _signals_ignored() -> Iterator[None]:
    """Ignore further signals, so that a second Ctrl-C does not leave running trainers behind."""
    with _handlers((*_stop_signals(), signal.SIGINT), signal.SIG_IGN):
        yield


def _stop_signals() -> list[int]:
    # nohup starts a command with SIGHUP ignored, and it must stay ignored.
    return [number for number in STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]


@contextlib.contextmanager
def _handlers(numbers: Sequence[int], handler: Any) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
