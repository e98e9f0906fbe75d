"""train.sh: fine-tune with fairseq from each initialization with each seed and grid setting."""

from __future__ import annotations

from collections.abc import Sequence

from roberta_small.experiments import experiment, provenance, report
from roberta_small.experiments.experiment import Experiment
from roberta_small.experiments.launchers.local import Runner, locked
from roberta_small.experiments.launchers.slurm import array
from roberta_small.experiments.methods import fairseq, fairseq_flags
from roberta_small.experiments.settings import TrainSettings


def train(settings: TrainSettings, trainer: Sequence[str] = fairseq.TRAINER) -> int:
    """Check the settings, train the runs and print the summary; returns the exit code.

    Raises `UserError` before the first run is started.
    """
    if settings.slurm is not None:
        array.require_commands()
    sweep = experiment.checked(settings, trainer)
    if settings.passthrough and tuple(trainer) == fairseq.TRAINER:
        fairseq_flags.check(sweep.flags(sweep.recipe))
    if settings.slurm is not None:
        return array.train(sweep, settings.slurm, settings.device, dry_run=settings.dry_run)
    return _train_here(sweep, settings)


def _train_here(sweep: Experiment, settings: TrainSettings) -> int:
    machine = provenance.machine(settings.device, settings.jobs, len(sweep.runs))
    if settings.dry_run:
        jobs = [sweep.job(run, cpu=machine.cpu) for run in sweep.runs]
        return report.dry_run(jobs, machine, sweep.notes())
    with locked(settings.out) as lock:
        jobs = [sweep.job(run, cpu=machine.cpu) for run in sweep.runs]
        report.plan_table(jobs, sweep.notes())
        static = provenance.static(machine)
        runner = Runner(
            slots=machine.slots,
            machine=machine,
            recipe=sweep.recipe,
            record=lambda job: sweep.record(job) | static,
            lock=lock,
        )
        outcomes = runner.run([job for job in jobs if job.planned.to_train])
    return report.summary(jobs, outcomes, sweep.recipe, out=settings.out)
