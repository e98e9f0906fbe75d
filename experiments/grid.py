"""A grid of settings: values of flags to try, and what a run with them is called.

A run is called after what its recipe says otherwise. With `--grid lr=1e-5,1e-4` and a recipe of `--lr 1e-5`

    OUT/fairseq/random/seed1            is the recipe itself, the reference of the others
    OUT/fairseq,lr=1e-4/random/seed1    has the arm `fairseq,lr=1e-4`

so that a larger grid finds the runs of a smaller one again, and an arm is a setting wherever runs are
compared. Flags stand in alphabetical order; names of arms hold no comma otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from common.cli import flags_of
from common.errors import UserError

from . import recipes
from .recipes import Recipe

Grid = Mapping[str, tuple[str, ...]]
"""Flag without its dashes -> its values, as they are written."""
Setting = tuple[tuple[str, str], ...]
"""A value for some flags, in their order."""

FLAG = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
VALUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")
JUDGES = ("valid-subset", "best-checkpoint-metric")


@dataclass(frozen=True)
class Variant:
    """A setting of the grid: the arm that its runs have, and the recipe that they are trained with."""

    arm: str
    recipe: Recipe


def parse(words: Sequence[str]) -> Grid:
    """`["lr=1e-5,1e-4", "dropout=0.1,0.2"]` as a grid; raises `UserError` for what can name no run."""
    grid: dict[str, tuple[str, ...]] = {}
    for word in words:
        flag, equals, text = word.partition("=")
        flag, values = flag.removeprefix("--"), tuple(text.split(","))
        if not equals or not FLAG.fullmatch(flag):
            raise UserError(f"--grid {word!r}: write FLAG=VALUE,VALUE, for example lr=1e-5,1e-4")
        if flag in grid:
            raise UserError(f"--grid: '{flag}' is given twice; write all its values after one {flag}=")
        if flag in JUDGES:
            raise UserError(f"--grid {word!r}: all settings must be judged alike; set --{flag} in the recipe")
        for index, value in enumerate(values):
            if not VALUE.fullmatch(value):
                raise UserError(
                    f"--grid {word!r}: {value!r} cannot be part of a folder's name (letters, digits, '_', "
                    "'.', '+', '-'); give such a setting a recipe file and an --arm of its own"
                )
            if any(same(value, earlier) for earlier in values[:index]):
                raise UserError(f"--grid {word!r}: {value} is given twice; each setting needs its own")
        grid[flag] = values
    return grid


def variants(
    arm: str, recipe: str, passthrough: Sequence[str], grid: Grid, defaults: Sequence[str] = ()
) -> list[Variant]:
    """Every combination of the grid's values, the last flag changing fastest.

    `defaults` are flags that the arm has instead of the recipe's where nobody says otherwise. Raises
    `UserError` as `recipes.load` does, and where a flag of the grid stands after `--` as well.
    """
    base = recipes.load(recipe, (*defaults, *passthrough))
    for flag in grid:
        if f"--{flag}" in flags_of(passthrough):
            raise UserError(f"--{flag} is both in --grid and after --; give it once")
    found = []
    for values in product(*grid.values()):
        setting = _beyond(base, tuple(sorted(zip(grid, values, strict=True))))
        words = [word for flag, value in setting for word in (f"--{flag}", value)]
        name = ",".join([arm, *(f"{flag}={value}" for flag, value in setting)])
        found.append(Variant(name, recipes.load(recipe, (*defaults, *passthrough, *words))))
    return found


def same(one: str, other: str) -> bool:
    """Whether two values are the same text, or the same number (1e-4, 0.0001)."""
    try:
        return float(one) == float(other)
    except ValueError:
        return one == other


def _beyond(base: Recipe, setting: Setting) -> Setting:
    """What of a setting the recipe does not say already."""
    return tuple(
        (flag, value)
        for flag, value in setting
        if (own := base.value(f"--{flag}")) is None or not same(own, value)
    )
