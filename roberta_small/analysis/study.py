"""Names, order and selection of groups in all tables, figures and reports: the study file.

A group is METHOD/INIT, the runs that differ only in their seed. A study file is TOML:

    groups = ["fairseq/pretrained", "fairseq/random"]    only these, in this order
    exclude = ["hf/random"]
    order = ["fairseq/random"]                           first, the others after them
    baseline = "fairseq/random"                          significance marks compare with it
    pairs = [["fairseq/pretrained", "fairseq/random"]]   the comparisons, one family for corrected p-values
    at = ["5", "best"]                                   where they are made: after epochs, best checkpoint
    digits = 1                                           decimals of all metrics
    bold = true                                          the best means in bold
    wide = false                                         all columns of wide tables
    width = "one-column"                                 of figures

    [labels]
    "fairseq,lr=1e-4/random" = "Random, lr 1e-4"
    [captions]
    seeds = "Test accuracy on CLS-books"
    [latex-labels]
    seeds = "tab:main"

The options --groups, --baseline, --pair and --at override the file. A label may also be that of a method.
FOLDER:METHOD/INIT is a group of another folder, which only `compare` reads.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, TypeVar

import pandas as pd

from roberta_small.analysis.read.long_table import GROUP
from roberta_small.analysis.read.runs import LoggedRun
from roberta_small.analysis.scoring import BEST
from roberta_small.common.cli import nearest
from roberta_small.common.errors import UserError
from roberta_small.common.files import escaped

WIDTHS = {"one-column": 3.25, "two-column": 6.75}
"""Width of a figure in inches, for one column and for the whole page of a paper in two columns."""
TABLES = (
    "overview",
    "table1",
    "table2",
    "seeds",
    "comparison",
    "plan",
    "examples",
    "reference",
    "expected",
    "accuracy",
    "settings",
    "best_settings",
    "suite",
    "aggregates",
    "cost",
    "scalars",
)
"""The names of all tables."""
MOST_DIGITS = 10
UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f]")
LATEX_LABEL = re.compile(r"[\w:./+-]+", re.ASCII)
OPTIONS = {"groups": "--groups", "baseline": "--baseline", "pairs": "--pair", "at": "--at"}
"""Keys that are also options, because they select what is computed."""
NOT_IN_NAMES = r"\w/,.=+:-"
"""Characters that continue the name of a group, apart from `/seed1`."""

RunT = TypeVar("RunT", bound=LoggedRun)


@dataclass(frozen=True)
class Study:
    """What a study file contains; `resolve` checks it against the groups of the runs."""

    groups: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    baseline: str | None = None
    pairs: tuple[tuple[str, str], ...] = ()
    at: tuple[str, ...] = ()
    """Epochs as text, `best` or `all`; empty for the best checkpoint."""
    digits: int | None = None
    bold: bool = False
    wide: bool = False
    width: str | None = None
    """A key of `WIDTHS`; None for figures on a screen."""
    labels: Mapping[str, str] = field(default_factory=dict)
    captions: Mapping[str, str] = field(default_factory=dict)
    """By name of the table."""
    latex_labels: Mapping[str, str] = field(default_factory=dict)
    path: str = ""
    """The study file, for messages."""
    options: tuple[str, ...] = ()
    """The keys that were given on the command line, for messages."""
    known: tuple[str, ...] = ()
    """All groups that were read, in alphabetical order; set by `resolve`."""

    def resolve(self, known: Iterable[str], *, folders: bool = False) -> Study:
        """The study for the groups that were read; also those that it excludes have a name and a color.

        With `folders`, `groups` may contain groups of other folders. Raises `UserError` for an unknown group,
        for a name that two groups have, if no group is left and if the baseline or a pair is not among them.
        """
        known = tuple(dict.fromkeys(known))
        study = replace(self, known=known)
        for key in ("groups", "exclude", "order", "labels"):
            for name in getattr(study, key):
                if not (_in_folder(name) and (folders or key != "groups")):
                    study._check_known(key, name, arms=key == "labels")
        study._check_names()
        if not study.selected:
            raise UserError(
                f"{self._where('exclude')}: no group is left of {', '.join(known)}; exclude fewer"
            )
        if self.baseline is not None:
            study._check_known("baseline", self.baseline)
            study._check_selected("baseline", self.baseline)
        for name in dict.fromkeys(name for pair in self.pairs for name in pair):
            if not (folders and _in_folder(name)):
                study._check_known("pairs", name)
                study._check_selected("pairs", name)
        return study

    def resolved_for(self, frame: pd.DataFrame) -> Study:
        """The study, resolved for the groups of a frame with `arm` and `init` if it is not resolved yet."""
        if self.known:
            return self
        groups = frame[GROUP].drop_duplicates().sort_values(GROUP).itertuples(index=False)
        return self.resolve(f"{arm}/{init}" for arm, init in groups)

    def overridden(self, given: Mapping[str, Any]) -> Study:
        """The study with the values of the options `OPTIONS`, by key; those that are None change nothing."""
        changed = {key: _frozen(given[key]) for key in OPTIONS if given.get(key) is not None}
        # The folder of a group in another folder is a path, which is read as given.
        if "groups" in changed:
            changed["groups"] = tuple(
                name if _in_folder(name) else escaped(name) for name in changed["groups"]
            )
        options = tuple(changed)
        if "pairs" not in changed and {"groups", "baseline"} & set(changed):
            changed["pairs"] = ()  # those of the file belong to its groups
        return replace(self, **changed, options=options)

    def points(self, default: Sequence[str] | None = (BEST,)) -> list[str] | None:
        """Where groups are compared or shown: epochs and `best`; None for everywhere."""
        if "all" in self.at:
            return None
        return list(self.at) or (None if default is None else list(default))

    @cached_property
    def selected(self) -> tuple[str, ...]:
        """The groups of the folder that are shown, in order."""
        chosen = [name for name in self.groups if name in self.known] or self.known
        return tuple(self.ordered(name for name in chosen if name not in self.exclude))

    def select(self, runs: Iterable[RunT]) -> list[RunT]:
        """The runs of the selected groups."""
        chosen = set(self.selected)
        return [run for run in runs if run.group in chosen]

    @cached_property
    def _rank(self) -> dict[str, int]:
        return {name: rank for rank, name in enumerate(dict.fromkeys([*self.order, *self.groups]))}

    def ordered(self, groups: Iterable[str]) -> list[str]:
        """The distinct groups in the order of `order`, then of `groups`, then as given."""
        return sorted(dict.fromkeys(groups), key=lambda name: self._rank.get(name, len(self._rank)))

    def sorted(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The rows of a frame with `arm` and `init` in the order of their groups, with a new index."""
        if not self._rank or not set(GROUP) <= set(frame):
            return frame
        rank = names_of(frame).map(self._rank).fillna(len(self._rank))
        return frame.iloc[rank.argsort(kind="stable")].reset_index(drop=True)

    def label(self, name: str) -> str:
        """The displayed name of a group or an arm; a group without a label contains that of its arm."""
        if name in self.labels:
            return self.labels[name]
        arm, slash, init = name.rpartition("/")
        return f"{self.labels.get(arm, arm)}{slash}{init}"

    def run_label(self, arm: str, init: str, seed: int) -> str:
        """The displayed name of a run."""
        return f"{self.label(f'{arm}/{init}')}/seed{seed}"

    def relabel(self, text: str) -> str:
        """A text with the labels instead of the names of groups; labels with a comma are quoted."""
        groups = [group for group in self._named if self.label(group) != group]
        if not groups:
            return text
        names = "|".join(re.escape(group) for group in sorted(groups, key=len, reverse=True))
        pattern = rf"(?<![{NOT_IN_NAMES}])({names})(?=/seed\d|[.,:]?(?![{NOT_IN_NAMES}]))"
        return re.sub(pattern, lambda match: _in_sentence(self.label(match[0])), text)

    @cached_property
    def _named(self) -> list[str]:
        """All groups that were read or have a label."""
        return list(dict.fromkeys([*self.known, *(name for name in self.labels if "/" in name)]))

    def _check_known(self, key: str, name: str, *, arms: bool = False) -> None:
        if name not in self.known and not (arms and name in map(arm_of, self.known)):
            raise UserError(
                f"{self._where(key)}: no run of the group '{name}'{nearest(name, self.known)}; available: "
                f"{', '.join(self.known)}"
            )

    def _check_selected(self, key: str, name: str) -> None:
        if name not in self.selected:
            raise UserError(
                f"{self._where(key)}: '{name}' is not selected; choose one of {', '.join(self.selected)}"
            )

    def _check_names(self) -> None:
        names: dict[str, str] = {}
        for group in self._named:
            if (other := names.setdefault(self.label(group), group)) != group:
                raise UserError(
                    f"{self._where('labels')}: '{other}' and '{group}' would both be called "
                    f"'{self.label(group)}'; give them different labels"
                )

    def _where(self, key: str) -> str:
        """The place of a key, for messages."""
        return OPTIONS[key] if key in self.options else f"{self.path}, {key}"


