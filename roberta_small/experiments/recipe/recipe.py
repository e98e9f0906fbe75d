"""Recipes: files of hyperparameters in fairseq-train's flags, one flag a line; and grids of such flags.

Lines after `[random]` or `[pretrained]` are only for runs that start from random weights, or from a
checkpoint.

`recipes/README.md` describes the format. All code that needs a flag of a recipe reads it through `Recipe`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
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
    "--help": "it trains nothing; run `fairseq-train --user-dir fairseq_plugin --help`",
    "--log-format": "the progress is read from the log",
    "--log-file": "the log is train.log in the run folder",
}
"""Flags that the commands set themselves -> what to use instead, or why they are set."""
Grid = Mapping[str, tuple[str, ...]]
"""Flag without its dashes -> its values, as given on the command line."""
GRID_FLAG = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
GRID_VALUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")


@dataclass(frozen=True, init=False)
class Recipe:
    """The name of a recipe and its flags: words of a command line, or parsed by `common.cli.flags_of`."""

    name: str
    flags: Mapping[str, tuple[str, ...]]
    """Flag -> the flag and its values, one word each."""

    def __init__(self, name: str, flags: Mapping[str, tuple[str, ...]] | Iterable[str] = ()) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "flags", flags if isinstance(flags, Mapping) else flags_of(flags))

    @property
    def words(self) -> tuple[str, ...]:
        """The flags and their values as words of a command line."""
        return tuple(word for group in self.flags.values() for word in group)

    def replace(self, words: Iterable[str]) -> Recipe:
        """The recipe with the flags in `words` replaced or added; a length replaces `MIN_UPDATES` too."""
        new = flags_of(words)
        old = self.without(MIN_UPDATES).flags if any(limit in new for limit in LIMITS) else self.flags
        return Recipe(self.name, {**old, **new})

    def without(self, flag: str) -> Recipe:
        """The recipe without a flag and its values."""
        return Recipe(self.name, {name: group for name, group in self.flags.items() if name != flag})

    def value(self, flag: str) -> str | None:
        """The value of a flag; None without the flag or for a flag without a value."""
        group = self.flags.get(flag, ())
        return group[1] if len(group) > 1 else None

    def number(self, flag: str) -> int | None:
        """The value of a flag as an integer, None without the flag; raises `UserError` for other text."""
        text = self.value(flag)
        if text is not None and not re.fullmatch(r"[0-9]+", text):
            raise UserError(f"recipe '{self.name}': {flag} {text!r} is not an integer")
        return None if text is None else int(text)

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
        if text is not None and not re.fullmatch(r"[0-9]+\.?[0-9]*|\.[0-9]+", text):
            raise UserError(f"recipe '{self.name}': --stop-time-hours {text!r} is not a number")
        return None if text is None else float(text)


def known() -> list[str]:
    """Names of the recipes in `recipes/`."""
    return sorted(path.stem for path in FOLDER.glob("*.txt"))


def load(recipe: str, extra: Sequence[str] = (), start: str = RANDOM) -> Recipe:
    """Load a recipe by its name in `recipes/` or by its path; the flags in `extra` replace its own.

    `start` is one of `STARTS`. Raises `UserError` for an unknown name, a malformed line, a missing or
    circular base, and a reserved flag (`RESERVED`).
    """
    if extra and not extra[0].startswith("--"):
        raise UserError(
            f"after --: {extra[0]!r} is not a flag; use the syntax of fairseq-train: --flag value"
        )
    check_not_reserved(extra, "after --")
    files = list(_files(recipe))
    found = Recipe(files[0][0].stem)
    for _, sections in reversed(files):
        found = found.replace(sections[""]).replace(sections.get(start, ()))
    return found.replace(extra)


def places(recipe: str) -> dict[str, str]:
    """Each flag of a recipe, given as for `load`, and the file that sets it: the recipe's own or a base."""
    found: dict[str, str] = {}
    for path, sections in _files(recipe):
        words = [word for section in sections.values() for word in section]
        found = dict.fromkeys(flags_of(words), shown_path(path)) | found
    return found


