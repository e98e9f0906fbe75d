"""train.sh --launcher slurm: a sweep as a job array, with one task for each unfinished run.

    OUT/.slurm/NAME.json   the runs of a submission (`task.Assignment`); NAME is the name of its job
    OUT/.slurm/17_3.out    output of task 3 of job 17
    OUT/.slurm/ARM/...     locks, so that only one task at a time trains a run

`queue` reads from SLURM which runs are queued, and waits for them.
"""

from __future__ import annotations

import os
import secrets
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from roberta_small.common.errors import UserError
from roberta_small.common.files import shown_path
from roberta_small.common.run import Run, State
from roberta_small.experiments import report
from roberta_small.experiments.experiment import Experiment
from roberta_small.experiments.launchers.local import locked
from roberta_small.experiments.launchers.slurm import queue
from roberta_small.experiments.launchers.slurm import task as slurm_task
from roberta_small.experiments.launchers.slurm.queue import Task
from roberta_small.experiments.launchers.slurm.settings import Slurm
from roberta_small.experiments.launchers.slurm.task import FOLDER, Assignment
from roberta_small.experiments.plan import Job
from roberta_small.experiments.provenance import Machine

require_commands = queue.require_commands
Key = tuple[str, str, int]
"""`arm`, `init` and `seed` of a run."""


@dataclass(frozen=True)
class Queued:
    """The task of a queued run, and the experiment that it was submitted with."""

    task: Task
    experiment: Experiment


def train(sweep: Experiment, slurm: Slurm, device: str, *, dry_run: bool) -> int:
    """Plan the sweep, submit its unfinished runs and wait for them; returns the exit code.

    Raises `UserError` before a job is submitted.
    """
    if device == "auto":  # resolved here, so that all runs of the sweep use the same device
        device = "cuda" if slurm.gpus else "cpu"
    gpus = ("of the node",) if device == "cuda" else ()
    folder, name = sweep.out.absolute() / FOLDER, _new_name()
    if dry_run:
        jobs = _plan(sweep, _in_queue(folder), cpu=device == "cpu")
        report.dry_run(jobs, Machine(gpus, slurm.cpus), sweep.notes())
        if count := sum(job.planned.to_train for job in jobs):
            words = ["sbatch", *_options(slurm, name, folder, count)]
            print(
                f"\n# submitted as one job array:\n{shlex.join(words)} <<'END'\n{_script(folder / name)}END"
            )
        return 0
    with locked(sweep.out, shared=True):
        with locked(folder):
            queued = _in_queue(folder)
            jobs = _plan(sweep, queued, cpu=device == "cpu")
            report.plan_table(jobs, sweep.notes())
            new = [job for job in jobs if job.planned.to_train]
            if new:
                assignment = Assignment(
                    sweep, Path.cwd(), device, slurm.cpus, tuple(_key(job.planned.run) for job in new)
                )
                _submit(slurm, folder, name, assignment)
        watched = {(name, index): job for index, job in enumerate(new)}
        watched |= {
            queued[_key(job.planned.run)].task: job for job in jobs if job.planned.state is State.QUEUED
        }
        if not slurm.wait:
            if watched:
                print(
                    "To wait for the tasks and print the final table, run the same command without --no-wait."
                )
            return 0
        outcomes = queue.watch(watched, folder)
    return report.summary(jobs, outcomes, sweep.recipe, out=sweep.out)


def _plan(sweep: Experiment, queued: Mapping[Key, Queued], *, cpu: bool) -> list[Job]:
    """The job of every run with its state; raises `UserError` if a run is queued in another experiment."""
    jobs = []
    for run in sweep.runs:
        job, entry = sweep.job(run, cpu=cpu), queued.get(_key(run))
        if entry is not None and job.planned.to_train:
            if _digests(entry.experiment.identity(run)) != _digests(sweep.identity(run)):
                raise UserError(
                    f"{run.folder}: already queued with other data, another checkpoint or another recipe; "
                    f"cancel it (scancel --name={entry.task[0]}), or choose another --out"
                )
            job = replace(job, planned=replace(job.planned, state=State.QUEUED))
        jobs.append(job)
    return jobs


def _in_queue(folder: Path) -> dict[Key, Queued]:
    """The runs below `folder` that are waiting in the queue or being trained."""
    names = [path.stem for path in folder.glob("*.json")]
    active = [task for task, entry in queue.entries(names).items() if not entry.ended]
    assignments = {name: slurm_task.read(folder / f"{name}.json") for name in {name for name, _ in active}}
    return {
        assignments[name].runs[index]: Queued((name, index), assignments[name].experiment)
        for name, index in active
    }


def _digests(identity: dict[str, Any]) -> tuple[Any, ...]:
    checkpoint = identity["checkpoint"] or {}
    return identity["data"]["sha256"], checkpoint.get("sha256"), identity["recipe_flags"]


def _key(run: Run) -> Key:
    return run.arm, run.init, run.seed


def _submit(slurm: Slurm, folder: Path, name: str, assignment: Assignment) -> None:
    path, count = folder / f"{name}.json", len(assignment.runs)
    slurm_task.write(path, assignment)
    try:
        job = queue.submit(_options(slurm, name, folder, count), _script(folder / name))
    except UserError:
        path.unlink()
        raise
    print(
        f"Submitted {count} {'run' if count == 1 else 'runs'} as job {job}; "
        f"output of the tasks: {shown_path(folder)}/{job}_*.out\n",
        flush=True,
    )


def _new_name() -> str:
    return f"sweep-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"


def _options(slurm: Slurm, name: str, folder: Path, count: int) -> list[str]:
    """The options of sbatch for an array of `count` tasks."""
    requested = {
        "--partition": slurm.partition,
        "--time": slurm.time,
        "--mem": slurm.memory,
        "--gres": f"gpu:{slurm.gpus}" if slurm.gpus else None,
    }
    return [
        f"--job-name={name}",
        f"--array=0-{count - 1}" + (f"%{slurm.throttle}" if slurm.throttle else ""),
        *("--nodes=1", "--ntasks=1", f"--cpus-per-task={slurm.cpus}"),
        *(f"{flag}={value}" for flag, value in requested.items() if value is not None),
        # A run resumes from its last checkpoint, so a task may be preempted and requeued at any time.
        *("--requeue", "--open-mode=append"),
        *(f"--chdir={folder}", f"--output={_escaped(folder)}/%A_%a.out"),
        *slurm.extra,
    ]


def _escaped(folder: Path) -> str:
    """Escape a folder for SLURM's file name patterns, in which `%j` stands for the job id.

    Raises `UserError` for a backslash, which cannot be escaped.
    """
    if "\\" in str(folder):
        raise UserError(f"{folder}: SLURM cannot write to a path with a backslash; choose another --out")
    return str(folder).replace("%", "%%")


def _script(path: Path) -> str:
    """The batch script of a task. It uses `exec`, so that SLURM's signals are sent to Python directly."""
    words: Sequence[str] = (
        *("exec", "env", f"PYTHONPATH={os.environ.get('PYTHONPATH', '')}"),
        *(sys.executable, "-P", "-m", "roberta_small.experiments", "task", f"{path}.json"),
    )
    return f"#!/bin/sh\n{shlex.join(words)}\n"
