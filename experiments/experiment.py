"""The definition of a sweep: its runs and their inputs, the same for all launchers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from roberta_small.common.run import Run, runs
from roberta_small.experiments import checkpoints, checks, grid, inputs, plan, provenance, recipes, run_length
from roberta_small.experiments.methods import architecture, fairseq
from roberta_small.experiments.plan import Job
from roberta_small.experiments.recipes import Recipe
from roberta_small.experiments.settings import TrainSettings


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A sweep whose inputs have been checked and fingerprinted."""

    out: Path
    data: Path
    classes: int
    recipe: Recipe
    """The recipe without grid settings."""
    recipes: dict[str, Recipe]
    """`Run.arm` (method and grid setting) -> the recipe of its runs, without `architecture`."""
    inits: dict[str, Path | None]
    """Name of each initialization -> its checkpoint; None for random weights."""
    seeds: tuple[int, ...]
    data_fingerprint: dict[str, Any]
    checkpoint_fingerprints: dict[str, dict[str, Any] | None]
    trainer: tuple[str, ...]
    """The command that starts fairseq-train."""
    examples: int | None
    """Number in the training set, if known."""
    remarks: tuple[str, ...] = ()
    """About the settings and converted checkpoints, for the plan."""
    architecture: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    """`Run.arm` -> `Run.init` -> flags of the initial checkpoint's architecture that the recipe lacks."""
    architecture_notes: dict[str, list[str]] = field(default_factory=dict)
    """`Run.arm` -> lines for the plan."""

    @property
    def runs(self) -> list[Run]:
        """Every run, in the order of the settings."""
        return [run for arm in self.recipes for run in runs(self.out, arm, self.inits, self.seeds)]

    def recipe_of(self, arm: str, init: str) -> Recipe:
        """The recipe of the runs of an arm and an initialization."""
        return self.recipes[arm].replace(self.architecture_flags(arm, init))

    def architecture_flags(self, arm: str, init: str) -> Sequence[str]:
        """The words of `architecture` for an arm and an initialization."""
        return self.architecture.get(arm, {}).get(init, ())

    def job(self, run: Run, *, cpu: bool) -> Job:
        """The run with its state and its command; raises `UserError` as `plan.inspect` does."""
        recipe = self.recipe_of(run.arm, run.init)
        planned = plan.inspect(run, self.identity(run), recipe)
        return fairseq.build(planned, self.data, self.flags(recipe), cpu=cpu, trainer=self.trainer)

    def record(self, job: Job) -> dict[str, Any]:
        """The keys of a run's manifest that do not depend on where it is trained."""
        return provenance.describe(job, self.recipe) | self.identity(job.planned.run)

    def identity(self, run: Run) -> dict[str, Any]:
        """The manifest keys for the data, the initial checkpoint and the recipe of a run."""
        return {
            "data": self.data_fingerprint,
            "checkpoint": self.checkpoint_fingerprints[run.init],
            "recipe_flags": self.flags(self.recipe_of(run.arm, run.init)),
        }

    def notes(self) -> list[str]:
        """Remarks, length and architecture of the runs, class weights, and what is unusual; for the plan."""
        notes: dict[str, list[str]] = {}
        for arm, recipe in self.recipes.items():
            length = run_length.length(recipe, self.examples)
            found = [] if length is None else [length.describe(), *length.warnings()]
            found += [*checks.notes(recipe, length), *self.architecture_notes.get(arm, ())]
            for note in found:
                notes.setdefault(note, []).append(arm)
        return [*self.remarks] + [
            note if len(arms) == len(self.recipes) else f"{', '.join(arms)}: {note}"
            for note, arms in notes.items()
        ]

    def flags(self, recipe: Recipe) -> list[str]:
        """The flags of fairseq-train that are the same for all runs with this recipe."""
        return [*recipe.words, "--num-classes", str(self.classes)]


def checked(settings: TrainSettings, trainer: Sequence[str], defaults: Sequence[str] = ()) -> Experiment:
    """Check the inputs of the settings and return the experiment.

    `defaults` are flags of the method that replace those of the recipe file (`grid.variants`). Raises
    `UserError` if fairseq, the recipe, the data, a checkpoint or the output folder cannot be used.
    """
    inputs.require_fairseq()
    defaults = (*defaults, *inputs.special_token_flags(settings.data))
    recipe = recipes.load(settings.recipe, (*defaults, *settings.passthrough))
    variants = grid.variants(settings.arm, settings.recipe, settings.passthrough, settings.grid, defaults)
    files = inputs.classification_files(settings.data, ["train", *recipe.valid_subsets])
    classes = inputs.class_names(settings.data / "label/dict.txt")
    inputs.require_writable(settings.out)
    initial = checkpoints.resolve_all(settings.inits, settings.data)
    paths = {init: None if found is None else found.path for init, found in initial.items()}
    settings = replace(settings, inits=paths)
    conversions = [f"{init}: {found.note}" for init, found in initial.items() if found and found.note]
    examples = run_length.count_examples(settings.data)

    def complete(recipe: Recipe) -> Recipe:
        return checks.complete(run_length.resolve(recipe, examples), settings.data, classes)

    resolved = {variant.arm: complete(variant.recipe) for variant in variants}
    fitted = _fit(settings, resolved, trainer, classes)
    return Experiment(
        out=settings.out,
        data=settings.data,
        classes=len(classes),
        recipe=complete(recipe),
        recipes=resolved,
        inits=settings.inits,
        seeds=settings.seeds,
        data_fingerprint=inputs.fingerprint_data(settings.data, files),
        checkpoint_fingerprints={
            init: None if found is None else found.fingerprint() for init, found in initial.items()
        },
        trainer=tuple(trainer),
        examples=examples,
        remarks=(*settings.notes, *conversions),
        architecture=fitted.flags,
        architecture_notes=fitted.notes,
    )


def _fit(
    settings: TrainSettings, resolved: dict[str, Recipe], trainer: Sequence[str], classes: Sequence[str]
) -> architecture.Fit:
    """The architecture of the initial checkpoints, unless a trainer other than fairseq-train reads them.

    Methods without a trainer import fairseq themselves.
    """
    if tuple(trainer) not in ((), fairseq.TRAINER):
        return architecture.Fit()
    places = architecture.places_of(settings.recipe, settings.passthrough, settings.grid)
    return architecture.fit(resolved, places, settings.inits, classes=classes, separate=bool(trainer))
