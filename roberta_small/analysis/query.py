"""What an analysis is asked, and what that means for the runs that it reads.

Query   from the options of a command, from a study file, or made in Python
Study   the query for some runs: nothing is open in it

A group is METHOD/INIT, the runs that differ only in their seed.
"""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import pandas as pd

from roberta_small.analysis.compare import PAIRINGS, Pairing
from roberta_small.analysis.published import OPTIONAL, REQUIRED
from roberta_small.analysis.read.long_table import GROUP, REPORTED, SELECTING, Scale
from roberta_small.analysis.scoring import BEST, TIE_RULES, TieRule
from roberta_small.common.cli import Collect, nearest, positive
from roberta_small.common.data_folder import NOTIONS
from roberta_small.common.errors import UserError
from roberta_small.common.files import escaped
from roberta_small.common.label_kinds import KINDS, MULTI_LABEL, REGRESSION
from roberta_small.common.metrics import DIRECTIONS, Direction, in_percent, label, lower_is_better

DEFAULT_METRIC = "accuracy"
MODEL_INDEX = "model-index"
"""The format of the block of results in a model card, see `features.exports`."""
WIDTHS = {"one-column": 3.25, "two-column": 6.75}
"""Width of a figure in inches, for one column and for the whole page of a paper in two columns."""
TIE_NOTES = {
    "latest": "the latest of equal ones, as fairseq's checkpoint_best.pt",
    "earliest": "the earliest of equal ones",
    "mean": "of equal ones, the mean of their test values",
}
STD_NOTES = {0: "population standard deviation (ddof 0)", 1: "sample standard deviation (ddof 1)"}
NOT_IN_NAMES = r"\w/,.=+:-"
"""Characters that continue the name of a group, apart from `/seed1`."""


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text} is not a finite number")
    return value


def _difference(text: str) -> float:
    if not (value := abs(_number(text))):
        raise argparse.ArgumentTypeError(f"{text} is not a number other than 0")
    return value


def _option(default: Any, flag: str, text: str, **arguments: Any) -> Any:
    """A field that is also an option: its flag, help and arguments for `add_argument`."""
    return field(default=default, metadata={"flag": flag, "help": text, **arguments})


def _switch(flag: str, text: str) -> Any:
    return _option(False, flag, text, action="store_true")


