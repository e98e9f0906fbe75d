"""Flags of a classifier's recipe that are checked and completed before the first run.

`--class-weights balanced` or a file becomes the weights themselves, so that a run's manifest contains the
numbers and a changed file is a changed recipe. `--maximize-best-checkpoint-metric` follows from the metric:
without it fairseq keeps the checkpoint with the lowest accuracy.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path

from roberta_small.common import class_weights
from roberta_small.common.errors import UserError, count
from roberta_small.common.label_kinds import KINDS, SINGLE_LABEL, LabelKind
from roberta_small.common.metrics import LOSS, check_selectable, find, logged, lower_is_better
from roberta_small.experiments.recipe.length import EVERY, INTERVALS, Length
from roberta_small.experiments.recipe.recipe import Recipe

CRITERION = "sentence_classification"
SMOOTHING, PATIENCE = "--label-smoothing", "--patience"
METRIC, MAXIMIZE = "--best-checkpoint-metric", "--maximize-best-checkpoint-metric"
UNEVEN = 100
"""Ratio of the largest class weight to the smallest one above which the plan contains a warning."""


def metric_flags(kind: LabelKind, recipe: Recipe) -> tuple[str, ...]:
    """The flag that replaces the metric of a recipe, if it is not logged for this kind of labels."""
    known = {LOSS, *(metric.name for metric in logged(kind.name))}
    return () if recipe.metric in known else (METRIC, kind.metric)


def complete(
    recipe: Recipe, data: Path, classes: Sequence[str], kind: LabelKind = KINDS[SINGLE_LABEL]
) -> Recipe:
    """The recipe with class weights in numbers and the direction of its metric.

    `classes` are the class names in the order of the label dictionary. Raises `UserError` for wrong class
    weights, label smoothing or patience, for those that do not apply to the kind of labels, and for a metric
    that is not logged in validation.
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
    for flag in (EVERY, "--save-interval"):
        if recipe.number(flag) == 0:
            raise UserError(f"{where}: {flag} 0: must be a number of epochs from 1")
    if lower_is_better(recipe.metric):
        return recipe.without(MAXIMIZE)
    return recipe if find(recipe.metric) is None else recipe.replace((MAXIMIZE,))


def notes(recipe: Recipe, length: Length | None) -> list[str]:
    """For the plan: the class weights, rare validations, and that a run may end early."""
    found = []
    interval = recipe.number(EVERY) or 1
    if interval > 1:
        found.append(f"validated after every {interval} epochs ({EVERY})")
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
        if length is not None and not (INTERVALS - {EVERY}) & recipe.flags.keys():
            validations = math.ceil(length.updates / length.per_epoch / interval)
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
