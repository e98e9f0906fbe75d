"""The method `transformers`: the runs of train.sh, trained with the Transformers Trainer.

It uses the same binarized data, recipes, seeds and initializations as the method fairseq, so that one table
compares both: with the same seed, both start from the same weights. Runs are written to OUT/hf/INIT/seedN,
and those of a grid setting to OUT/hf,FLAG=VALUE/INIT/seedN: manifest.json, tensorboard/, train.log,
predictions-*.jsonl of the best epoch, that epoch's model as a from_pretrained folder (model/) and as a
fairseq checkpoint (checkpoint_best.pt), which python -m eval reads. Finished runs are skipped; interrupted
runs resume from their last epoch.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from roberta_small.common.cli import SettingsParser, flags_of, positive_number, split_words
from roberta_small.common.errors import UserError
from roberta_small.common.files import shown_path
from roberta_small.common.run import Run, State
from roberta_small.experiments import experiment, plan, provenance, report
from roberta_small.experiments.launchers.local import Runner, locked
from roberta_small.experiments.methods.lora.settings import LoraSettings
from roberta_small.experiments.methods.transformers.run_folder import (
    CHECKPOINTS,
    add_measured,
    last_checkpoint,
    versions,
)
from roberta_small.experiments.plan import Job, Planned
from roberta_small.experiments.settings import TrainSettings, add_sweep, sweep_settings

EXAMPLES = """examples:
  ./train.sh --method transformers --data data/books/bin --pretrained pretrained/fr/model.pt
  ./train.sh --method transformers --data data/books/bin --inits random --seeds 1 2 3 4 5 --precision auto
  ./train.sh --method transformers --data demo/reviews --inits random --recipe sample -- --max-epoch 2
  ./train.sh --method transformers --data data/books/bin --grid lr=1e-5,1e-4
  python -m analysis compare demo/runs --groups hf/random fairseq/random
