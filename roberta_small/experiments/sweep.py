"""A sweep: the runs of a command, with everything about them that is decided before the first one starts."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from roberta_small.common import class_weights, manifest
from roberta_small.common.data_folder import find_soft_labels
from roberta_small.common.errors import UserError, count
from roberta_small.common.label_kinds import KIND, KINDS, SINGLE_LABEL, LabelKind
from roberta_small.common.metrics import LOSS, check_selectable, find, logged, lower_is_better
from roberta_small.common.run import Run, split_arm
from roberta_small.experiments.inputs import checkpoints
from roberta_small.experiments.inputs import files as inputs
from roberta_small.experiments.recipe import architecture
from roberta_small.experiments.recipe import length as run_length
from roberta_small.experiments.recipe import recipe as recipes
from roberta_small.experiments.recipe.recipe import Recipe
from roberta_small.experiments.settings import SweepSettings

PACKAGES = ("fairseq-fixed", "fairseq", "torch", "numpy", "omegaconf", "hydra-core", "tensorboard")
"""What decides the result of a run of fairseq-train."""
CRITERION = "sentence_classification"
SMOOTHING, PATIENCE = "--label-smoothing", "--patience"
METRIC, MAXIMIZE = "--best-checkpoint-metric", "--maximize-best-checkpoint-metric"
UNEVEN = 100
"""Ratio of the largest class weight to the smallest one above which the plan contains a warning."""


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
    fits_head: bool = False
    """Whether its head is linear and fitted to the vectors of an encoder without a head, before it starts."""


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
    plugin: bool = True,
    fit: bool = True,
) -> Sweep:
    """Check the inputs of a method that fine-tunes classifiers on binarized data; returns its sweep.

    data: the data folder.
    defaults: flags of the method that replace those of the recipe file.
    recorded: words that are part of `recipe_flags` in addition to the flags of the recipe.
    packages: recorded in addition to `PACKAGES`.
    plugin: whether the trainer is fairseq, which has --pooling mean and the probabilities of soft labels.
    fit: whether the runs have the architecture of the initial checkpoints.
    Raises `UserError` if fairseq, the recipe, the data, a checkpoint or the output folder cannot be used.
    """
    inputs.require_fairseq()
    kind = inputs.label_kind(data)
    logged_here = {LOSS, *(metric.name for metric in logged(kind.name))}
    extra = (
        *defaults,
        *inputs.special_token_flags(data),
        *inputs.subset_flags(data),
        *(() if recipes.load(settings.recipe).metric in logged_here else (METRIC, kind.metric)),
        *settings.passthrough,
    )
    recipe = recipes.load(settings.recipe, extra)
    files = inputs.classification_files(data, ["train", *recipe.valid_subsets])
    classes = inputs.class_names(data / "label/dict.txt") if kind.has_classes else []
    examples = run_length.count_examples(data)
    inputs.require_writable(settings.out)

    def completed(recipe: Recipe) -> Recipe:
        return complete(run_length.resolve(recipe, examples), data, classes, kind)

    inits, notes = settings.initial_weights(data)
    initial = checkpoints.resolve_all(inits, data)
    paths = {init: None if found is None else found.path for init, found in initial.items()}
    prints = {init: None if found is None else found.fingerprint() for init, found in initial.items()}
    # What a run starts from -> the arm and recipe of each setting of the grid, in the same order for both.
    starts = {init: recipes.PRETRAINED if path else recipes.RANDOM for init, path in paths.items()}
    by_start = {}
    for start in dict.fromkeys(starts.values()):
        base = recipes.load(settings.recipe, extra, start)
        variants = recipes.variants(settings.arm, base, settings.grid)
        by_start[start] = [(arm, completed(one)) for arm, one in variants]
    fitted = by_start.get(recipes.PRETRAINED, next(iter(by_start.values())))
    fits = [architecture.Fit() for _ in fitted]
    read: dict[str, architecture.Checkpoint | None] = {}
    if fit and recipes.PRETRAINED in by_start:
        places = architecture.places_of(settings.recipe, settings.passthrough, settings.grid)
        read = {
            init: None if path is None else architecture.read(path, inits[init])
            for init, path in paths.items()
        }
        pairs = (data / "input1").is_dir()
        fits = [
            architecture.fit(one, places, read, classes=classes, kind=kind, pairs=pairs, pools=plugin)
            for _, one in fitted
        ]
    fingerprint = inputs.fingerprint_data(data, files)
    uses_soft = plugin and recipe.value("--criterion") == CRITERION
    headless = {init for init, one in read.items() if one and not (one.head or one.architecture.causal)}
    if find_soft_labels(data, "train") is not None or inputs.lacks_examples(data, classes):
        headless = set()  # a fit needs one label for each text, and texts for each class
    trainings = []
    for number, init in product(range(len(fits)), initial):
        arm, one = by_start[starts[init]][number]
        added = fits[number].flags.get(init, ())
        own = one.replace(added)
        flags = (*own.words, "--num-classes", str(len(classes) or 1), *kind.flags)
        identity: dict[str, Any] = {"data": fingerprint, "checkpoint": prints[init]}
        identity["recipe_flags"] = [*flags, *recorded]
        identity |= {} if kind.exclusive else {KIND: kind.name}
        for seed in settings.seeds:
            run = run_below(settings.out, arm, init, seed, paths[init])
            fits_head = own.flags.get(architecture.HEAD) == architecture.LINEAR and init in headless
            trainings.append(Training(run, own, flags, identity, tuple(added), fits_head))
    majorities = inputs.majorities(data, recipe.valid_subsets, classes, recipe.metric)
    notes += tuple(f"{init}: {found.note}" for init, found in initial.items() if found and found.note)
    of_fits = [(note, arm) for (arm, _), one in zip(fitted, fits, strict=True) for note in one.notes]
    return Sweep(
        settings=settings,
        data=data,
        trainings=tuple(trainings),
        recipe=completed(recipe),
        out=settings.out,
        inits=inits,
        notes=(
            *notes,
            *soft_labels_note(data, used=uses_soft),
            *_plan_notes(by_start, data, examples),
            *_where(of_fits, len(fits), ", "),
            *_majority_note(majorities),
        ),
        majorities=majorities,
        packages=(*PACKAGES, *packages),
    )


def _plan_notes(
    by_start: Mapping[str, Sequence[tuple[str, Recipe]]], data: Path, examples: int | None
) -> list[str]:
    """Length of the runs, class weights, and what is unusual, of each start and setting; for the plan."""
    found, places = [], 0
    for start, variants in by_start.items():
        for arm, recipe in variants:
            names = [arm] * (len(variants) > 1) + [f"from {start} weights"] * (len(by_start) > 1)
            notes = [*run_length.notes(recipe, examples), *run_length.truncation(recipe, data)]
            found += [(note, ", ".join(names)) for note in [*notes, *recipe_notes(recipe, examples)]]
            places += 1
    return _where(found, places, "; ")


def soft_labels_note(data: Path, *, used: bool) -> list[str]:
    """For the plan: whether the probabilities of soft labels are `used`."""
    if find_soft_labels(data, "train") is None:
        return []
    targets = "their probabilities" if used else "the most probable class, as the trainer needs one label"
    return [f"targets of the texts with soft labels: {targets}"]


def _where(notes: Sequence[tuple[str, str]], places: int, separator: str) -> list[str]:
    """Each of the notes once, after the places it is of, unless it is of all of them."""
    found: dict[str, list[str]] = {}
    for note, place in notes:
        found.setdefault(note, []).append(place)
    return [
        note if len(names) == places else f"{separator.join(names)}: {note}" for note, names in found.items()
    ]


def _majority_note(majorities: Mapping[str, inputs.Majority]) -> list[str]:
    """What a classifier reaches without reading the text, for the plan."""
    names = {one.name for one in majorities.values() if one.metric == "accuracy"}
    parts = [
        f"{one.value:.2f} % of {subset}" + (f" ({one.name})" if len(names) > 1 else "")
        for subset, one in majorities.items()
        if names
    ]
    heading = f"majority class: {names.pop()}, " if len(names) == 1 else "majority classes: "
    return [heading + ", ".join(parts)] if parts else []


def complete(
    recipe: Recipe, data: Path, classes: Sequence[str], kind: LabelKind = KINDS[SINGLE_LABEL]
) -> Recipe:
    """The recipe with class weights in numbers and the direction of its metric.

    A changed file of weights is then a changed recipe, and fairseq keeps the checkpoint with the best score.
    Raises `UserError` for wrong class weights, label smoothing or patience, for those that do not apply to
    the kind of labels, and for a metric that is not logged in validation.
    """
    where = f"recipe '{recipe.name}'"
    if recipe.value("--criterion") == CRITERION:
        try:
            check_selectable(recipe.metric, kind.name)
            recipe = _with_weights(recipe, data, classes, kind)
        except UserError as error:
            raise UserError(f"{where}: {error}") from None
    if PATIENCE in recipe.flags and not re.fullmatch(r"-1|[0-9]+", text := recipe.value(PATIENCE) or ""):
        raise UserError(f"{where}: {PATIENCE} {text}: must be a number of validations")
    for flag in (run_length.EVERY, "--save-interval"):
        if recipe.number(flag) == 0:
            raise UserError(f"{where}: {flag} 0: must be a number of epochs from 1")
    if lower_is_better(recipe.metric):
        return recipe.without(MAXIMIZE)
    return recipe if find(recipe.metric) is None else recipe.replace((MAXIMIZE,))


def recipe_notes(recipe: Recipe, examples: int | None) -> list[str]:
    """For the plan: the class weights, rare validations, and that a run may end early."""
    found = []
    interval = recipe.number(run_length.EVERY) or 1
    if interval > 1:
        found.append(f"validated after every {interval} epochs ({run_length.EVERY})")
    value = recipe.value(class_weights.FLAG)
    if value is not None and value != class_weights.NONE and (weights := json.loads(value)):
        found.append(f"class weights: {class_weights.describe(weights)}")
        if max(weights.values()) > UNEVEN * min(weights.values()):
            ratio = max(weights.values()) / min(weights.values())
            found.append(
                f"warning: the largest class weight is {ratio:,.0f} times the smallest one; updates with "
                "examples of rare classes are dominated by them"
            )
    if recipe.patience is not None:
        extreme = "lower" if lower_is_better(recipe.metric) else "higher"
        found.append(
            f"the runs may end early, after {count(recipe.patience, 'validation')} without a {extreme} "
            f"{recipe.metric} ({PATIENCE}); the learning rate follows the schedule of all epochs"
        )
        numbers = run_length.numbers(recipe, examples)
        if numbers is not None and not (run_length.INTERVALS - {run_length.EVERY}) & recipe.flags.keys():
            validations = math.ceil(numbers[0] / numbers[1] / interval)
            if recipe.patience >= validations - 1:
                number = count(validations, "validation")
                found.append(f"warning: {PATIENCE} {recipe.patience} has no effect: a run has {number}")
    return found


def _with_weights(recipe: Recipe, data: Path, classes: Sequence[str], kind: LabelKind) -> Recipe:
    """The recipe with class weights in numbers; checks label smoothing, too."""
    if SMOOTHING in recipe.flags:
        text = recipe.value(SMOOTHING)
        try:
            smoothing = float(text or "")
        except ValueError:
            smoothing = -1.0
        if not 0 <= smoothing < 1:
            raise UserError(f"{SMOOTHING} {text}: must be at least 0 and below 1, such as 0.1")
        if smoothing:
            kind.require_exclusive(SMOOTHING, data)
    flag = class_weights.FLAG
    if flag not in recipe.flags:
        return recipe
    value = recipe.value(flag)
    if value is None or len(recipe.flags[flag]) > 2:
        raise UserError(f"{flag} {' '.join(recipe.flags[flag][1:])}: give balanced, a file, or none")
    if value != class_weights.NONE:
        kind.require_exclusive(flag, data)
    splits = (recipe.value("--train-subset") or "train").split(",")
    weights = class_weights.resolve(value, data, classes, splits)
    return recipe.replace((flag, class_weights.as_value(weights)))
