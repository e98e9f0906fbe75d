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
from itertools import product

from roberta_small.common.errors import UserError
from roberta_small.experiments.recipe import recipe as recipes
from roberta_small.experiments.recipe.recipe import Recipe

Grid = Mapping[str, tuple[str, ...]]
"""Flag without its dashes -> its values, as given on the command line."""

FLAG = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
VALUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")


def parse(words: Sequence[str]) -> Grid:
    """Parse `["lr=1e-5,1e-4", "dropout=0.1"]`; raises `UserError` for an invalid or repeated one."""
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
        recipes.check_not_reserved([f"--{flag}"], "--grid")
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


def variants(arm: str, recipe: Recipe, grid: Grid) -> list[tuple[str, Recipe]]:
    """The arm and the recipe of every combination of the grid's values; the last flag changes fastest."""
    found = []
    for values in product(*grid.values()):
        name, words = arm, []
        for flag, value in sorted(zip(grid, values, strict=True)):
            default = recipe.value(f"--{flag}")
            if default is None or not same(default, value):
                name += f",{flag}={value}"
                words += [f"--{flag}", value]
        found.append((name, recipe.replace(words)))
    return found


def same(one: str, other: str) -> bool:
    """Whether two values are the same text, or the same number (1e-4, 0.0001)."""
    try:
        return float(one) == float(other)
    except ValueError:
        return one == other
