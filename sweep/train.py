"""train.sh: fine-tune from each initialisation with each seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import command, inputs, plan, recipes, record, report
from .command import Job
from .plan import State
from .runner import Runner, locked
from .settings import TrainSettings


def train(settings: TrainSettings, trainer: Sequence[str] = command.TRAINER) -> int:
    """The sweep, from checks to summary; the exit code. Raises `UserError` before anything starts."""
    inputs.require_fairseq()
    recipe = recipes.load(settings.recipe, settings.passthrough)
    files = inputs.classification_files(settings.data, ["train", *recipe.valid_subsets])
    classes = inputs.count_classes(settings.data / "label/dict.txt")
    flags = (*recipe.words, "--num-classes", str(classes))
    for init, checkpoint in settings.inits.items():
        if checkpoint is not None:
            inputs.require_checkpoint(checkpoint, "--pretrained" if init == "pretrained" else "--inits")
    inputs.require_writable(settings.out)
    machine = record.machine(settings.device, settings.jobs, len(settings.inits) * len(settings.seeds))

    data = inputs.fingerprint_data(settings.data, files)
    checkpoints = {init: inputs.fingerprint_checkpoint(path) for init, path in settings.inits.items()}

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
        return report.dry_run(planned_jobs(), machine)
    with locked(settings.out) as lock:
        jobs = planned_jobs()
        report.plan_table(jobs)
        static = record.static(machine)
        runner = Runner(
            slots=machine.slots,
            machine=machine,
            recipe=recipe,
            record=lambda job: record.describe(job, recipe) | identity(job.planned.run.init) | static,
            lock=lock,
        )
        outcomes = runner.run([job for job in jobs if job.planned.state is not State.FINISHED])
    return report.summary(jobs, outcomes, recipe)
