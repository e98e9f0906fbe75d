"""Recipes: files of hyperparameters in fairseq-train's flags, one flag a line; `#` starts a comment.

Lines after `[random]` or `[pretrained]` are only for runs that start from random weights, or from a
checkpoint.

`recipes/README.md` describes the format. All code that needs a flag of a recipe reads it through `Recipe`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from roberta_small.common.cli import flags_of
from roberta_small.common.errors import UserError
from roberta_small.common.files import PACKAGE, read_lines, shown_path

FOLDER = PACKAGE / "recipes"
BASE = "--base"
"""On the first line of a recipe: the recipe whose flags it inherits."""
RANDOM, PRETRAINED = STARTS = ("random", "pretrained")
"""What a run starts from, and the sections of a recipe: random weights, or a checkpoint of any name."""
MIN_UPDATES = "--min-updates"
"""Of a recipe, not of fairseq: `--max-epoch` is raised until a run has this many updates."""
LIMITS = ("--max-epoch", "--max-update")

SECTION = re.compile(r"\[(.*)\]")
SECTIONS = " and ".join(f"[{start}]" for start in STARTS)
SELECTION = ("--valid-subset", "--best-checkpoint-metric", "--maximize-best-checkpoint-metric")
"""Flags that select the best checkpoint, by which all runs are compared."""
RESERVED = {
    "--seed": "use --seeds (train) or --seed (pretrain)",
    "--save-dir": "use --out",
    "--tensorboard-logdir": "use --out",
    "--restore-file": "use --inits and --pretrained",
    "--finetune-from-model": "use --inits and --pretrained",
    "--reset-optimizer": "reset when a run first starts from a checkpoint",
    "--reset-dataloader": "reset when a run first starts from a checkpoint",
    "--reset-meters": "reset when a run first starts from a checkpoint",
    "--reset-lr-scheduler": "reset when a run first starts from a checkpoint",
    "--no-save": "the best and the last checkpoint are always kept",
    "--no-last-checkpoints": "a run resumes from its last checkpoint",
    "--cpu": "use --device cpu",
    "--user-dir": "the project's plugin is always loaded",
    "--num-classes": "the number of classes is read from the data",
    "--multi-label": "the kind of labels is read from the data",
    "--regression-target": "the kind of labels is read from the data",
    "--log-format": "the progress is read from the log",
    "--log-file": "the log is train.log in the run folder",
}
"""Flags that the commands set themselves -> what to use instead, or why they are set."""


@dataclass(frozen=True)
class Recipe:
    """The name of a recipe, and its flags and values as words of a command line."""

    name: str
    words: tuple[str, ...]

    @cached_property
    def flags(self) -> Mapping[str, tuple[str, ...]]:
        """Flag -> the flag and its values, one word each; see `common.cli.flags_of`."""
        return flags_of(self.words)

    def replace(self, words: Iterable[str]) -> Recipe:
        """The recipe with the flags in `words` replaced; new flags are added at the end.

        A length in `words` replaces `MIN_UPDATES` too.
        """
        new = flags_of(words)
        old = {
            flag: group
            for flag, group in self.flags.items()
            if flag != MIN_UPDATES or not any(limit in new for limit in LIMITS)
        }
        return Recipe(self.name, tuple(word for group in {**old, **new}.values() for word in group))

    def without(self, flag: str) -> Recipe:
        """The recipe without a flag and its values."""
        groups = (group for name, group in self.flags.items() if name != flag)
        return Recipe(self.name, tuple(word for group in groups for word in group))

    def value(self, flag: str) -> str | None:
        """The value of a flag; None without the flag or for a flag without a value."""
        group = self.flags.get(flag, ())
        return group[1] if len(group) > 1 else None

    def number(self, flag: str) -> int | None:
        """The value of a flag as an integer, None without the flag; raises `UserError` for other text."""
        text = self.value(flag)
        if text is None:
            return None
        if not re.fullmatch(r"[0-9]+", text):
            raise UserError(f"recipe '{self.name}': {flag} {text!r} is not an integer")
        return int(text)

    @property
    def valid_subsets(self) -> list[str]:
        """Subsets evaluated after each epoch; the first selects the best checkpoint."""
        return (self.value("--valid-subset") or "valid").split(",")

    @property
    def metric(self) -> str:
        """The metric that selects the best checkpoint."""
        return self.value("--best-checkpoint-metric") or "loss"

    @property
    def max_epoch(self) -> int | None:
        """Maximum number of epochs; None for no limit."""
        return self.number("--max-epoch")

    @property
    def max_update(self) -> int | None:
        """Maximum number of updates; None for no limit."""
        return self.number("--max-update")

    @property
    def patience(self) -> int | None:
        """Validations without a better score after which a run stops; None for no early stopping."""
        return None if self.value("--patience") in (None, "-1", "0") else self.number("--patience")

    @property
    def hours(self) -> float | None:
        """Maximum training time in hours; None for no limit."""
        text = self.value("--stop-time-hours")
        if text is None:
            return None
        if not re.fullmatch(r"[0-9.]+", text) or text.count(".") > 1 or not text.strip("."):
            raise UserError(f"recipe '{self.name}': --stop-time-hours {text!r} is not a number")
        return float(text)


def known() -> list[str]:
    """Names of the recipes in `recipes/`."""
    return sorted(path.stem for path in FOLDER.glob("*.txt"))


def start_of(checkpoint: Path | None) -> str:
    """The section for runs with these initial weights; None for random ones."""
    return RANDOM if checkpoint is None else PRETRAINED


def load(recipe: str, extra: Sequence[str] = (), start: str = RANDOM) -> Recipe:
    """Load a recipe by its name in `recipes/` or by its path; the flags in `extra` replace its own.

    `start` is one of `STARTS`. Raises `UserError` for an unknown name, a malformed line, a missing or
    circular base, and a reserved flag (`RESERVED`).
    """
    path = FOLDER / f"{recipe}.txt" if recipe in known() else Path(recipe)
    if not path.is_file():
        raise UserError(f"recipe '{recipe}': no such file; known recipes are {', '.join(known())}")
    if extra and not extra[0].startswith("--"):
        raise UserError(
            f"after --: {extra[0]!r} is not a flag; use the syntax of fairseq-train: --flag value"
        )
    _check_not_reserved(extra, "after --")
    return _resolve(path, (), start).replace(extra)


def places(recipe: str) -> dict[str, str]:
    """Each flag of a recipe, given as for `load`, and the file that sets it: the recipe's own or a base."""
    path: Path | None = FOLDER / f"{recipe}.txt" if recipe in known() else Path(recipe)
    found: dict[str, str] = {}
    while path is not None:
        base, sections = _read(path)
        words = [word for section in sections.values() for word in section]
        found = dict.fromkeys(flags_of(words), shown_path(path)) | found
        path = _base_path(path, base)
    return found


