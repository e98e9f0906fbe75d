"""The length of a run: updates and warm-up, computed from the number of training examples.

A recipe gives epochs (`--max-epoch`) and the fraction of all updates that the learning rate rises for
(`--warmup-ratio`). `resolve` replaces the ratio by the flags that fairseq-train has: --max-update,
--total-num-update and --warmup-updates, so that a run's manifest contains the numbers. Flags of these names
in the recipe or after `--` are kept. Before, it raises `--max-epoch` until there are `--min-updates`; such
a run is not validated more often than without: validation sets may be much larger than the training set.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Length:
    """The length of a run in numbers."""

    examples: int
    batch: int
    """Examples of an update: of all workers and accumulated batches."""
    per_epoch: int
    """Updates of an epoch."""
    updates: int
    """Updates of the run."""
    warmup: int
    decay_end: int | None
    """The update at which the learning rate has fallen to its end; None for another schedule."""

    def notes(self) -> list[str]:
        """For the plan: the numbers, and what is unusual about them, each beginning with "warning: "."""
        found = []
        if self.warmup >= self.updates:
            found.append(
                f"the run ends after {self.updates:,} updates, before the warm-up of {self.warmup:,} "
                "updates is over"
            )
        if self.updates % self.per_epoch:
            epochs = self.updates / self.per_epoch
            found.append(f"the run ends in the middle of an epoch, after {epochs:.2f} epochs")
        if self.decay_end is not None and self.decay_end < self.updates:
            found.append(
                f"the learning rate reaches its final value at update {self.decay_end:,} of {self.updates:,} "
                "(--total-num-update)"
            )
        elif self.decay_end is not None and self.decay_end > self.updates > self.warmup:
            left = (self.decay_end - self.updates) / (self.decay_end - self.warmup)
            found.append(
                f"the run ends at {left:.0%} of the peak learning rate: it has {self.updates:,} updates, but "
                f"the decay ends at update {self.decay_end:,} (--total-num-update)"
            )
        numbers = (
            f"{self.examples:,} training examples in batches of {self.batch:,}: {self.per_epoch:,} updates "
            f"per epoch, {self.updates:,} in total, {self.warmup:,} of them warm-up"
        )
        return [numbers, *(f"warning: {text}" for text in found)]


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

    Warm-up is the ratio of all updates, rounded down. Raises `UserError` for a ratio that is not from 0 to 1,
    and where the number of updates does not follow from the recipe.
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
    """The recipe with enough epochs for --min-updates, and without this flag.

    The run has at most as many validations as the recipe has epochs, and saves checkpoints then, unless the
    recipe sets intervals itself.
    """
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


def length(recipe: Recipe, examples: int | None) -> Length | None:
    """The length of a run of a resolved recipe; None where only the trainer can tell."""
    if examples is None:
        return None
    try:
        per_epoch, batch = _per_epoch(recipe, examples)
        updates = _updates(recipe, examples)
    except UserError:
        return None
    decay_end = recipe.number("--total-num-update") if recipe.value("--lr-scheduler") == DECAYING else None
    return Length(examples, batch, per_epoch, updates, recipe.number("--warmup-updates") or 0, decay_end)


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
