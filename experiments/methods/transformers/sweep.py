"""The sweep of an arm that the Transformers Trainer trains: the runs of train.sh with another trainer.

Plan, processes, lock, progress and manifests are the sweep's; this module says which words start a run
(`experiments/methods/transformers/train_run.py` reads them) and which experiment it is.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common import manifest
from common.files import shown_path
from common.run import Run, State

from ... import ROOT, experiment, plan, provenance, report
from ...launchers.local import Runner, locked
from ...plan import Job, Planned
from ...settings import TrainSettings
from .run_folder import versions

if TYPE_CHECKING:
    from ..lora.adapters import LoraSettings


MEASURED, CHECKPOINTS = "measured.json", "trainer"


@dataclass(frozen=True)
class Arm:
    """What a command adds to the sweep."""

    command: tuple[str, ...]
    """As a user types it: `./train.sh --method transformers`."""
    lora: LoraSettings | None = None
    defaults: tuple[str, ...] = ()
    """Flags that it has instead of the recipe's where nobody says otherwise."""

    @property
    def words(self) -> list[str]:
        """For the trainer and the user's line alike."""
        return [] if self.lora is None else self.lora.words()

    @property
    def flags(self) -> list[str]:
        """What makes the experiment another one, as a manifest has it: a recipe has a `--dropout` too."""
        return [word.replace("--", "--lora-", 1) if word[:2] == "--" else word for word in self.words]


def train(settings: TrainSettings, arm: Arm, then: Callable[[Path], None] | None = None) -> int:
    """The sweep, from checks to summary; the exit code. `then` is called with each run's folder at the end.

    Raises `UserError` before anything starts.
    """
    from .initial import check
    from .recipe import parse

    sweep = experiment.checked(settings, (), arm.defaults)
    for recipe in sweep.recipes.values():
        check(parse(str(settings.data), sweep.flags(recipe)), settings.inits.values(), arm.lora)
    machine = provenance.machine(settings.device, settings.jobs, len(sweep.runs))

    def identity(run: Run) -> dict[str, Any]:
        known = sweep.identity(run)
        return known | {"recipe_flags": [*known["recipe_flags"], *arm.flags]}

    def job(run: Run) -> Job:
        recipe = sweep.recipes[run.arm]
        planned = resumable(plan.inspect(run, identity(run), recipe))
        return build(planned, settings, arm, sweep.flags(recipe), cpu=machine.cpu)

    if settings.dry_run:
        return report.dry_run([job(run) for run in sweep.runs], machine)
    with locked(settings.out) as lock:
        jobs = [job(run) for run in sweep.runs]
        report.plan_table(jobs)
        static = provenance.static(machine)
        static["packages"] |= versions()
        runner = Runner(
            slots=machine.slots,
            machine=machine,
            recipe=sweep.recipe,
            record=lambda job: provenance.describe(job, sweep.recipe) | identity(job.planned.run) | static,
            lock=lock,
        )
        try:
            outcomes = runner.run([job for job in jobs if job.planned.state is not State.FINISHED])
        finally:
            for job in jobs:
                add_measured(job.planned.run.folder)
    code = report.summary(jobs, outcomes, sweep.recipe)
    for job in jobs if then else ():
        then(job.planned.run.folder)
    return code


def resumable(planned: Planned) -> Planned:
    """An unfinished run resumes from the last complete checkpoint of the Trainer."""
    if planned.state is State.FINISHED:
        return planned
    whole = last_checkpoint(planned.run.folder / CHECKPOINTS) is not None
    return replace(planned, state=State.RESUME if whole else State.NEW)


def last_checkpoint(folder: Path) -> Path | None:
    """Trainer's newest whole checkpoint: it writes trainer_state.json last, and a kill may cut that short."""

    def updates(checkpoint: Path) -> int:
        return int(checkpoint.name.rpartition("-")[2])

    for checkpoint in sorted(folder.glob("checkpoint-*"), key=updates, reverse=True):
        try:
            json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        return checkpoint
    return None


def build(planned: Planned, settings: TrainSettings, arm: Arm, words: Sequence[str], *, cpu: bool) -> Job:
    """The job of a run: the process that trains it, and the line that a user would type for it alone."""
    run = planned.run
    path = filter(None, [os.environ.get("PYTHONPATH")])
    start = () if run.checkpoint is None else ("--restore-file", str(run.checkpoint.absolute()))
    argv = (
        # PYTHONPATH and -P: the packages are found from any working directory, and nothing else there is.
        *("env", f"PYTHONPATH={os.pathsep.join([str(ROOT), *path])}"),
        *(
            sys.executable,
            "-P",
            "-m",
            "experiments.methods.transformers.train_run",
            str(settings.data.absolute()),
        ),
        *("--seed", str(run.seed), "--save-dir", str(run.folder.absolute())),
        *start,
        *(("--resume",) if planned.state is State.RESUME else ()),
        *(("--cpu",) if cpu else ()),
        *(() if arm.lora is None else ("--lora", *arm.words)),
        *("--recipe", *words),
    )
    init = [run.init] if run.checkpoint is None else [f"{run.init}={shown_path(run.checkpoint)}"]
    if run.init == "pretrained":
        init = ["pretrained", "--pretrained", shown_path(run.checkpoint)]
    setting = run.setting
    shown = (
        *arm.command,
        *("--data", shown_path(settings.data), "--inits", *init, "--seeds", str(run.seed)),
        *("--out", shown_path(settings.out), "--arm", settings.arm, "--recipe", settings.recipe),
        *(("--grid", *setting.split(",")) if setting else ()),
        *arm.words,
        *(("--", *settings.passthrough) if settings.passthrough else ()),
    )
    return Job(planned, argv, shown)


def add_measured(run: Path) -> None:
    """Put what a finished run measured of itself into its manifest; nothing where that is done or absent."""
    content = manifest.read(run)
    path = run / MEASURED
    if content is None or content["status"] != "finished" or not path.is_file():
        return
    measured = json.loads(path.read_text(encoding="utf-8"))
    if any(content.get(key) != value for key, value in measured.items()):
        manifest.write(run, content | measured)
