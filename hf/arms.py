"""The sweep of an arm that the Transformers Trainer trains: the runs of train.sh with another trainer.

Plan, processes, lock, progress and manifests are the sweep's; this module says which words start a run
(`hf/train_run.py` reads them) and which experiment it is.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common import manifest
from sweep import ROOT, inputs, plan, recipes, record, report
from sweep.command import Job, shown_path
from sweep.plan import Planned, State
from sweep.runner import Runner, locked
from sweep.settings import TrainSettings

from .run_folder import versions

if TYPE_CHECKING:
    from .lora_adapters import LoraSettings

MEASURED, CHECKPOINTS = "measured.json", "trainer"


@dataclass(frozen=True)
class Arm:
    """What a command adds to the sweep."""

    command: tuple[str, ...]
    """As a user types it: `python -m hf finetune`."""
    lora: LoraSettings | None = None

    @property
    def words(self) -> list[str]:
        """For the trainer and the user's line alike."""
        return [] if self.lora is None else self.lora.words()

    @property
    def flags(self) -> list[str]:
        """What makes the experiment another one, as a manifest has it: a recipe has a `--dropout` too."""
        return [word.replace("--", "--lora-", 1) if word[:2] == "--" else word for word in self.words]


def train(settings: TrainSettings, arm: Arm) -> int:
    """The sweep, from checks to summary; the exit code. Raises `UserError` before anything starts."""
    from .initial import check
    from .recipe import parse

    inputs.require_fairseq()
    recipe = recipes.load(settings.recipe, settings.passthrough)
    files = inputs.classification_files(settings.data, ["train", *recipe.valid_subsets])
    classes = inputs.count_classes(settings.data / "label/dict.txt")
    words = (*recipe.words, "--num-classes", str(classes))
    parsed = parse(str(settings.data), words)
    for init, checkpoint in settings.inits.items():
        if checkpoint is not None:
            inputs.require_checkpoint(checkpoint, "--pretrained" if init == "pretrained" else "--inits")
    check(parsed, settings.inits.values(), arm.lora)
    inputs.require_writable(settings.out)
    machine = record.machine(settings.device, settings.jobs, len(settings.inits) * len(settings.seeds))
    data = inputs.fingerprint_data(settings.data, files)
    checkpoints = {init: inputs.fingerprint_checkpoint(path) for init, path in settings.inits.items()}

    def identity(init: str) -> dict[str, Any]:
        flags = [*words, *arm.flags]
        return {"data": data, "checkpoint": checkpoints[init], "recipe_flags": flags}

    def planned_jobs() -> list[Job]:
        runs = plan.runs(settings.out, settings.arm, settings.inits, settings.seeds)
        planned = [resumable(plan.inspect(run, identity(run.init), recipe)) for run in runs]
        return [build(one, settings, arm, words, cpu=machine.cpu) for one in planned]

    if settings.dry_run:
        return report.dry_run(planned_jobs(), machine)
    with locked(settings.out) as lock:
        jobs = planned_jobs()
        report.plan_table(jobs)
        static = record.static(machine)
        static["packages"] |= versions()
        runner = Runner(
            slots=machine.slots,
            machine=machine,
            recipe=recipe,
            record=lambda job: record.describe(job, recipe) | identity(job.planned.run.init) | static,
            lock=lock,
        )
        try:
            outcomes = runner.run([job for job in jobs if job.planned.state is not State.FINISHED])
        finally:
            for job in jobs:
                add_measured(job.planned.run.folder)
    return report.summary(jobs, outcomes, recipe)


def resumable(planned: Planned) -> Planned:
    """An unfinished run goes on where Trainer left a whole checkpoint (its state is written last)."""
    if planned.state is State.FINISHED:
        return planned
    whole = any((planned.run.folder / CHECKPOINTS).glob("checkpoint-*/trainer_state.json"))
    return replace(planned, state=State.RESUME if whole else State.NEW)


def build(planned: Planned, settings: TrainSettings, arm: Arm, words: Sequence[str], *, cpu: bool) -> Job:
    """The job of a run: the process that trains it, and the line that a user would type for it alone."""
    run = planned.run
    path = filter(None, [os.environ.get("PYTHONPATH")])
    start = () if run.checkpoint is None else ("--restore-file", str(run.checkpoint.absolute()))
    argv = (
        # The rooms are found wherever the command is typed; with -P nothing else of that folder is.
        *("env", f"PYTHONPATH={os.pathsep.join([str(ROOT), *path])}"),
        *(sys.executable, "-P", "-m", "hf.train_run", str(settings.data.absolute())),
        *("--seed", str(run.seed), "--save-dir", str(run.folder.absolute())),
        *start,
        *(("--resume",) if planned.state is State.RESUME else ()),
        *(("--cpu",) if cpu else ()),
        *(() if arm.lora is None else ("--lora", *arm.words)),
        *("--recipe", *words),
    )
    init = run.init if run.checkpoint is None else f"{run.init}={shown_path(run.checkpoint)}"
    if run.init == "pretrained":
        init = f"pretrained --pretrained {shown_path(run.checkpoint)}"
    shown = (
        *arm.command,
        *("--data", shown_path(settings.data), "--inits", *init.split(), "--seeds", str(run.seed)),
        *("--out", shown_path(settings.out), "--arm", settings.arm, "--recipe", settings.recipe),
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
