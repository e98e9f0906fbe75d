"""A task of a job array: trains one run on a node with the local launcher's `Runner`.

The submitting machine writes an `Assignment` as JSON. The only inputs of a task are this file and its index
(SLURM_ARRAY_TASK_ID), so that no name of a run passes through a shell.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from roberta_small.common.errors import UserError
from roberta_small.common.files import atomic_write, sha256
from roberta_small.common.run import Run, State
from roberta_small.experiments import provenance
from roberta_small.experiments.experiment import Experiment
from roberta_small.experiments.launchers.local import Runner, locked
from roberta_small.experiments.recipes import Recipe

FOLDER = ".slurm"
"""The folder below OUT with assignments, the output of tasks, and locks."""
INDEX = "SLURM_ARRAY_TASK_ID"
LOCK_SECONDS = 120.0
"""How long to wait for a lock: a file server releases the locks of a dead node when its lease expires (NFSv4:
after 90 seconds by default)."""


@dataclass(frozen=True)
class Assignment:
    """A submission: its experiment and the run of each task."""

    experiment: Experiment
    directory: Path
    """Working directory of train.sh, to which relative paths refer."""
    device: str
    threads: int
    runs: tuple[tuple[str, str, int], ...]
    """`arm`, `init` and `seed` of the run of each task."""

    def run(self, index: int) -> Run:
        """The run of the task with this index."""
        arm, init, seed = self.runs[index]
        sweep = self.experiment
        return Run.below(sweep.out, arm, init, seed, sweep.inits[init])


def write(path: Path, assignment: Assignment) -> None:
    """Write an assignment as JSON."""
    atomic_write(path, json.dumps(asdict(assignment), default=str, indent=1) + "\n")


def read(path: Path) -> Assignment:
    """Read an assignment; raises `UserError` if the file has another format."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        sweep = content["experiment"]
        return Assignment(
            experiment=Experiment(
                **sweep
                | {
                    "out": Path(sweep["out"]),
                    "data": Path(sweep["data"]),
                    "recipe": _recipe(sweep["recipe"]),
                    "recipes": {arm: _recipe(recipe) for arm, recipe in sweep["recipes"].items()},
                    "inits": {init: text and Path(text) for init, text in sweep["inits"].items()},
                    "seeds": tuple(sweep["seeds"]),
                    "trainer": tuple(sweep["trainer"]),
                }
            ),
            directory=Path(content["directory"]),
            device=content["device"],
            threads=content["threads"],
            runs=tuple((arm, init, seed) for arm, init, seed in content["runs"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(
            f"{path}: not a submission of this version of the project ({type(error).__name__}: {error}); "
            f"cancel its tasks (scancel --name={path.stem}) and submit them again"
        ) from None


def train_task(path: Path, environ: Mapping[str, str]) -> int:
    """Train the run of this task; returns the exit code.

    Raises `UserError` before the run folder is changed.
    """
    index = environ.get(INDEX, "")
    if not index.isdigit():
        raise UserError(
            f"{INDEX} is not set: `task` is an internal command of SLURM jobs; use ./train.sh "
            "--launcher slurm"
        )
    assignment = read(path)
    os.chdir(assignment.directory)
    sweep, run = assignment.experiment, assignment.run(int(index))
    machine = replace(provenance.machine(assignment.device), threads=assignment.threads)
    _require_unchanged(sweep, run)
    # The lock of the folder is shared by all tasks and excludes a local sweep.
    with (
        locked(sweep.out, shared=True),
        locked(sweep.out / FOLDER / run.folder.relative_to(sweep.out), seconds=LOCK_SECONDS) as lock,
    ):
        job = sweep.job(run, cpu=machine.cpu)
        if job.planned.state is State.FINISHED:
            print(f"{run.label} is finished")
            return 0
        static = provenance.static(machine)
        runner = Runner(
            slots=1,
            machine=machine,
            recipe=sweep.recipe,
            record=lambda job: sweep.record(job) | static,
            lock=lock,
        )
        outcomes = runner.run([job])
    return 1 if any(outcome.problem for outcome in outcomes) else 0


def _recipe(content: dict[str, Any]) -> Recipe:
    return Recipe(content["name"], tuple(content["words"]))


def _require_unchanged(sweep: Experiment, run: Run) -> None:
    """Raise `UserError` if an input file has changed since the submission, which may be days ago."""
    digests = {sweep.data / name: digest for name, digest in sweep.data_fingerprint["sha256"].items()}
    if run.checkpoint is not None:
        digests[run.checkpoint] = (sweep.checkpoint_fingerprints[run.init] or {})["sha256"]
    for path, digest in digests.items():
        if sha256(path) != digest:
            raise UserError(f"{path}: has changed since the job was submitted; submit it again")
