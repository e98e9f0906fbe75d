"""A sweep: the runs of a command, with everything about them that is decided before the first one starts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from roberta_small.common import manifest
from roberta_small.common.data_folder import find_soft_labels
from roberta_small.common.errors import UserError
from roberta_small.common.files import shown_path
from roberta_small.common.label_kinds import KIND
from roberta_small.common.run import Run, split_arm
from roberta_small.experiments.inputs import checkpoints
from roberta_small.experiments.inputs import files as inputs
from roberta_small.experiments.recipe import architecture, checks, grid
from roberta_small.experiments.recipe import length as run_length
from roberta_small.experiments.recipe import recipe as recipes
from roberta_small.experiments.recipe.recipe import Recipe
from roberta_small.experiments.settings import SweepSettings

PACKAGES = ("fairseq-fixed", "fairseq", "torch", "numpy", "omegaconf", "hydra-core", "tensorboard")
"""What decides the result of a run of fairseq-train."""


@dataclass(frozen=True)
class Training:
    """A run, how it is trained, and what identifies its experiment."""

    run: Run
    recipe: Recipe
    """The recipe of this run: with its grid setting and the architecture of its checkpoint."""
    flags: tuple[str, ...]
    """The words for the trainer: those of the recipe, and what follows from the data."""
    identity: Mapping[str, Any]
    """The manifest keys `data`, `checkpoint` and `recipe_flags`: a run resumes only if they are equal. For
    other labels than one class per text also `label_kind`, which follows from the data."""
    added: tuple[str, ...] = ()
    """Flags of the recipe that are those of the initial checkpoint's architecture."""


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """The runs of a command."""

    settings: Any
    """Those of the method, derived from `experiments.settings.Settings`."""
    data: Path
    """The folder that the runs read."""
    trainings: tuple[Training, ...]
    recipe: Recipe
    """Its name is recorded; its metric and validation subsets are those of all runs."""
    out: Path | None = None
    """The folder of the runs, for tables over seeds; None for a single run."""
    inits: Mapping[str, Path | None] = field(default_factory=dict)
    """Name of each initialization -> the checkpoint as the user wrote it; None for random weights."""
    notes: tuple[str, ...] = ()
    """Lines for the plan."""
    majorities: Mapping[str, inputs.Majority] = field(default_factory=dict)
    """Subset -> its majority class, with which the results are compared."""
    packages: tuple[str, ...] = PACKAGES
    """Packages whose versions the manifests record."""


FORMER_NAMES = {"transformers": "hf", "tfidf": "bow", "lora-causal": "causal-lora"}
"""Method -> the arm under which version 1.0.0 wrote its runs."""


def run_below(out: Path, arm: str, init: str, seed: int, checkpoint: Path | None = None) -> Run:
    """The run of these names in the folder `out`; one with the former name of its method keeps that name."""
    method, setting = split_arm(arm)
    if method in FORMER_NAMES:
        former = ",".join(filter(None, [FORMER_NAMES[method], setting]))
        run = Run.below(out, former, init, seed, checkpoint)
        if manifest.read(run.folder) is not None:
            return run
    return Run.below(out, arm, init, seed, checkpoint)


