"""The one loop: trains the runs of a sweep in processes on this machine, whatever their method.

Each run folder has a lock, which the process of the run inherits. Several launchers can therefore work on the
same folder at the same time, on one machine or on several: each run is trained by the launcher that locks it
first, and a lock ends with the processes that hold it. A launcher inspects a run again after locking it,
because another one may have trained it since the plan.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from roberta_small.common import manifest, predictions
from roberta_small.common.cli import flags_of
from roberta_small.common.data_folder import read_report
from roberta_small.common.errors import UserError, count
from roberta_small.common.hardware import Usage, environment, usage
from roberta_small.common.run import LOG, TENSORBOARD, THRESHOLDS, Run, State
from roberta_small.experiments import plan, provenance, report
from roberta_small.experiments.inputs import files as inputs
from roberta_small.experiments.inputs.keep import keep_inputs
from roberta_small.experiments.methods import Command, Method
from roberta_small.experiments.plan import Planned
from roberta_small.experiments.progress import (
    Follower,
    Progress,
    ProgressLine,
    duration,
    print_above,
    read_log,
    validation_parts,
)
from roberta_small.experiments.provenance import Machine
from roberta_small.experiments.recipe import fairseq_flags
from roberta_small.experiments.report import Outcome
from roberta_small.experiments.settings import Settings
from roberta_small.experiments.sweep import Sweep, Training

POLL_SECONDS = 0.5
GRACE_SECONDS = 10
"""Time between SIGTERM and SIGKILL."""
HELD_SECONDS = 5.0
"""Time between two attempts to lock a run that another launcher has locked."""
LEASE_SECONDS = 120.0
"""How long a launcher with a limited number of runs waits for locked ones: a file server releases the locks
of a dead machine when its lease expires (NFSv4: after 90 seconds by default)."""
LOCK = ".lock"
"""The file in a run folder that is locked; it contains the host and the process that locked it last."""
MEASURED = ("cpu_seconds", "peak_memory_bytes")
"""Keys of a manifest that a resumed run adds to."""
STOP_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
PR_SET_PDEATHSIG = 1


def planned(method: Method, sweep: Sweep) -> list[Planned]:
    """The state of each run, in order; raises `UserError` as `plan.inspect`. Writes nothing."""
    found = []
    for training in sweep.trainings:
        state = plan.inspect(training, method.resumable, extends=method.extends)
        if state.to_train and (holder := _holder(training.run.folder)) is not None:
            state = replace(state, state=State.ELSEWHERE, holder=holder)
        found.append(state)
    return found


def dry_run(method: Method, sweep: Sweep, before: tuple[Method, Sweep] | None = None) -> None:
    """Print the plan and the commands, those of `before` first, without starting a run."""
    states, machine = planned(method, sweep), _machine(sweep, before)
    report.plan_table(states, (*sweep.notes, *_device_notes(sweep, machine)))
    first = [] if before is None or not _needs_fits(states) else _commands(*before, planned(*before), machine)
    report.commands([*first, *_commands(method, sweep, states, machine)], machine)


def _commands(
    method: Method, sweep: Sweep, states: Sequence[Planned], machine: Machine
) -> list[tuple[Run, Command]]:
    return [
        (state.run, method.command(sweep, training, resume=state.state is State.RESUME, cpu=machine.cpu))
        for training, state in zip(sweep.trainings, states, strict=True)
        if state.to_train
    ]


def _needs_fits(states: Sequence[Planned]) -> bool:
    """Whether a run may start anew; one that resumes has its own weights."""
    return any(state.state in (State.NEW, State.ELSEWHERE) for state in states)


def execute(
    method: Method,
    sweep: Sweep,
    *,
    first: int = 0,
    max_runs: int | None = None,
    before: tuple[Method, Sweep] | None = None,
    baselines: Sequence[tuple[Method, Sweep]] = (),
) -> tuple[int, int]:
    """Train the runs that are not finished and print the summary; `baselines` are fitted first.

    `before` are the runs whose checkpoints new runs start from.

    With `max_runs`, trains at most so many, beginning with the run at the position `first`. Returns the exit
    code, 1 if a run failed, and the number of runs that were trained. Raises `UserError` before the first run
    is started, and `KeyboardInterrupt` after a signal.
    """
    machine = _machine(sweep, before)
    states = planned(method, sweep)
    report.plan_table(states, (*sweep.notes, *_device_notes(sweep, machine)))
    fits = []
    if before is not None and _needs_fits(states):
        fits.append((*before, planned(*before)))
    for trainer, baseline in baselines:
        try:
            fits.append((trainer, baseline, planned(trainer, baseline)))
        except UserError as error:  # the folder has the baseline of other data
            print(f"baseline {baseline.trainings[0].run.arm}: left out ({error})")
    for trainer, baseline, found in fits:
        print(f"baseline {found[0].run.arm}:", flush=True)
        # A run that fails is reported and stops nothing but the runs that start from it.
        Launcher(trainer, baseline, _machine(baseline)).run(found)
        if all(state.state is State.FINISHED for state in found):
            print("finished (skipped)", flush=True)
    if fits:
        print(flush=True)
    for training, state in zip(sweep.trainings, states, strict=True):
        if state.state is State.FINISHED:
            keep_inputs(sweep.data, training.run.folder)
            method.finish(sweep, training.run.folder)
    launcher = Launcher(method, sweep, machine, max_runs)
    launcher.run([*states[first % len(states) :], *states[: first % len(states)]])
    code = report.summary(sweep, states, launcher.outcomes, compare=bool(baselines))
    return code, launcher.started


def _machine(sweep: Sweep, before: tuple[Method, Sweep] | None = None) -> Machine:
    settings: Settings = sweep.settings
    # A checkpoint that is not written yet is as large as the one that `before` starts from.
    trainings = [*sweep.trainings, *(before[1].trainings if before else ())]
    paths = {training.run.checkpoint for training in trainings}
    largest = max((path.stat().st_size for path in paths if path is not None and path.exists()), default=0)
    return provenance.machine(
        settings.device, settings.jobs, len(sweep.trainings), settings.processes, largest
    )


def _device_notes(sweep: Sweep, machine: Machine) -> list[str]:
    """For the plan: what is different on a GPU."""
    if machine.cpu:
        return []
    flags = sweep.trainings[0].flags
    pairs = itertools.pairwise(zip(flags, fairseq_flags.for_device(flags, cpu=False), strict=True))
    sizes = [f"{flag} {of_gpu}" for (flag, _), (of_cpu, of_gpu) in pairs if of_cpu != of_gpu]
    place = f"{count(len(machine.gpus), 'GPU')} ({machine.gpus[0]})"
    return [f"on {place}, {count(machine.slots, 'run')} at a time" + "".join(f"; {size}" for size in sizes)]


@dataclass
class Active:
    """A run that is being trained."""

    training: Training
    slot: int
    process: subprocess.Popen[bytes]
    follower: Follower
    line: ProgressLine
    content: manifest.Manifest
    started: float
    lock: IO[str]
    usage: Usage | None = None
    """The last one that was read."""


class Launcher:
    """Trains runs, as many at a time as the machine has slots."""

    def __init__(self, method: Method, sweep: Sweep, machine: Machine, max_runs: int | None = None) -> None:
        self.outcomes: dict[Run, Outcome] = {}
        """How the runs ended that this launcher trained, or that ended while it waited for them."""
        self.started = 0
        self._method = method
        self._sweep = sweep
        self._machine = machine
        self._max_runs = max_runs
        self._static = provenance.static(machine, sweep.packages)
        self._trainings = {training.run: training for training in sweep.trainings}
        self._active: list[Active] = []
        self._next_try: dict[Run, float] = {}
        """Time before which a run that another launcher has locked is not tried again."""

    def run(self, planned: Sequence[Planned]) -> None:
        """Train the runs that are not finished; a failed run does not stop the others.

        Runs that other launchers train are waited for, and resumed if their launcher ends without finishing
        them. With a limit on the number of runs, waits for `LEASE_SECONDS` at most. SIGINT, SIGTERM and
        SIGHUP stop the trainers, mark their runs as interrupted and raise KeyboardInterrupt.
        """
        waiting = [state for state in planned if state.state is not State.FINISHED]
        idle_since, said = time.monotonic(), False
        with _signals(signal.default_int_handler):
            try:
                while self._active or (waiting and not self._full()):
                    self._fill(waiting)
                    if self._active:
                        idle_since = time.monotonic()
                    elif waiting and not self._full():
                        if self._max_runs is not None and time.monotonic() - idle_since > LEASE_SECONDS:
                            break
                        if not said:
                            said = True
                            names = [f"{one.run.label} ({_holder(one.run.folder)})" for one in waiting]
                            runs = count(len(waiting), "run")
                            print_above(f"waiting for {runs} of other processes: {', '.join(names)}")
                    time.sleep(POLL_SECONDS)
                    for active in list(self._active):  # update its progress, and close it if it has ended
                        active.usage = usage(active.process.pid) or active.usage
                        code = active.process.poll()  # before the log is read, so that its end is included
                        active.line.show(active.follower)
                        if code is not None:
                            self._close(active, code)
                            self._active.remove(active)
            finally:
                # A second Ctrl-C does not leave running trainers behind.
                with _signals(signal.SIG_IGN):
                    self._stop()

    def _full(self) -> bool:
        """Whether the limit on the number of runs is reached."""
        return self._max_runs is not None and self.started >= self._max_runs

    def _fill(self, waiting: list[Planned]) -> None:
        """Start waiting runs in free slots; removes from `waiting` what is started or has ended elsewhere."""
        for state in list(waiting):
            if len(self._active) >= self._machine.slots or self._full():
                return
            if time.monotonic() < self._next_try.get(state.run, 0.0):
                continue
            lock = claim(state.run.folder)
            if lock is None:
                self._next_try[state.run] = time.monotonic() + HELD_SECONDS
                continue
            waiting.remove(state)
            if not self._claimed(state, lock):
                lock.close()

    def _claimed(self, before: Planned, lock: IO[str]) -> bool:
        """Start a run that has been locked, unless it has ended elsewhere; returns whether it was started."""
        run = before.run
        training = self._trainings[run]
        try:
            now = plan.inspect(training, self._method.resumable, extends=self._method.extends)
        except UserError as error:
            return self._failed(run, before.progress, error)
        content = manifest.read(run.folder) or {}
        if now.state is State.FINISHED:
            self.outcomes[run] = Outcome(run, now.progress, None, None)
            return False
        if content.get("status") == "failed" and content != (before.manifest or {}):
            progress = read_log(run.folder / LOG, training.recipe)
            self.outcomes[run] = Outcome(run, progress, None, "it failed in another process")
            return False
        if now.state is State.NEW and run.checkpoint is not None and not run.checkpoint.exists():
            reason = f"{run.checkpoint}: not written, because its run has failed (see above)"
            return self._failed(run, now.progress, UserError(reason))
        command, content = self._record(training, now)
        try:
            self._method.begin(self._sweep, training)
        except BaseException as error:
            failed = isinstance(error, UserError | OSError)
            content |= {"status": "failed" if failed else "interrupted", "ended": provenance.now()}
            manifest.write(run.folder, content)
            if not failed:
                raise
            return self._failed(run, now.progress, error)
        self._active.append(self._start(training, command, content, lock))
        self.started += 1
        return True

    def _failed(self, run: Run, progress: Progress, error: BaseException) -> bool:
        """Report a run that could not be started; returns False."""
        self.outcomes[run] = Outcome(run, progress, None, str(error))
        print_above(f"{run.label}  FAILED: {error}")
        return False

    def _record(self, training: Training, state: Planned) -> tuple[Command, manifest.Manifest]:
        """Make the folder ready for a start, and write its manifest, by which it is known later."""
        run, resume = training.run, state.state is State.RESUME
        previous = manifest.read(run.folder) or {}
        if resume:
            self._method.repair(run.folder)
        else:
            plan.clear(run)
        command = self._method.command(self._sweep, training, resume=resume, cpu=self._machine.cpu)
        content: manifest.Manifest = {"schema": manifest.SCHEMA}
        content |= {"arm": run.arm, "init": run.init, "seed": run.seed, "recipe": self._sweep.recipe.name}
        content["command"] = list(command.shown)
        content |= dict(training.identity) | self._static
        data = self._sweep.data  # or its text/
        if columns := (read_report(data) or read_report(data.parent)).get("columns"):
            content["columns"] = columns
        content |= {"status": "running", "started": provenance.now(), "ended": None}
        content["seconds"] = previous.get("seconds", 0) if resume else 0
        if resume:
            content |= {key: previous[key] for key in MEASURED if key in previous}
        earlier = previous.get("continued", [])
        if state.longer:
            flags = flags_of(previous.get("recipe_flags") or [])
            earlier = [*earlier, [word for flag in plan.LENGTH for word in flags.get(flag, ())]]
        if resume and earlier:
            content["continued"] = earlier
        if state.longer:  # they are of the best checkpoint, which may change
            for path in [*run.folder.glob(predictions.file_name("*")), run.folder / THRESHOLDS]:
                path.unlink(missing_ok=True)
        manifest.write(run.folder, content)
        return command, content

    def _start(
        self, training: Training, command: Command, content: manifest.Manifest, lock: IO[str]
    ) -> Active:
        run, taken = training.run, {active.slot for active in self._active}
        slot = next(slot for slot in range(self._machine.slots) if slot not in taken)
        follower = Follower(run.folder / LOG, training.recipe)
        with open(run.folder / LOG, "ab") as log:
            process = subprocess.Popen(
                command.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ
                | environment(self._machine.threads)
                | {"CUDA_VISIBLE_DEVICES": self._machine.visible_gpu(slot)},
                start_new_session=True,  # Ctrl-C interrupts only the launcher, which then stops the trainers
                preexec_fn=_die_with_parent,
                pass_fds=(lock.fileno(),),  # the run stays locked until its last process exits
            )
        line = ProgressLine(run.label, position=slot)
        return Active(training, slot, process, follower, line, content, time.monotonic(), lock)

    def _close(self, active: Active, code: int) -> None:
        """Complete the folder of a run whose process has ended, and record how."""
        run, recipe, progress = active.training.run, active.training.recipe, active.follower.progress
        if code:
            ended = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            problem: str | None = f"the trainer exited with {ended}"
        else:
            folders = [f"{TENSORBOARD}/{subset}" for subset in ("train", *recipe.valid_subsets)]
            events = "events.out.tfevents.*"
            missing = [name for name in self._method.outputs if not (run.folder / name).is_file()]
            missing += [f"{name}/ events" for name in folders if not any((run.folder / name).glob(events))]
            problem = f"the trainer exited without an error but wrote no {missing[0]}" if missing else None
        if problem is None:
            try:
                keep_inputs(self._sweep.data, run.folder)
                self._measure(active)
                active.content |= self._method.finish(self._sweep, run.folder)
            except (UserError, OSError) as error:
                problem = str(error)
        if problem is None and progress.best is not None:
            active.content["best"] = {
                "metric": recipe.metric,
                "epoch": progress.best_epoch,
                "subset": recipe.valid_subsets[0],
                "scores": {recipe.valid_subsets[0]: progress.best, **progress.at_best},
                "labels": inputs.labels_digest(self._sweep.data),
            }
        self._write_end(active, "failed" if problem else "finished")
        active.lock.close()
        active.line.close()
        seconds = active.content["seconds"]
        ending = f"FAILED: {problem}" if problem else "  ".join(["finished", *validation_parts(progress)])
        print_above(f"{run.label}  {ending}  in {duration(seconds)}")
        self.outcomes[run] = Outcome(run, progress, seconds, problem)

    def _measure(self, active: Active) -> None:
        """Add time, memory and size to the manifest; on a GPU, only the method knows its memory."""
        content, found = active.content, active.usage
        if found is not None:
            content["cpu_seconds"] = round(content.get("cpu_seconds", 0) + found.seconds, 2)
            if self._machine.cpu:
                content["peak_memory_bytes"] = max(content.get("peak_memory_bytes", 0), found.peak_bytes)
        if (size := active.follower.progress.parameters) is not None:
            content["parameters"], content["trainable_parameters"] = size

    @staticmethod
    def _write_end(active: Active, status: str) -> None:
        active.content["seconds"] = round(active.content["seconds"] + time.monotonic() - active.started, 3)
        active.content |= {"status": status, "ended": provenance.now()}
        if active.follower.progress.precision is not None:
            active.content["precision"] = active.follower.progress.precision
        manifest.write(active.training.run.folder, active.content)

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
                self._measure(active)
                self._write_end(active, "interrupted")
            except (UserError, OSError) as error:
                ending = f"stopped; {error}"
            active.lock.close()
            active.line.close()
            print_above(f"{active.training.run.label}  {ending}")
        self._active.clear()


def claim(folder: Path) -> IO[str] | None:
    """Lock a run folder for this process and those that inherit the file; None if it is locked already."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = open(folder / LOCK, "a+", encoding="utf-8")  # noqa: SIM115  closed when the run ends
    if not _try_lock(lock, fcntl.LOCK_EX):
        lock.close()
        return None
    lock.truncate(0)
    lock.write(f"{socket.gethostname()}, process {os.getpid()}")
    lock.flush()
    return lock


def _holder(folder: Path) -> str | None:
    """The process that has locked a run folder; None if it is not locked."""
    try:
        lock = open(folder / LOCK, encoding="utf-8")  # noqa: SIM115  closed below
    except FileNotFoundError:
        return None
    with lock:
        return None if _try_lock(lock, fcntl.LOCK_SH) else lock.read() or "another process"


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


@contextlib.contextmanager
def _signals(handler: Any) -> Iterator[None]:
    """Handle the signals that stop a command; SIGTERM and SIGHUP as SIGINT."""
    # nohup starts a command with SIGHUP ignored, and it must stay ignored. SIGINT is included because a shell
    # starts background jobs with SIGINT ignored.
    numbers = [number for number in STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in (*numbers, signal.SIGINT)}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