"""


@dataclass(frozen=True)
class Variant:
    """How the runs of a method differ from full fine-tuning with the recipe."""

    command: tuple[str, ...]
    """The command as a user types it: `./train.sh --method transformers`."""
    lora: LoraSettings | None = None
    """Adapters to train; None for full fine-tuning."""
    defaults: tuple[str, ...] = ()
    """Flags that replace those of the recipe, unless the user gives others."""

    @property
    def words(self) -> list[str]:
        """Command-line options of LoRA, for the user and for the process of a run."""
        return [] if self.lora is None else self.lora.words()

    @property
    def flags(self) -> list[str]:
        """The same for `recipe_flags` of the manifest; prefixed, because recipes have a `--dropout` too."""
        return [word.replace("--", "--lora-", 1) if word[:2] == "--" else word for word in self.words]


class Transformers:
    """Full fine-tuning with the Transformers Trainer (see `experiments.methods.Method`)."""

    name = "transformers"
    summary = "the Transformers Trainer, on the same data and recipes"

    def add_arguments(self, parser: SettingsParser) -> None:
        """Add the options of a sweep, --precision and --lr."""
        parser.description, parser.epilog = __doc__, EXAMPLES
        add_arguments(parser, arm="hf")

    def train(self, options: argparse.Namespace) -> int:
        """Train the runs and return the exit code."""
        return train(settings_of(options), Variant(("./train.sh", "--method", "transformers")))


METHOD = Transformers()


def add_arguments(
    parser: SettingsParser, *, arm: str, inits: str | None = None, lr: float | None = None
) -> None:
    """Add the options of a sweep, --precision and --lr, with the defaults of a method."""
    add_sweep(parser, arm=arm, inits=inits)
    parser.add_argument(
        "--precision",
        choices=("auto", "fp32", "bf16"),
        help="precision of the matrix products (default: as in the recipe)",
    )
    default = "as in the recipe" if lr is None else f"{lr:g}"
    parser.add_argument("--lr", type=positive_number, help=f"learning rate (default: {default})")


def settings_of(options: argparse.Namespace) -> TrainSettings:
    """The settings of the sweep, with --precision and --lr added to the flags of the recipe.

    Raises `UserError` if one of the two is also given in --grid or after `--`.
    """
    after = flags_of(options.passthrough)
    grid = split_words(options.grid or "")
    flags = []
    for name in ("precision", "lr"):
        value = getattr(options, name)
        if value is None:
            continue
        if f"--{name}" in after:
            raise UserError(f"--{name} {value} is also set after --; keep one of them")
        if any(word.partition("=")[0] in (name, f"--{name}") for word in grid):
            raise UserError(f"--{name} {value} is also in --grid; keep one of them")
        flags += [f"--{name}", str(value)]
    settings = sweep_settings(options)
    return replace(settings, passthrough=(*settings.passthrough, *flags))


def train(settings: TrainSettings, variant: Variant, then: Callable[[Path], None] | None = None) -> int:
    """Train all runs of a sweep and return the exit code.

    Planning, processes, locking, progress and manifests are those of the method fairseq. `then` is called
    with the folder of each run after the summary. Raises `UserError` before anything is started.
    """
    from roberta_small.experiments.methods.transformers.initial import check
    from roberta_small.experiments.methods.transformers.recipe import parse

    sweep = experiment.checked(settings, (), variant.defaults)
    for arm in sweep.recipes:
        for init, checkpoint in sweep.inits.items():
            words = sweep.flags(sweep.recipe_of(arm, init))
            check(parse(str(settings.data), words), checkpoint, variant.lora)
    machine = provenance.machine(settings.device, settings.jobs, len(sweep.runs))

    def identity(run: Run) -> dict[str, Any]:
        known = sweep.identity(run)
        return known | {"recipe_flags": [*known["recipe_flags"], *variant.flags]}

    def job_of(run: Run) -> Job:
        recipe = sweep.recipe_of(run.arm, run.init)
        planned = resumable(plan.inspect(run, identity(run), recipe))
        # Without its checkpoint in the command, the architecture of random weights must be.
        added = sweep.architecture_flags(run.arm, run.init) if run.checkpoint is None else ()
        shown = replace(settings, passthrough=(*settings.passthrough, *added))
        return build(planned, shown, variant, sweep.flags(recipe), cpu=machine.cpu)

    if settings.dry_run:
        return report.dry_run([job_of(run) for run in sweep.runs], machine, sweep.notes())
    with locked(settings.out) as lock:
        jobs = [job_of(run) for run in sweep.runs]
        report.plan_table(jobs, sweep.notes())
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
    code = report.summary(jobs, outcomes, sweep.recipe, out=settings.out)
    if then is not None:
        for job in jobs:
            then(job.planned.run.folder)
    return code


def resumable(planned: Planned) -> Planned:
    """An unfinished run resumes if the Trainer left a complete checkpoint; else it starts from scratch."""
    if planned.state is State.FINISHED:
        return planned
    complete = last_checkpoint(planned.run.folder / CHECKPOINTS) is not None
    return replace(planned, state=State.RESUME if complete else State.NEW)


def build(
    planned: Planned, settings: TrainSettings, variant: Variant, words: Sequence[str], *, cpu: bool
) -> Job:
    """The process that trains a run (train_run.py), and the command that trains only this run.

    `words` are the flags of the recipe.
    """
    run = planned.run
    start = () if run.checkpoint is None else ("--restore-file", str(run.checkpoint.absolute()))
    argv = (
        # -P: the working directory is not searched for modules.
        *(sys.executable, "-P", "-m", "roberta_small.experiments.methods.transformers.train_run"),
        str(settings.data.absolute()),
        *("--seed", str(run.seed), "--save-dir", str(run.folder.absolute())),
        *start,
        *(("--resume",) if planned.state is State.RESUME else ()),
        *(("--cpu",) if cpu else ()),
        *(() if variant.lora is None else ("--lora", *variant.words)),
        *("--recipe", *words),
    )
    given = settings.inits[run.init]
    init = [run.init] if given is None else [f"{run.init}={shown_path(given)}"]
    if run.init == "pretrained" and given is not None:
        init = ["pretrained", "--pretrained", shown_path(given)]
    setting = run.setting
    shown = (
        *variant.command,
        *("--data", shown_path(settings.data), "--inits", *init, "--seeds", str(run.seed)),
        *("--out", shown_path(settings.out), "--arm", settings.arm, "--recipe", settings.recipe),
        *(("--grid", *setting.split(",")) if setting else ()),
        *variant.words,
        *(("--", *settings.passthrough) if settings.passthrough else ()),
    )
    return Job(planned, argv, shown)
