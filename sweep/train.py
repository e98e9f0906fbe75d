"""train.sh: fine-tune from each initialisation with each seed and setting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import command, grid, inputs, plan, recipes, record, report
from .command import Job
from .plan import Run, State
from .recipes import Recipe
from .runner import Runner, locked
from .settings import TrainSettings


def train(settings: TrainSettings, trainer: Sequence[str] = command.TRAINER) -> int:
    """The sweep, from checks to summary; the exit code. Raises `UserError` before anything starts."""
    inputs.require_fairseq()
    recipe = recipes.load(settings.recipe, settings.passthrough)
    variants = grid.variants(settings.arm, settings.recipe, settings.passthrough, settings.grid)
    files = inputs.classification_files(settings.data, ["train", *recipe.valid_subsets])
    classes = inputs.count_classes(settings.data / "label/dict.txt")
    for init, checkpoint in settings.inits.items():
        if checkpoint is not None:
            inputs.require_checkpoint(checkpoint, "--pretrained" if init == "pretrained" else "--inits")
    inputs.require_writable(settings.out)
    count = len(variants) * len(settings.inits) * len(settings.seeds)
    machine = record.machine(settings.device, settings.jobs, count)

    data = inputs.fingerprint_data(settings.data, files)
    checkpoints = {init: inputs.fingerprint_checkpoint(path) for init, path in settings.inits.items()}

    def flags(recipe: Recipe) -> list[str]:
        return [*recipe.words, "--num-classes", str(classes)]

    def identity(init: str, recipe: Recipe) -> dict[str, Any]:
        return {"data": data, "checkpoint": checkpoints[init], "recipe_flags": flags(recipe)}

    def planned_job(run: Run, recipe: Recipe) -> Job:
        planned = plan.inspect(run, identity(run.init, recipe), recipe)
        return command.build(planned, settings.data, flags(recipe), cpu=machine.cpu, trainer=trainer)

    def planned_jobs() -> list[Job]:
        return [
            planned_job(run, variant.recipe)
            for variant in variants
            for run in plan.runs(settings.out, variant.arm, settings.inits, settings.seeds)
        ]

    if settings.dry_run:
        return report.dry_run(planned_jobs(), machine)
    with locked(settings.out) as lock:
        jobs = planned_jobs()
        report.plan_table(jobs)
        static = record.static(machine)
        runner = Runner(
            slots=machine.slots,
            machine=machine,
            recipe=recipe,
            record=lambda job: (
                record.describe(job, recipe)
                | identity(job.planned.run.init, job.planned.progress.recipe)
                | static
            ),
            lock=lock,
        )
        outcomes = runner.run([job for job in jobs if job.planned.state is not State.FINISHED])
    return report.summary(jobs, outcomes, recipe)
