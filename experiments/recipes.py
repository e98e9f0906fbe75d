"""Recipes: files of hyper-parameters in fairseq-train's flags, one flag a line; `#` starts a comment.

`recipes/README.md` describes the format. `Recipe` is the one parser of such flags: the sweep, a grid, another
trainer and the comparison of two experiments all read `Recipe.flags`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from common.cli import flags_of
from common.errors import UserError
from common.files import read_lines

FOLDER = Path(__file__).resolve().parents[1] / "recipes"
BASE = "--base"
"""On the first line of a recipe: the recipe that it changes."""

OWNED = {
    "--seed": "--seeds (or --seed of pretrain.sh)",
    "--save-dir": "--out",
    "--tensorboard-logdir": "--out",
    "--restore-file": "--inits and --pretrained",
    "--finetune-from-model": "--inits and --pretrained",
    "--reset-optimizer": "nothing: the first start from a checkpoint resets",
    "--reset-dataloader": "nothing: the first start from a checkpoint resets",
    "--reset-meters": "nothing: the first start from a checkpoint resets",
    "--reset-lr-scheduler": "nothing: the first start from a checkpoint resets",
    "--no-save": "nothing: the best and the last checkpoint are kept",
    "--no-last-checkpoints": "nothing: a run resumes from its last checkpoint",
    "--cpu": "--device cpu",
    "--user-dir": "nothing: the project's plugin is always loaded",
    "--num-classes": "nothing: classes are counted in the data",
    "--log-format": "nothing: progress is read from the log",
    "--log-file": "nothing: the log is train.log in the run's folder",
}
"""Flags that the sweep sets itself -> what to use instead."""


@dataclass(frozen=True)
class Recipe:
    """A name for tables, and flags with their values as the words of a command line."""

    name: str
    words: tuple[str, ...]

    @cached_property
    def flags(self) -> Mapping[str, tuple[str, ...]]:
        """Flag -> the flag and its values, one word each; see `common.cli.flags_of`."""
        return flags_of(self.words)

    def replace(self, words: Iterable[str]) -> Recipe:
        """The recipe with other values for the flags among `words`; new flags are added at the end."""
        groups = {**self.flags, **flags_of(words)}
        return Recipe(self.name, tuple(word for group in groups.values() for word in group))

    def value(self, flag: str) -> str | None:
        """The value of a flag; None without the flag or for a flag without a value."""
        group = self.flags.get(flag, ())
        return group[1] if len(group) > 1 else None

    def number(self, flag: str) -> int | None:
        """The value of a flag that takes an integer; None without the flag."""
        text = self.value(flag)
        if text is None:
            return None
        if not re.fullmatch(r"[0-9]+", text):
            raise UserError(f"recipe '{self.name}': {flag} {text!r} is not an integer")
        return int(text)

    @property
    def valid_subsets(self) -> list[str]:
        """Subsets validated on after each epoch; the first chooses the best checkpoint."""
        return (self.value("--valid-subset") or "valid").split(",")

    @property
    def metric(self) -> str:
        """The metric that chooses the best checkpoint."""
        return self.value("--best-checkpoint-metric") or "loss"

    @property
    def max_epoch(self) -> int | None:
        """Limit of the training in epochs; None for no limit."""
        return self.number("--max-epoch")

    @property
    def max_update(self) -> int | None:
        """Limit of the training in updates; None for no limit."""
        return self.number("--max-update")

    @property
    def hours(self) -> float | None:
        """Limit of the training in hours; None for no limit."""
        text = self.value("--stop-time-hours")
        if text is None:
            return None
        if not re.fullmatch(r"[0-9.]+", text) or text.count(".") > 1 or not text.strip("."):
            raise UserError(f"recipe '{self.name}': --stop-time-hours {text!r} is not a number")
        return float(text)


def known() -> list[str]:
    """Names of the recipes in `recipes/`."""
    return sorted(path.stem for path in FOLDER.glob("*.txt"))


def load(recipe: str, extra: Sequence[str] = ()) -> Recipe:
    """The recipe with a name in `recipes/` or in the file of a path; flags among `extra` replace its own.

    Raises `UserError` for an unknown name, a malformed line, a base that is missing or refers back to the
    recipe, and a flag that the sweep sets itself (`OWNED`).
    """
    path = FOLDER / f"{recipe}.txt" if recipe in known() else Path(recipe)
    if not path.is_file():
        raise UserError(f"recipe '{recipe}': no such file; known recipes are {', '.join(known())}")
    if extra and not extra[0].startswith("--"):
        raise UserError(
            f"after --: {extra[0]!r} is not a flag; write --flag value, as fairseq-train takes it"
        )
    _refuse_owned(extra, "after --")
    return _resolve(path, ()).replace(extra)


def _resolve(path: Path, above: tuple[Path, ...]) -> Recipe:
    """The recipe in a file, with the flags of its base; `above` are the files that it is a base of."""
    if path.resolve() in above:
        raise UserError(f"{path}: the recipe is its own base; remove {BASE} from one of the files")
    base, words = _read(path)
    if base is None:
        return Recipe(path.stem, ()).replace(words)
    base_path = FOLDER / f"{base}.txt" if base in known() else path.parent / base
    if not base_path.is_file():
        raise UserError(f"{path}: {BASE} {base}: no such file; known recipes are {', '.join(known())}")
    inherited = _resolve(base_path, (*above, path.resolve()))
    return Recipe(path.stem, inherited.words).replace(words)


def _read(path: Path) -> tuple[str | None, list[str]]:
    """The base that a recipe file names, if any, and the words of its other lines."""
    base: str | None = None
    words: list[str] = []
    seen: set[str] = set()
    for number, line in enumerate(read_lines(path), start=1):
        where = f"{path}, line {number}"
        try:
            new = shlex.split(line, comments=True)
        except ValueError as error:
            raise UserError(f"{where}: {error}; close the quotes") from None
        if "\0" in line:
            raise UserError(f"{where}: contains a NUL byte, which no command line can have; remove it")
        if not new:
            continue
        flag, *values = next(iter(flags_of(new).values()))
        if not flag.startswith("--"):
            raise UserError(
                f"{where}: {new[0]!r} is not a flag; write one flag a line, as fairseq-train takes it"
            )
        if flag in seen:
            raise UserError(f"{where}: {flag} is given twice; keep one")
        seen.add(flag)
        if flag == BASE:
            if len(seen) > 1 or len(values) != 1:
                raise UserError(
                    f"{where}: {line.strip()!r}: write {BASE} NAME on the first line of the recipe"
                )
            base = values[0]
            continue
        _refuse_owned(new, where)
        words += new
    if not words:
        raise UserError(f"{path}: no flag in it; write one a line, as fairseq-train takes it")
    return base, words


def _refuse_owned(words: Iterable[str], where: str) -> None:
    for word in words:
        flag = word.partition("=")[0]
        if flag in OWNED:
            raise UserError(f"{where}: {flag} is set by the sweep; remove it and use {OWNED[flag]}")
