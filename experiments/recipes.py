"""Recipes: files of fairseq-train flags, one a line, `#` starts a comment."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from common.errors import UserError
from common.files import read_lines

FOLDER = Path(__file__).resolve().parents[1] / "recipes"

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
    "--no-last-checkpoints": "nothing: the last checkpoint is where a run goes on",
    "--cpu": "--device cpu",
    "--user-dir": "nothing: the project's plugin is always loaded",
    "--num-classes": "nothing: classes are counted in the data",
    "--log-format": "nothing: progress is read from the log",
    "--log-file": "nothing: the log is train.log in the run's folder",
}
"""Flags that the sweep sets itself -> what to use instead."""


@dataclass(frozen=True)
class Recipe:
    """A name for tables and the words that fairseq-train gets."""

    name: str
    words: tuple[str, ...]

    @cached_property
    def _flags(self) -> dict[str, tuple[str, ...]]:
        return by_flag(self.words)

    def value(self, flag: str) -> str | None:
        """Value of a flag; None where it is absent."""
        group = self._flags.get(flag, ())
        return group[1] if len(group) > 1 else None

    def number(self, flag: str) -> int | None:
        """Value of a flag that takes a whole number, None where it is absent."""
        text = self.value(flag)
        if text is None:
            return None
        if not re.fullmatch(r"[0-9]+", text):
            raise UserError(f"recipe '{self.name}': {flag} {text!r} is not a whole number")
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
        """Where the training ends at the latest, in epochs."""
        return self.number("--max-epoch")

    @property
    def max_update(self) -> int | None:
        """Where the training ends at the latest, in updates."""
        return self.number("--max-update")

    @property
    def hours(self) -> float | None:
        """Where the training ends at the latest, in hours."""
        text = self.value("--stop-time-hours")
        if text is None:
            return None
        if not re.fullmatch(r"[0-9.]+", text) or text.count(".") > 1 or not text.strip("."):
            raise UserError(f"recipe '{self.name}': --stop-time-hours {text!r} is not a number")
        return float(text)


def known() -> list[str]:
    """Names of the recipes that come with the project."""
    return sorted(path.stem for path in FOLDER.glob("*.txt"))


def load(recipe: str, extra: Sequence[str] = ()) -> Recipe:
    """The recipe of a name or a path; flags among the extra words replace its own.

    Raises `UserError` for an unknown name, a malformed line or a flag that the sweep owns.
    """
    path = FOLDER / f"{recipe}.txt" if recipe in known() else Path(recipe)
    if not path.is_file():
        raise UserError(f"recipe '{recipe}': no such file; known recipes are {', '.join(known())}")
    words = _read(path)
    if extra and not extra[0].startswith("--"):
        raise UserError(
            f"after --: {extra[0]!r} is not a flag; write --flag value, as fairseq-train takes it"
        )
    _refuse_owned(extra, "after --")
    groups = by_flag(words) | by_flag(extra)
    return Recipe(path.stem, tuple(word for group in groups.values() for word in group))


def by_flag(words: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Flag -> flag and its values, one word each; a later one replaces an earlier one, as in argparse."""
    groups: dict[str, tuple[str, ...]] = {}
    flag = ""
    for word in words:
        if word.startswith("--"):
            flag, equals, value = word.partition("=")
            groups[flag] = (flag, value) if equals else (flag,)
        else:
            groups[flag] = (*groups.get(flag, ()), word)
    return groups


def _read(path: Path) -> list[str]:
    words: list[str] = []
    seen: set[str] = set()
    for number, line in enumerate(read_lines(path), start=1):
        where = f"{path}, line {number}"
        try:
            new = shlex.split(line, comments=True)
        except ValueError as error:
            raise UserError(f"{where}: {error}; close the quotes") from None
        if "\0" in line:
            raise UserError(f"{where}: a byte of zero, which no command line can have; correct the line")
        if not new:
            continue
        flag = new[0].partition("=")[0]
        if not flag.startswith("--"):
            raise UserError(
                f"{where}: {new[0]!r} is not a flag; write one flag a line, as fairseq-train takes it"
            )
        if flag in seen:
            raise UserError(f"{where}: {flag} is given twice; keep one")
        seen.add(flag)
        _refuse_owned(new, where)
        words += new
    if not words:
        raise UserError(f"{path}: no flag in it; write one a line, as fairseq-train takes it")
    return words


def _refuse_owned(words: Sequence[str], where: str) -> None:
    for word in words:
        flag = word.partition("=")[0]
        if flag in OWNED:
            raise UserError(f"{where}: {flag} is set by the sweep; remove it and use {OWNED[flag]}")
