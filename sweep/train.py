"""train.sh: fine-tune from each initialisation with each seed."""

from __future__ import annotations

import importlib.util
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common import manifest
from common.errors import UserError
from common.files import sha256

from . import command, inputs, plan, recipes, record
from .command import Job, shown_path
from .plan import Planned, State
from .progress import duration, read_log, table, tail
from .recipes import Recipe
from .runner import Outcome, Runner, locked
from .settings import TrainSettings


def train(settings: TrainSettings, trainer: Sequence[str] = command.TRAINER) -> int:
    """The sweep, from checks to summary; the exit code. Raises `UserError` before anything starts."""
    require_fairseq()
    recipe = recipes.load(settings.recipe, settings.passthrough)
    files = inputs.classification_files(settings.data, ["train", *recipe.valid_subsets])
    classes = inputs.count_classes(settings.data / "label/dict.txt")
    flags = (*recipe.words, "--num-classes", str(classes))
    for init, checkpoint in settings.inits.items():
        if checkpoint is not None:
            inputs.require_checkpoint(checkpoint, "--pretrained" if init == "pretrained" else "--inits")
    inputs.require_writable(settings.out)
    machine = record.machine(settings.device, settings.jobs)

    data = fingerprint_data(settings.data, files)
    checkpoints = {init: fingerprint_checkpoint(path) for init, path in settings.inits.items()}

    def identity(init: str) -> dict[str, Any]:
        return {"data": data, "checkpoint": checkpoints[init], "recipe_flags": list(flags)}

    def planned_jobs() -> list[Job]:
        runs = plan.runs(settings.out, settings.arm, settings.inits, settings.seeds)
        return [
            command.build(
                plan.inspect(run, identity(run.init), recipe),
                settings.data,
                flags,
                cpu=machine.cpu,
                trainer=trainer,
            )
            for run in runs
        ]

    if settings.dry_run:
        return show_dry_run(planned_jobs(), machine)
    with locked(settings.out) as lock:
        jobs = planned_jobs()
        show_plan(jobs)
        static = record.static(machine)
        runner = Runner(
            slots=settings.jobs,
            machine=machine,
            recipe=recipe,
            record=lambda job: describe(job, recipe) | identity(job.planned.run.init) | static,
            lock=lock,
        )
        outcomes = runner.run([job for job in jobs if job.planned.state is not State.FINISHED])
    return show_summary(jobs, outcomes, recipe)


def require_fairseq() -> None:
    """Raises `UserError` where fairseq is not installed for this interpreter."""
    if importlib.util.find_spec("fairseq_cli") is None:
        raise UserError(
            "fairseq is not installed for this Python; install the project as README.md says, "
            "or name the right interpreter with PYTHON="
        )


def fingerprint_data(data: Path, files: Sequence[str]) -> dict[str, Any]:
    """The manifest's `data`."""
    return {"path": shown_path(data), "sha256": inputs.digests(data, files)}


def fingerprint_checkpoint(path: Path | None) -> dict[str, Any] | None:
    """The manifest's `checkpoint`."""
    return None if path is None else {"path": shown_path(path), "sha256": sha256(path)}


def describe(job: Job, recipe: Recipe) -> dict[str, Any]:
    """The keys of a manifest that say which run this is."""
    run = job.planned.run
    return {
        "schema": manifest.SCHEMA,
        "arm": run.arm,
        "init": run.init,
        "seed": run.seed,
        "recipe": recipe.name,
        "command": list(job.shown),
    }


def show_plan(jobs: Sequence[Job]) -> None:
    """The table before the start."""
    planned: list[Planned] = [job.planned for job in jobs]
    print(table(["init", "seed", "state"], [[p.run.init, str(p.run.seed), p.intention] for p in planned]))
    if all(p.state is State.FINISHED for p in planned):
        print("All runs are finished: nothing to do.")
    print(flush=True)


def show_dry_run(jobs: Sequence[Job], machine: record.Machine) -> int:
    """The plan and the commands, with nothing started."""
    show_plan(jobs)
    variables = " ".join(f"{name}={value}" for name, value in command.environment(machine.threads).items())
    print(f"export {variables}")
    for job in jobs:
        if job.planned.state is not State.FINISHED:
            print(f"\n# {job.planned.run.name}\n{shlex.join(job.shown)}")
    return 0


def show_summary(jobs: Sequence[Job], outcomes: Sequence[Outcome], recipe: Recipe) -> int:
    """The table at the end and what is known of each failure; the exit code."""
    ended = {outcome.run: outcome for outcome in outcomes}
    rows = []
    for run in (job.planned.run for job in jobs):
        outcome = ended.get(run)
        progress = outcome.progress if outcome else read_log(run.folder / plan.LOG, recipe)
        rows.append(
            [
                run.init,
                str(run.seed),
                "failed" if outcome and outcome.problem else "finished",
                str(progress.epoch),
                "-" if progress.best is None else f"{progress.best:.4g}",
                "-" if progress.best_epoch is None else str(progress.best_epoch),
                duration(outcome.seconds) if outcome else "skipped",
            ]
        )
    print(
        "\n"
        + table(["init", "seed", "status", "epochs", f"best valid {recipe.metric}", "at epoch", "time"], rows)
    )
    failures = [outcome for outcome in outcomes if outcome.problem]
    for outcome in failures:
        show_failure(outcome)
    return 1 if failures else 0


def show_failure(outcome: Outcome) -> None:
    """The end of a failed run's log."""
    log = outcome.run.folder / plan.LOG
    print(f"\n{outcome.run.name} failed: {outcome.problem}. The end of {shown_path(log)}:")
    for line in tail(log):
        print(f"    {line}")