@dataclass(frozen=True)
class Query:
    """What is computed from runs, by which conventions, and how it is presented.

    None and empty values stand for defaults, some of which depend on the runs, see `Study`.
    """

    metric: str | None = _option(
        None, "--metric",
        "metric to report on --split, and to select on --choose-on without --by, for example "
        f"macro_f1, mcc or loss ({DEFAULT_METRIC}; of multi-label runs {KINDS[MULTI_LABEL].metric}, of "
        f"regressions {KINDS[REGRESSION].metric})",
        type=escaped,
    )  # fmt: skip
    by: str | None = _option(
        None, "--by",
        "metric that selects the best checkpoint (default: --metric, or without it the one that "
        "selected the runs' checkpoint_best.pt)",
        type=escaped, metavar="METRIC",
    )  # fmt: skip
    choose_on: str | None = _option(
        None, "--choose-on",
        "split on which the best checkpoint is selected (default: valid, or the only evaluated one)",
        type=escaped, metavar="SPLIT",
    )  # fmt: skip
    ties: TieRule = _option(
        "latest", "--ties",
        "how to break ties between checkpoints; fairseq keeps the latest (latest)", choices=TIE_RULES,
    )  # fmt: skip
    direction: Direction = _option(
        "auto", "--direction",
        "whether high or low values of --by are better; auto: defined by the metric (auto)",
        choices=DIRECTIONS,
    )  # fmt: skip
    split: str | None = _option(
        None, "--split", "split to report (default: test, or the only evaluated one)",
        type=escaped, metavar="SPLIT",
    )  # fmt: skip
    ddof: int = _option(
        1, "--ddof", "standard deviation: 1 sample, 0 population (1)", type=int, choices=(0, 1)
    )
    include_unfinished: bool = _switch("--include-unfinished", "also use runs that are not finished")
    accuracies: Scale = _option(
        "auto", "--accuracies",
        "how runs of other trainers logged accuracy; auto: as fractions if none is above 1 (auto)",
        choices=("auto", "percent", "fraction"),
    )  # fmt: skip
    groups: tuple[str, ...] = _option(
        (), "--groups",
        "only these groups, METHOD/INIT each, in this order (default: all); for `compare` also "
        "FOLDER:METHOD/INIT, of another folder",
        nargs="+", action=Collect, metavar="GROUP",
    )  # fmt: skip
    exclude: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    baseline: str | None = _option(
        None, "--baseline",
        "group that the others are compared with: marks of significant differences in tables of "
        "means, comparisons with it alone in `compare` and `report`",
        type=escaped, metavar="GROUP",
    )  # fmt: skip
    pairs: tuple[tuple[str, str], ...] = _option(
        (), "--pair",
        "compare only these two groups, METHOD/INIT each; repeatable: the corrected p-values count "
        "all pairs given as one family (default: all pairs; in a report, each group with the baseline)",
        nargs=2, type=escaped, action="append", metavar=("A", "B"),
    )  # fmt: skip
    all_pairs: bool = _switch(
        "--all-pairs", "compare all pairs of groups, which are then one family of corrected p-values"
    )
    at: tuple[str, ...] = _option(
        (), "--at", "epochs to compare or show, best or all (default: best; for the table seeds, all)",
        nargs="+", metavar="EPOCH",
    )  # fmt: skip
    reference: str | os.PathLike[str] | None = _option(
        None, "--reference",
        f"published results to compare with; .csv, .md or .json with the columns {', '.join(REQUIRED)} and "
        f"optionally {', '.join(OPTIONAL)}",
        metavar="FILE",
    )  # fmt: skip
    test_size: int | None = _option(
        None, "--test-size",
        "examples in the reported split (default: counted in the audit, the prediction files or the "
        "data folder)",
        type=positive, metavar="N",
    )  # fmt: skip
    audit: str | os.PathLike[str] | None = _option(
        None, "--audit", "audit.json of the data folder: excludes duplicates of train", metavar="JSON"
    )
    duplicates: str = _option(
        "exact", "--duplicates", "kind of duplicate to exclude from accuracy (exact)", choices=NOTIONS
    )
    best_settings: bool = _switch(
        "--best-settings",
        "only the setting that validation selects for each method and init (of each data set)",
    )
    chance: float | None = _option(
        None, "--chance", "chance level, for example 50, drawn as a horizontal line",
        type=_number, metavar="VALUE",
    )  # fmt: skip
    pairing: Pairing = _option(
        "auto", "--pairing", "pair runs of equal seed; auto: where at least two seeds match (auto)",
        choices=PAIRINGS,
    )  # fmt: skip
    detect: float | None = _option(
        None, "--detect",
        "smallest difference to detect, for the number of seeds needed (default: 1 point, or 0.01)",
        type=_difference, metavar="D",
    )  # fmt: skip
    data_set: str | None = _option(
        None, "--dataset",
        "data set of the model-index, its name on the hub if it has one (default: name of the data "
        "folder that the manifests record)",
        type=escaped, metavar="ID",
    )  # fmt: skip
    digits: int | None = None
    bold: bool = False
    wide: bool = False
    width: str | None = None
    """A key of `WIDTHS`; None for figures on a screen."""
    labels: Mapping[str, str] = field(default_factory=dict)
    captions: Mapping[str, str] = field(default_factory=dict)
    """By name of the table."""
    latex_labels: Mapping[str, str] = field(default_factory=dict)
    file: str = ""
    """The study file, for messages."""
    options: tuple[str, ...] = ()
    """The fields that were given on the command line, for messages."""

    def overridden(self, given: Mapping[str, Any]) -> Query:
        """The query with the values of options, by name of the field; None changes nothing."""
        changed = {name: frozen(given[name]) for name in OPTIONS if given.get(name) is not None}
        # The folder of a group in another folder is a path, which is read as given.
        if "groups" in changed:
            changed["groups"] = tuple(
                name if in_folder(name) else escaped(name) for name in changed["groups"]
            )
        options = tuple(changed)
        if "pairs" not in changed and {"groups", "baseline"} & set(changed):
            changed["pairs"] = ()  # those of the file belong to its groups
        return replace(self, **changed, options=options)

    def where(self, key: str) -> str:
        """The option or the key of the file that contains the value of a field, for messages."""
        return OPTIONS[key]["flag"] if key in self.options else f"{self.file}, {key}"

    def resolved_for(self, frame: pd.DataFrame) -> Study:
        """The study of the groups of a frame with `arm` and `init`, such as a long table; see `Study.of`."""
        groups = frame[GROUP].drop_duplicates().sort_values(GROUP).itertuples(index=False)
        return Study.of(self, (f"{arm}/{init}" for arm, init in groups))