def classifiers(
    settings: SweepSettings,
    data: Path,
    *,
    defaults: Sequence[str] = (),
    recorded: Sequence[str] = (),
    packages: Sequence[str] = (),
    fit: bool = True,
    pools: bool = True,
    separate: bool = True,
    soft_labels: bool = False,
) -> Sweep:
    """Check the inputs of a method that fine-tunes classifiers on binarized data; returns its sweep.

    data: the data folder.
    defaults: flags of the method that replace those of the recipe file (`grid.variants`).
    recorded: words that are part of `recipe_flags` in addition to the flags of the recipe.
    packages: recorded in addition to `PACKAGES`.
    fit: whether the runs have the architecture of the initial checkpoints.
    pools: whether the method has --pooling mean.
    separate: whether a separate process reads them, because this one has not imported fairseq.
    soft_labels: whether the method trains on the probabilities of soft labels.

    Raises `UserError` if fairseq, the recipe, the data, a checkpoint or the output folder cannot be used.
    """
    inputs.require_fairseq()
    kind = inputs.label_kind(data)
    defaults = (*defaults, *inputs.special_token_flags(data), *inputs.subset_flags(data))
    defaults += checks.metric_flags(kind, settings.recipe)
    recipe = recipes.load(settings.recipe, (*defaults, *settings.passthrough))
    files = inputs.classification_files(data, ["train", *recipe.valid_subsets])
    classes = inputs.label_classes(data)
    inputs.require_writable(settings.out)
    inits, remarks = settings.initial_weights(data)
    initial = checkpoints.resolve_all(inits, data)
    paths = {init: None if found is None else found.path for init, found in initial.items()}
    prints = {init: None if found is None else found.fingerprint() for init, found in initial.items()}
    examples = run_length.count_examples(data)

    def complete(recipe: Recipe) -> Recipe:
        return checks.complete(run_length.resolve(recipe, examples), data, classes, kind)

    def variants(start: str) -> dict[str, Recipe]:
        given = settings.arm, settings.recipe, settings.passthrough, settings.grid
        return {one.arm: complete(one.recipe) for one in grid.variants(*given, defaults, start)}

    starts = {init: recipes.start_of(path) for init, path in paths.items()}
    by_start = {start: variants(start) for start in dict.fromkeys(starts.values())}
    fitted = architecture.Fit()
    if fit and recipes.PRETRAINED in by_start:
        places = architecture.places_of(settings.recipe, settings.passthrough, settings.grid)
        with _named_as_given(paths, inits):
            pairs = (data / "input1").is_dir()
            fitted = architecture.fit(
                by_start[recipes.PRETRAINED],
                places,
                paths,
                classes=classes,
                kind=kind.name,
                pairs=pairs,
                pools=pools,
                separate=separate,
            )
        fitted = architecture.Fit(
            fitted.flags,
            {arm: [_as_given(note, paths, inits) for note in notes] for arm, notes in fitted.notes.items()},
        )
    fingerprint = inputs.fingerprint_data(data, files)

    arms = {start: list(found) for start, found in by_start.items()}

    def training(number: int, init: str, seed: int) -> Training:
        start = starts[init]
        arm = arms[start][number]
        added = fitted.words(arms.get(recipes.PRETRAINED, arms[start])[number], init)
        own = by_start[start][arm].replace(added)
        flags = (*own.words, "--num-classes", str(len(classes) or 1), *kind.flags)
        words = [*flags, *recorded]
        identity: dict[str, Any] = {"data": fingerprint, "checkpoint": prints[init], "recipe_flags": words}
        identity |= {} if kind.exclusive else {KIND: kind.name}
        run = run_below(settings.out, arm, init, seed, paths[init])
        return Training(run, own, flags, identity, tuple(added))

    majorities = inputs.majorities(data, recipe.valid_subsets, classes)
    conversions = [f"{init}: {found.note}" for init, found in initial.items() if found and found.note]
    return Sweep(
        settings=settings,
        data=data,
        trainings=tuple(
            training(number, init, seed)
            for number in range(len(arms[starts[next(iter(paths))]]))
            for init in paths
            for seed in settings.seeds
        ),
        recipe=complete(recipe),
        out=settings.out,
        inits=inits,
        notes=(
            *remarks,
            *conversions,
            *soft_labels_note(data, used=soft_labels and recipe.value("--criterion") == checks.CRITERION),
            *_notes(by_start, data, examples, fitted.notes),
            *_majority_note(majorities),
        ),
        majorities=majorities,
        packages=(*PACKAGES, *packages),
    )


def _as_given(text: str, paths: Mapping[str, Path | None], inits: Mapping[str, Path | None]) -> str:
    """A message with the checkpoints as the user wrote them, not as files of a cache."""
    for init, path in paths.items():
        given = inits[init]
        if path is not None and given is not None:
            text = text.replace(str(path), str(given)).replace(shown_path(path), shown_path(given))
    return text


@contextlib.contextmanager
def _named_as_given(paths: Mapping[str, Path | None], inits: Mapping[str, Path | None]) -> Iterator[None]:
    """Apply `_as_given` to the message of a `UserError`."""
    try:
        yield
    except UserError as error:
        raise UserError(_as_given(str(error), paths, inits)) from None


def _majority_note(majorities: Mapping[str, inputs.Majority]) -> list[str]:
    """What a classifier reaches without reading the text, for the plan."""
    names = {one.name for one in majorities.values()}
    parts = [
        f"{one.percent:.2f} % of {subset}" + (f" ({one.name})" if len(names) > 1 else "")
        for subset, one in majorities.items()
    ]
    heading = f"majority class: {names.pop()}, " if len(names) == 1 else "majority classes: "
    return [heading + ", ".join(parts)] if parts else []


def soft_labels_note(data: Path, *, used: bool) -> list[str]:
    """For the plan: whether the probabilities of soft labels are `used`."""
    if find_soft_labels(data, "train") is None:
        return []
    targets = "their probabilities" if used else "the most probable class, as the trainer needs one label"
    return [f"targets of the texts with soft labels: {targets}"]


def _notes(
    by_start: Mapping[str, Mapping[str, Recipe]],
    data: Path,
    examples: int | None,
    architectures: Mapping[str, Sequence[str]],
) -> list[str]:
    """Length and architecture of the runs, class weights, and what is unusual; for the plan."""
    notes: dict[str, list[str]] = {}
    names = []
    for start, by_arm in by_start.items():
        for arm, recipe in by_arm.items():
            parts = [arm] * (len(by_arm) > 1) + [f"from {start} weights"] * (len(by_start) > 1)
            names.append(", ".join(parts))
            length = run_length.length(recipe, examples)
            found = [] if length is None else [length.describe(), *length.warnings()]
            found += [*run_length.truncation(recipe, data), *checks.notes(recipe, length)]
            for note in found:
                notes.setdefault(note, []).append(names[-1])
    everywhere = len(names)
    told = [
        note if len(found) == everywhere else f"{'; '.join(found)}: {note}" for note, found in notes.items()
    ]
    fitted: dict[str, list[str]] = {}
    for arm, lines in architectures.items():
        for note in lines:
            fitted.setdefault(note, []).append(arm)
    return told + [
        note if len(found) == len(architectures) else f"{', '.join(found)}: {note}"
        for note, found in fitted.items()
    ]