def _files(recipe: str) -> Iterator[tuple[Path, dict[str, list[str]]]]:
    """The file of a recipe and those that it inherits from, each with its words by section."""
    path, above = _path(recipe, Path()), []
    if not path.is_file():
        raise UserError(f"recipe '{recipe}': no such file; known recipes are {', '.join(known())}")
    while True:
        base, sections = _read(path)
        yield path, sections
        if base is None:
            return
        above.append(path.resolve())
        inherited = _path(base, path.parent)
        if not inherited.is_file():
            raise UserError(f"{path}: {BASE} {base}: no such file; known recipes are {', '.join(known())}")
        if inherited.resolve() in above:
            raise UserError(
                f"{inherited}: circular {BASE}: the recipe inherits from itself; remove {BASE} from one of "
                "the files"
            )
        path = inherited


def _path(recipe: str, folder: Path) -> Path:
    return FOLDER / f"{recipe}.txt" if recipe in known() else folder / recipe


def _read(path: Path) -> tuple[str | None, dict[str, list[str]]]:
    """The base in a recipe file, and its words by section; "" is the section of the lines for all runs."""
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
        check_not_reserved(new, where)
        if len(sections) > 1 and flag in SELECTION:
            raise UserError(f"{where}: {flag} is the same for all runs; move it above the sections")
        words += new
    if not any(sections.values()):
        raise UserError(f"{path}: contains no flag; write one flag per line, in the syntax of fairseq-train")
    return base, sections


def check_not_reserved(words: Iterable[str], where: str) -> None:
    """Raise `UserError` if a flag in `words`, which are written at `where`, is one of `RESERVED`."""
    for word in words:
        flag = word.partition("=")[0]
        if flag in RESERVED:
            raise UserError(f"{where}: {flag} cannot be given here; remove it ({RESERVED[flag]})")


def parse_grid(words: Sequence[str]) -> Grid:
    """Parse `["lr=1e-5,1e-4", "dropout=0.1"]`; raises `UserError` for an invalid or repeated one."""
    grid: dict[str, tuple[str, ...]] = {}
    for word in words:
        flag, equals, text = word.partition("=")
        flag, values = flag.removeprefix("--"), tuple(text.split(","))
        if not equals or not GRID_FLAG.fullmatch(flag):
            raise UserError(f"--grid {word!r}: write FLAG=VALUE,VALUE, for example lr=1e-5,1e-4")
        if flag in grid:
            raise UserError(f"--grid: '{flag}' is given twice; write all its values after one {flag}=")
        if f"--{flag}" in SELECTION:
            raise UserError(
                f"--grid {word!r}: all settings must select their checkpoint by the same metric; "
                f"set --{flag} in the recipe"
            )
        check_not_reserved([f"--{flag}"], "--grid")
        for index, value in enumerate(values):
            if not GRID_VALUE.fullmatch(value):
                raise UserError(
                    f"--grid {word!r}: {value!r} cannot be part of a folder name (letters, digits, '_', "
                    "'.', '+', '-'); write this value into a recipe file and use another --arm"
                )
            if any(same(value, earlier) for earlier in values[:index]):
                raise UserError(f"--grid {word!r}: the value {value} is given twice; remove one of them")
        grid[flag] = values
    return grid


def variants(arm: str, recipe: Recipe, grid: Grid) -> list[tuple[str, Recipe]]:
    """The arm and the recipe of every combination of the grid's values; the last flag changes fastest.

    `arm` is that of the method. A setting has the flags in which it differs from the recipe, in alphabetical
    order: with `--grid lr=1e-5,1e-4` and a recipe that contains `--lr 1e-5`, fairseq and fairseq,lr=1e-4. A
    larger grid therefore finds the runs of a smaller one.
    """
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