NO_STUDY = Study()
"""All groups, with their own names."""


def read_study(path: str | os.PathLike[str]) -> Study:
    """Read a study file.

    Raises `UserError` with the file and the place for a file that is missing or no TOML, an unknown key, a
    value of another type and a caption of an unknown table.
    """
    if os.path.exists(path) and not os.path.isfile(path):  # a pipe would block
        raise UserError(f"{path}: not a regular file; give a study file")
    try:
        with open(path, encoding="utf-8-sig") as stream:
            content = tomllib.loads(stream.read())
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; write one as docs/how-to/analysis.md shows") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 ({error}); save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path}: not TOML: {error}; names with commas or slashes need quotes") from None
    values: dict[str, Any] = {}
    for key, value in content.items():
        if key not in FILE_KEYS:
            raise UserError(
                f"{path}: unknown key '{key}'{nearest(key, FILE_KEYS)}; known: {', '.join(FILE_KEYS)}"
            )
        values[key.replace("-", "_")] = _checked(f"{path}, {key}", key, value)
    return Study(path=escaped(str(path)), **values)


FILE_KEYS = tuple(
    name.name.replace("_", "-") for name in fields(Study) if name.name not in ("path", "options", "known")
)
"""The keys of a study file."""


def _checked(where: str, key: str, value: Any) -> Any:
    """The value of a key; raises `UserError` if it has another type."""
    if key in ("groups", "exclude", "order"):
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise UserError(f'{where}: not a list of groups; write {key} = ["METHOD/INIT", ...]')
        return tuple(value)
    if key == "pairs":
        if not isinstance(value, list) or not all(_is_pair(pair) for pair in value):
            raise UserError(f'{where}: not a list of pairs; write pairs = [["A/INIT", "B/INIT"], ...]')
        return tuple((a, b) for a, b in value)
    if key == "at":
        if not isinstance(value, list) or not all(isinstance(at, str | int) for at in value):
            raise UserError(f'{where}: not a list of epochs; write at = [5, "best"]')
        return tuple(str(at) for at in value)
    if key in ("labels", "captions", "latex-labels"):
        if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
            raise UserError(f'{where}: not a table of texts; write [{key}] and below it "NAME" = "TEXT"')
        for name, text in value.items():
            _check_text(where, key, name, text)
        return value
    if key in ("bold", "wide"):
        if not isinstance(value, bool):
            raise UserError(f"{where}: {value!r} is not true or false")
        return value
    if key == "digits":
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_DIGITS:
            raise UserError(f"{where}: {value!r} is not an integer from 0 to {MOST_DIGITS}")
        return value
    if not isinstance(value, str):
        raise UserError(f"{where}: {value!r} is not a text; put it in quotes")
    if key == "width" and value not in WIDTHS:
        raise UserError(
            f"{where}: '{value}' is not a width{nearest(value, WIDTHS)}; known: {', '.join(WIDTHS)}"
        )
    return value


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(name, str) for name in value)


