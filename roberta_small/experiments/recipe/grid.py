"""A grid of settings: the values of flags to try, and the names of the resulting runs.

A setting is named after the flags in which it differs from the recipe. With `--grid lr=1e-5,1e-4` and a
recipe that contains `--lr 1e-5`, the run folders are

    OUT/fairseq/random/seed1            the recipe itself
    OUT/fairseq,lr=1e-4/random/seed1    the recipe with --lr 1e-4

`fairseq,lr=1e-4` is the run's `arm`: the method, a comma, and the flags in alphabetical order. A larger
grid therefore finds the runs of a smaller one, and every comparison of runs treats a setting as a group of
its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from roberta_small.common.cli import flags_of
from roberta_small.common.errors import UserError
from roberta_small.experiments.recipe import recipe as recipes
from roberta_small.experiments.recipe.recipe import Recipe

Grid = Mapping[str, tuple[str, ...]]
"""Flag without its dashes -> its values, as given on the command line."""
Setting = tuple[tuple[str, str], ...]
"""Pairs of flag and value."""

FLAG = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
VALUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")


@dataclass(frozen=True)
class Variant:
    """A setting of the grid: the `arm` of its runs, and the recipe with the setting."""

    arm: str
    recipe: Recipe


def parse(words: Sequence[str]) -> Grid:
    """Parse `["lr=1e-5,1e-4", "dropout=0.1,0.2"]`; raises `UserError` for a malformed or repeated value."""
    grid: dict[str, tuple[str, ...]] = {}
    for word in words:
        flag, equals, text = word.partition("=")
        flag, values = flag.removeprefix("--"), tuple(text.split(","))
        if not equals or not FLAG.fullmatch(flag):
            raise UserError(f"--grid {word!r}: write FLAG=VALUE,VALUE, for example lr=1e-5,1e-4")
        if flag in grid:
            raise UserError(f"--grid: '{flag}' is given twice; write all its values after one {flag}=")
        if f"--{flag}" in recipes.SELECTION:
            raise UserError(
                f"--grid {word!r}: all settings must select their checkpoint by the same metric; "
                f"set --{flag} in the recipe"
            )
        for index, value in enumerate(values):
            if not VALUE.fullmatch(value):
                raise UserError(
                    f"--grid {word!r}: {value!r} cannot be part of a folder name (letters, digits, '_', "
                    "'.', '+', '-'); write this value into a recipe file and use another --arm"
                )
            if any(same(value, earlier) for earlier in values[:index]):
                raise UserError(f"--grid {word!r}: the value {value} is given twice; remove one of them")
        grid[flag] = values
    return grid


def variants(
    arm: str,
    recipe: str,
    passthrough: Sequence[str],
    grid: Grid,
    defaults: Sequence[str] = (),
    start: str = recipes.RANDOM,
) -> list[Variant]:
    """Every combination of the grid's values; the last flag changes fastest.

    `defaults` are flags of the method that replace those of the recipe file; `passthrough` replaces both.
    `start` is one of `recipes.STARTS`. Raises `UserError` as `recipes.load` does, and if a flag of the grid
    is also in `passthrough`.
    """
    base = recipes.load(recipe, (*defaults, *passthrough), start)
    for flag in grid:
        if f"--{flag}" in flags_of(passthrough):
            raise UserError(f"--{flag} is both in --grid and after --; keep one of them")
    found = []
    for values in product(*grid.values()):
        setting = _without_defaults(tuple(sorted(zip(grid, values, strict=True))), base)
        words = [word for flag, value in setting for word in (f"--{flag}", value)]
        name = ",".join([arm, *(f"{flag}={value}" for flag, value in setting)])
        found.append(Variant(name, recipes.load(recipe, (*defaults, *passthrough, *words), start)))
    return found


def same(one: str, other: str) -> bool:
    """Whether two values are the same text, or the same number (1e-4, 0.0001)."""
    try:
        return float(one) == float(other)
    except ValueError:
        return one == other


def _without_defaults(setting: Setting, base: Recipe) -> Setting:
    """The setting without the flags that have the same value in the recipe."""
    return tuple(
        (flag, value)
        for flag, value in setting
        if (default := base.value(f"--{flag}")) is None or not same(default, value)
    )
