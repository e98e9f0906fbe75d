"""The length of a run: updates and warm-up, computed from the number of training examples.

`resolve` raises `--max-epoch` until there are `--min-updates`; such a run is not validated more often, as
validation sets may be much larger than the training set. It replaces `--warmup-ratio` by the flags that
fairseq-train has, unless they are given: --max-update, --total-num-update and --warmup-updates.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from roberta_small.common.data_folder import read_header, read_sizes
from roberta_small.common.errors import UserError
from roberta_small.experiments.recipe.recipe import MIN_UPDATES, Recipe

RATIO = "--warmup-ratio"
EVERY = "--validate-interval"
INTERVALS = {EVERY, "--validate-interval-updates", "--save-interval-updates"}
"""Flags that change when a run is validated, by default after each epoch."""
DECAYING = "polynomial_decay"
"""The schedule whose learning rate falls to its end at --total-num-update."""
MANY = 0.5
"""Fraction of the training texts: if more are truncated, the plan contains a warning."""


def notes(recipe: Recipe, examples: int | None) -> list[str]:
    """For the plan: the length of a run of a resolved recipe, and what is unusual, as in "warning: ..."."""
    found = numbers(recipe, examples)
    if examples is None or found is None:
        return []
    updates, per_epoch, batch = found
    warmup, warnings = recipe.number("--warmup-updates") or 0, []
    decay_end = recipe.number("--total-num-update") if recipe.value("--lr-scheduler") == DECAYING else None
    if warmup >= updates:
        warnings.append(
            f"the run ends after {updates:,} updates, before the warm-up of {warmup:,} updates is over"
        )
    if updates % per_epoch:
        epochs = updates / per_epoch
        warnings.append(f"the run ends in the middle of an epoch, after {epochs:.2f} epochs")
    if decay_end is not None and decay_end < updates:
        warnings.append(
            f"the learning rate reaches its final value at update {decay_end:,} of {updates:,} "
            "(--total-num-update)"
        )
    elif decay_end is not None and decay_end > updates > warmup:
        left = (decay_end - updates) / (decay_end - warmup)
        warnings.append(
            f"the run ends at {left:.0%} of the peak learning rate: it has {updates:,} updates, but "
            f"the decay ends at update {decay_end:,} (--total-num-update)"
        )
    line = (
        f"{examples:,} training examples in batches of {batch:,}: {per_epoch:,} updates per epoch, "
        f"{updates:,} in total, {warmup:,} of them warm-up"
    )
    return [line, *(f"warning: {text}" for text in warnings)]


def count_examples(data: Path) -> int | None:
    """Training examples of a data folder; None for an index in another of fairseq's formats."""
    index = data / "label" / "train.idx"
    # Numeric labels have no index.
    header = read_header(index if index.is_file() else data / "input0" / "train.idx")
    return None if header is None else header.sentences


def truncation(recipe: Recipe, data: Path) -> list[str]:
    """A warning for the plan if most training texts have more tokens than the recipe reads."""
    longest = recipe.number("--max-positions")
    files = [data / name / "train.idx" for name in ("input0", "input1") if (data / name).is_dir()]
    sizes = [read_sizes(path) for path in files]
    if longest is None or any(size is None for size in sizes):
        return []
    lengths_N = sum(size.astype(np.int64) for size in sizes if size is not None) + 1  # with <s>
    fraction = float(np.mean(lengths_N > longest))
    if fraction <= MANY:
        return []
    return [
        f"warning: {fraction:.0%} of the training texts have more than {longest} tokens and are truncated; "
        "--max-length N sets another limit"
    ]


def resolve(recipe: Recipe, examples: int | None) -> Recipe:
    """The recipe with updates instead of a warm-up ratio; a recipe without ratio stays as it is.

    Raises `UserError` for a ratio that is not from 0 to 1, and where the number of updates does not follow.
    """
    recipe = _lengthened(recipe, examples)
    where, decays = f"recipe '{recipe.name}'", recipe.value("--lr-scheduler") == DECAYING
    if RATIO not in recipe.flags:
        if decays and not {"--total-num-update", "--max-update"} & recipe.flags.keys():
            raise UserError(
                f"{where}: --lr-scheduler {DECAYING} needs the update at which the rate has fallen to its "
                f"end; add {RATIO} 0.06, or --total-num-update N"
            )
        return recipe
    text = recipe.value(RATIO)
    try:
        ratio = float(text or "")
    except ValueError:
        ratio = -1.0
    if not 0 <= ratio < 1:
        raise UserError(f"{where}: {RATIO} {text}: must be at least 0 and below 1, for example 0.06")
    if examples is None:
        raise UserError(
            f"{where}: {RATIO} cannot be used, because label/train.idx is not in the format of "
            "`roberta-small prepare`, so the number of training examples is unknown; prepare the data again"
        )
    total = _updates(recipe, examples)
    numbers = {"--max-update": total, "--warmup-updates": math.floor(ratio * total)}
    if decays:
        numbers = {"--max-update": total, "--total-num-update": total, **numbers}
    missing = [(flag, str(number)) for flag, number in numbers.items() if flag not in recipe.flags]
    return recipe.without(RATIO).replace(word for pair in missing for word in pair)


def _lengthened(recipe: Recipe, examples: int | None) -> Recipe:
    """The recipe with enough epochs for --min-updates, and as many validations and checkpoints as before."""
    least, epochs = recipe.number(MIN_UPDATES), recipe.max_epoch
    recipe = recipe.without(MIN_UPDATES)
    if least is None or examples is None or epochs is None:
        return recipe
    enough = math.ceil(least / _per_epoch(recipe, examples)[0])
    if enough <= epochs:
        return recipe
    interval = str(math.ceil(enough / epochs))
    spaced = not INTERVALS & recipe.flags.keys()
    return recipe.replace(
        ["--max-epoch", str(enough), *([EVERY, interval, "--save-interval", interval] if spaced else [])]
    )


def numbers(recipe: Recipe, examples: int | None) -> tuple[int, int, int] | None:
    """Updates of a run and of an epoch, and examples of an update; None where only the trainer can tell."""
    if examples is None:
        return None
    try:
        return _updates(recipe, examples), *_per_epoch(recipe, examples)
    except UserError:
        return None


def _updates(recipe: Recipe, examples: int) -> int:
    """Updates until --max-epoch or --max-update, whichever comes first."""
    if recipe.max_epoch is None and recipe.max_update is None:
        raise UserError(f"recipe '{recipe.name}': {RATIO} needs --max-epoch or --max-update")
    limits = [] if recipe.max_update is None else [recipe.max_update]
    if recipe.max_epoch is not None:
        limits.append(recipe.max_epoch * _per_epoch(recipe, examples)[0])
    return min(limits)


def _per_epoch(recipe: Recipe, examples: int) -> tuple[int, int]:
    """Updates of an epoch, and examples of an update."""
    if "--max-tokens" in recipe.flags or recipe.number("--batch-size") is None:
        raise UserError(
            f"recipe '{recipe.name}': the number of updates cannot be computed with --max-tokens; set "
            f"--batch-size, or --max-update, --total-num-update and --warmup-updates instead of {RATIO}"
        )
    flags = ("--batch-size", "--distributed-world-size", "--update-freq")
    batch, workers, accumulated = (recipe.number(flag) or 1 for flag in flags)
    batches = math.ceil(examples / batch)
    return math.ceil(math.ceil(batches / workers) / accumulated), batch * workers * accumulated