def _base_path(path: Path, base: str | None) -> Path | None:
    """The file of a recipe's base."""
    if base is None:
        return None
    return FOLDER / f"{base}.txt" if base in known() else path.parent / base


def _resolve(path: Path, above: tuple[Path, ...], start: str) -> Recipe:
    """The recipe in a file, with the flags of its base; `above` are the files that inherit from it."""
    if path.resolve() in above:
        raise UserError(
            f"{path}: circular {BASE}: the recipe inherits from itself; remove {BASE} from one of the files"
        )
    base, sections = _read(path)
    own = Recipe("", tuple(sections[""])).replace(sections.get(start, ()))
    base_path = _base_path(path, base)
    if base_path is None:
        return Recipe(path.stem, own.words)
    if not base_path.is_file():
        raise UserError(f"{path}: {BASE} {base}: no such file; known recipes are {', '.join(known())}")
    inherited = _resolve(base_path, (*above, path.resolve()), start)
    return Recipe(path.stem, inherited.words).replace(own.words)


def _read(path: Path) -> tuple[str | None, dict[str, list[str]]]:
    """The base in a recipe file (None without one), and the words of its other lines by section.

    The section "" contains the lines for all runs.
    """
    base: str | None = None
    words: list[str] = []
    sections = {"": words}
    seen: set[str] = set()
    for number, line in enumerate(read_lines(path), start=1):
        where = f"{path}, line {number}"
        try:
            new = shlex.split(line, comments=True)
        except ValueError as error:
            raise UserError(f"{where}: {error}; close the quotes") from None
        if "\0" in line:
            raise UserError(f"{where}: contains a NUL byte, which a command line cannot contain; remove it")
        if not new:
            continue
        if heading := SECTION.fullmatch(line.partition("#")[0].strip()):
            if (name := heading[1]) not in STARTS or name in sections:
                problem = "repeated" if name in sections else "unknown"
                raise UserError(f"{where}: section [{name}] is {problem}; use {SECTIONS}, each once")
            words, seen = sections.setdefault(name, []), set()
            continue
        flag, *values = next(iter(flags_of(new).values()))
        if not flag.startswith("--"):
            raise UserError(
                f"{where}: {new[0]!r} is not a flag; write one flag per line, in the syntax of fairseq-train"
            )
        if flag in seen:
            raise UserError(f"{where}: {flag} is repeated; keep one of the lines")
        seen.add(flag)
        if flag == BASE:
            if len(seen) > 1 or len(sections) > 1 or len(values) != 1:
                raise UserError(
                    f"{where}: {line.strip()!r}: write {BASE} NAME on the first line of the recipe"
                )
            base = values[0]
            continue
        _check_not_reserved(new, where)
        if len(sections) > 1 and flag in SELECTION:
            raise UserError(f"{where}: {flag} is the same for all runs; move it above the sections")
        words += new
    if not any(sections.values()):
        raise UserError(f"{path}: contains no flag; write one flag per line, in the syntax of fairseq-train")
    return base, sections


def _check_not_reserved(words: Iterable[str], where: str) -> None:
    for word in words:
        flag = word.partition("=")[0]
        if flag in RESERVED:
            raise UserError(f"{where}: {flag} is set by the command; remove it ({RESERVED[flag]})")