OPTIONS: dict[str, Mapping[str, Any]] = {one.name: one.metadata for one in fields(Query) if one.metadata}
"""Field of `Query` that is an option -> its `flag`, and the arguments of `add_argument`."""


@dataclass(frozen=True)
class Study:
    """A query for the runs that were read. Nothing is open in it; `Study.of` checks the groups."""

    query: Query
    known: tuple[str, ...] = ()
    """All groups that were read, in alphabetical order; also those that are not selected have a color."""
    metric: str = DEFAULT_METRIC
    """The metric that is reported."""
    by: str = DEFAULT_METRIC
    """The metric that selects the best checkpoint."""
    choose_on: str = SELECTING
    """The split on which it selects."""
    split: str = REPORTED
    """The split that is reported."""

    @classmethod
    def of(cls, query: Query, known: Iterable[str], *, folders: bool = False) -> Study:
        """The study of these groups, with the metrics and splits of the query, or the usual ones.

        With `folders`, `groups` and `pairs` may contain groups of other folders. Raises `UserError` for an
        unknown group, for a name that two groups have, if no group is left and if the baseline or a pair is
        not among them.
        """
        metric = query.metric or DEFAULT_METRIC
        splits = query.choose_on or SELECTING, query.split or REPORTED
        study = cls(query, tuple(dict.fromkeys(known)), metric, query.by or metric, *splits)
        compared: dict[str, tuple[str, ...]] = {
            "baseline": () if query.baseline is None else (query.baseline,),
            "pairs": tuple(dict.fromkeys(name for pair in query.pairs for name in pair)),
        }
        named = {key: getattr(query, key) for key in ("groups", "exclude", "order", "labels")} | compared
        for key, names in named.items():
            for name in names:
                elsewhere = in_folder(name) and key != "baseline"
                elsewhere &= folders or key not in ("groups", "pairs")
                arms = set(map(arm_of, study.known)) if key == "labels" else ()
                if name not in study.known and name not in arms and not elsewhere:
                    raise UserError(
                        f"{query.where(key)}: no run of the group '{name}'{nearest(name, study.known)}; "
                        f"available: {', '.join(study.known)}"
                    )
        labelled: dict[str, str] = {}
        for group in study._named:
            if (other := labelled.setdefault(study.label(group), group)) != group:
                raise UserError(
                    f"{query.where('labels')}: '{other}' and '{group}' would both be called "
                    f"'{study.label(group)}'; give them different labels"
                )
        if not study.selected:
            raise UserError(
                f"{query.where('exclude')}: no group is left of {', '.join(study.known)}; exclude fewer"
            )
        for key, names in compared.items():
            for name in names:
                if name in study.known and name not in study.selected:
                    raise UserError(
                        f"{query.where(key)}: '{name}' is not selected; choose one of "
                        f"{', '.join(study.selected)}"
                    )
        return study

    @cached_property
    def selected(self) -> tuple[str, ...]:
        """The groups of the folder that are shown, in order."""
        chosen = [name for name in self.query.groups if name in self.known] or self.known
        return tuple(self.ordered(name for name in chosen if name not in self.query.exclude))

    @cached_property
    def _rank(self) -> dict[str, int]:
        names = dict.fromkeys([*self.query.order, *self.query.groups])
        return {name: rank for rank, name in enumerate(names)}

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
        labels = self.query.labels
        if name in labels:
            return labels[name]
        arm, slash, init = name.rpartition("/")
        return f"{labels.get(arm, arm)}{slash}{init}"

    def relabel(self, text: str) -> str:
        """A text with the labels instead of the names of groups; labels with a comma are quoted."""
        groups = [group for group in self._named if self.label(group) != group]
        if not groups:
            return text
        names = "|".join(re.escape(group) for group in sorted(groups, key=len, reverse=True))
        pattern = rf"(?<![{NOT_IN_NAMES}])({names})(?=/seed\d|[.,:]?(?![{NOT_IN_NAMES}]))"
        label_of = {group: self.label(group) for group in groups}
        shown = {group: f"“{text}”" if "," in text else text for group, text in label_of.items()}
        return re.sub(pattern, lambda match: shown[match[0]], text)

    @cached_property
    def _named(self) -> list[str]:
        """All groups that were read or have a label."""
        return list(dict.fromkeys([*self.known, *(name for name in self.query.labels if "/" in name)]))

    def points(self, default: Sequence[str] | None = (BEST,)) -> list[str] | None:
        """Where groups are compared or shown: epochs and `best`; None for everywhere."""
        if "all" in self.query.at:
            return None
        return list(self.query.at) or (None if default is None else list(default))

    @property
    def lower(self) -> bool:
        """Whether lower values of `metric` are better; --direction applies to it if it also selects."""
        return lower_is_better(self.metric, self.query.direction if self.by == self.metric else "auto")

    @property
    def selects_lowest(self) -> bool:
        """Whether the lowest value of `by` is best."""
        return lower_is_better(self.by, self.query.direction)

    @property
    def difference(self) -> float:
        """The smallest difference to detect."""
        return self.query.detect or (1.0 if in_percent(self.metric) else 0.01)

    @property
    def std_note(self) -> str:
        """How standard deviations are computed."""
        return STD_NOTES[self.query.ddof]

    @property
    def note(self) -> str:
        """A note on how best checkpoints are selected."""
        extreme = "lowest" if self.selects_lowest else "highest"
        warning = ""
        if self.choose_on == REPORTED:
            warning = " A score selected on the test set is biased upwards."
        elif self.choose_on == self.split:
            warning = (
                f" The values on {self.split} are optimistic, because {self.split} was also used for the "
                "selection; evaluate the best checkpoints on a test set."
            )
        rule = f"{TIE_NOTES[self.query.ties]} (tie rule {self.query.ties})"
        return f"Best: {extreme} {label(self.by)} on {self.choose_on}; {rule}.{warning}"


NO_STUDY = Study(Query())
"""All groups, with their own names."""


def add(parser: argparse._ActionsContainer, names: Iterable[str]) -> None:
    """Add the options of these names to a parser; they are None unless they are given."""
    for name in names:
        arguments = dict(OPTIONS[name])
        parser.add_argument(arguments.pop("flag"), dest=name, default=None, **arguments)


def names_of(frame: pd.DataFrame) -> pd.Series:
    """The group of each row of a frame with `arm` and `init`, or its column `group` if it has one."""
    return frame["group"] if "group" in frame else frame["arm"].astype(str) + "/" + frame["init"].astype(str)


def arm_of(group: str) -> str:
    """The arm of a group: `fairseq,lr=1e-4` for `fairseq,lr=1e-4/random`."""
    return group.rpartition("/")[0]


def in_folder(name: str) -> bool:
    """Whether the name is that of a group in another folder: FOLDER:METHOD/INIT."""
    folder, colon, group = name.rpartition(":")
    return bool(folder and colon) and group.count("/") == 1


def frozen(value: Any) -> Any:
    """Lists as tuples."""
    return tuple(map(frozen, value)) if isinstance(value, list) else value