def names_of(frame: pd.DataFrame) -> pd.Series:
    """The group of each row of a frame with `arm` and `init`, or its column `group` if it has one."""
    return frame["group"] if "group" in frame else frame["arm"].astype(str) + "/" + frame["init"].astype(str)


def _frozen(value: Any) -> Any:
    """Lists as tuples."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def arm_of(group: str) -> str:
    """The arm of a group: `fairseq,lr=1e-4` for `fairseq,lr=1e-4/random`."""
    return group.rpartition("/")[0]


def _in_folder(name: str) -> bool:
    """Whether the name is that of a group in another folder: FOLDER:METHOD/INIT."""
    folder, colon, group = name.rpartition(":")
    return bool(folder and colon) and group.count("/") == 1


def _check_text(where: str, key: str, name: str, text: str) -> None:
    """Raise `UserError` for an unknown table and for a text that cannot be a label."""
    if key != "labels" and name not in TABLES:
        raise UserError(f"{where}: no table '{name}'{nearest(name, TABLES)}; tables are {', '.join(TABLES)}")
    if key == "latex-labels" and not LATEX_LABEL.fullmatch(text):
        raise UserError(f"{where}: '{text}' is not a LaTeX label; use letters, digits and : . / + _ -")
    # matplotlib omits labels that begin with an underscore.
    if key == "labels" and (not text.strip() or text.startswith("_") or UNPRINTABLE.search(text)):
        raise UserError(
            f"{where}: the label of '{name}' is empty, begins with an underscore or has a line break or "
            "control character; write a text on one line"
        )


def _in_sentence(label: str) -> str:
    return f"“{label}”" if "," in label else label
