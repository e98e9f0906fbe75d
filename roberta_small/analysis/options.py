"""The options of the commands, each described once, and the values made from them.

A command adds its options by name with `add`, and turns what was parsed into a `Query` and an `Output`. Every
option is None unless it is given.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any

from roberta_small.analysis.compare import PAIRINGS
from roberta_small.analysis.published import OPTIONAL, REQUIRED
from roberta_small.analysis.query import DEFAULT_METRIC, Query
from roberta_small.analysis.scoring import TIE_RULES
from roberta_small.analysis.study import Study, read_study
from roberta_small.analysis.style import FORMATS as FIGURE_FORMATS
from roberta_small.common.cli import Collect, Parser, positive
from roberta_small.common.data_folder import NOTIONS
from roberta_small.common.files import escaped
from roberta_small.common.label_kinds import KINDS, MULTI_LABEL, REGRESSION
from roberta_small.common.metrics import DIRECTIONS
from roberta_small.common.tables import FORMATS

RUNS = "folder of runs (<method>/<init>/seed<N>/) or of other logs, or an archive (see `collect`)"
DATA_SETS = (
    f"{RUNS}; of several data sets: their folder (<data set>/<method>/<init>/seed<N>/), or NAME=FOLDER each"
)
CHOICE = ("metric", "by", "subset", "ties", "direction", "reported")
SELECTION = ("include_unfinished", "accuracies", "study", "groups")
PRESENTATION = ("format", "out")


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text} is not a finite number")
    return value


def _difference(text: str) -> float:
    value = abs(_number(text))
    if not value:
        raise argparse.ArgumentTypeError(f"{text} is not a number other than 0")
    return value


def _flag(text: str) -> dict[str, Any]:
    return {"action": "store_true", "default": None, "help": text}


def _words(metavar: str, text: str, **more: Any) -> dict[str, Any]:
    return {"nargs": "+", "action": Collect, "metavar": metavar, "help": text, **more}


OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "metric": ("--metric", {
        "type": escaped,
        "help": "metric to report on --split, and to select on --choose-on without --by, for example "
        f"macro_f1, mcc or loss ({DEFAULT_METRIC}; of multi-label runs {KINDS[MULTI_LABEL].metric}, of "
        f"regressions {KINDS[REGRESSION].metric})",
    }),
    "by": ("--by", {
        "type": escaped, "metavar": "METRIC",
        "help": "metric that selects the best checkpoint (default: --metric, or without it the one that "
        "selected the runs' checkpoint_best.pt)",
    }),
    "subset": ("--choose-on", {
        "type": escaped, "metavar": "SPLIT",
        "help": "split on which the best checkpoint is selected (default: valid, or the only evaluated one)",
    }),
    "ties": ("--ties", {
        "choices": TIE_RULES,
        "help": "how to break ties between checkpoints; fairseq keeps the latest (latest)",
    }),
    "direction": ("--direction", {
        "choices": DIRECTIONS,
        "help": "whether high or low values of --by are better; auto: defined by the metric (auto)",
    }),
    "reported": ("--split", {
        "type": escaped, "metavar": "SPLIT",
        "help": "split to report (default: test, or the only evaluated one)",
    }),
    "ddof": ("--ddof", {
        "type": int, "choices": (0, 1), "help": "standard deviation: 1 sample, 0 population (1)",
    }),
    "include_unfinished": ("--include-unfinished", _flag("also use runs that are not finished")),
    "accuracies": ("--accuracies", {
        "choices": ("auto", "percent", "fraction"),
        "help": "how runs of other trainers logged accuracy; auto: as fractions if none is above 1 (auto)",
    }),
    "study": ("--study", {
        "metavar": "FILE",
        "help": "TOML file with names, order and selection of groups, digits, captions, ... "
        "(docs/how-to/analysis.md)",
    }),
    "groups": ("--groups", _words(
        "GROUP",
        "only these groups, METHOD/INIT each, in this order (default: all); for `compare` also "
        "FOLDER:METHOD/INIT, of another folder",
    )),
    "baseline": ("--baseline", {
        "type": escaped, "metavar": "GROUP",
        "help": "group that the others are compared with: marks of significant differences in tables of "
        "means, comparisons with it alone in `compare` and `report`",
    }),
    "pairs": ("--pair", {
        "nargs": 2, "type": escaped, "action": "append", "metavar": ("A", "B"),
        "help": "compare only these two groups, METHOD/INIT each; repeatable: the corrected p-values count "
        "all pairs given as one family (default: all pairs; in a report, each group with the baseline)",
    }),
    "all_pairs": ("--all-pairs", _flag(
        "compare all pairs of groups, which are then one family of corrected p-values"
    )),
    "at": ("--at", {
        "nargs": "+", "metavar": "EPOCH",
        "help": "epochs to compare or show, best or all (default: best; for the table seeds, all)",
    }),
    "reference": ("--reference", {
        "metavar": "FILE",
        "help": f"published results to compare with; .csv, .md or .json with the columns "
        f"{', '.join(REQUIRED)} and optionally {', '.join(OPTIONAL)}",
    }),
    "test_size": ("--test-size", {
        "type": positive, "metavar": "N",
        "help": "examples in the reported split (default: counted in the audit, the prediction files or the "
        "data folder)",
    }),
    "audit": ("--audit", {
        "metavar": "JSON", "help": "audit.json of the data folder: excludes duplicates of train",
    }),
    "duplicates": ("--duplicates", {
        "choices": NOTIONS, "help": "kind of duplicate to exclude from accuracy (exact)",
    }),
    "best_settings": ("--best-settings", _flag(
        "only the setting that validation selects for each method and init (of each data set)"
    )),
    "chance": ("--chance", {
        "type": _number, "metavar": "VALUE",
        "help": "chance level, for example 50, drawn as a horizontal line",
    }),
    "pairing": ("--pairing", {
        "choices": PAIRINGS,
        "help": "pair runs of equal seed; auto: where at least two seeds match (auto)",
    }),
    "detect": ("--detect", {
        "type": _difference, "metavar": "D",
        "help": "smallest difference to detect, for the number of seeds needed (default: 1 point, or 0.01)",
    }),
    "data_set": ("--dataset", {
        "type": escaped, "metavar": "ID",
        "help": "data set of the model-index, its name on the hub if it has one (default: name of the data "
        "folder that the manifests record)",
    }),
    "format": ("--format", {
        "choices": FORMATS,
        "help": "format of the printed tables; csv prints a single one, see --table (markdown)",
    }),
    "out": ("--out", {"metavar": "DIR", "help": "folder to also write the tables to, in every format"}),
    "figure_format": ("--figure-format", {
        "nargs": "+", "choices": FIGURE_FORMATS, "help": "formats of the figures (png)",
    }),
}  # fmt: skip
"""Name of an option, as the field of `Query`, `Study` or `Output` -> its flag and arguments."""


@dataclass(frozen=True)
class Output:
    """What is printed and written."""

    format: str = "markdown"
    out: str | None = None
    """A folder; None to print only."""
    names: tuple[str, ...] = ()
    """The requested tables or figures; empty for the default ones."""
    figure_format: tuple[str, ...] = ("png",)


def add(parser: argparse._ActionsContainer, names: Iterable[str], **changed: Any) -> None:
    """Add the options of these names; `changed` replaces arguments of all of them."""
    for name in names:
        flag, arguments = OPTIONS[name]
        parser.add_argument(flag, dest=name, **{**arguments, **changed})


def add_shared(parser: Parser) -> None:
    """Add the options of every selection: the best checkpoints, and the groups."""
    add(parser.add_argument_group("best checkpoints and what is reported of them"), CHOICE)
    add(parser.add_argument_group("runs and groups"), SELECTION)


def add_command(
    commands: argparse._SubParsersAction,
    name: str,
    run: Callable[[argparse.Namespace], None],
    text: str,
    examples: str,
    *,
    several: bool = False,
) -> Parser:
    """Add a command that reads runs; --help prints the lines of `examples` with this command.

    `text` is its help and description. With `several`, it reads the runs of one or more data sets.
    """
    own = [line for line in examples.splitlines() if f"roberta-small {name} " in f"{line} "]
    parser = commands.add_parser(
        name,
        help=text,
        description=text[0].upper() + text[1:] + ".",
        examples="\n".join(["examples:", *own]),
    )
    parser.add_argument(
        "runs", metavar="RUNS", nargs="+" if several else None, help=DATA_SETS if several else RUNS
    )
    parser.add_argument(
        "--pattern", metavar="PATH",
        help="path layout of runs without manifest.json, for example '{init}/{seed}/{subset}'; also {arm}, * "
        "and ** (default: inferred from the paths, see `runs`)",
    )  # fmt: skip
    parser.set_defaults(command=run)
    return parser


def query_of(options: argparse.Namespace) -> Query:
    """The query of parsed options. Raises `UserError` as `read_study` and `Study.overridden`."""
    given = vars(options)
    study = read_study(given["study"]) if given.get("study") else Study()
    given = {**given, "study": study.overridden(given)}
    return Query(**_fields(Query, given))


def output_of(options: argparse.Namespace, kind: str = "table") -> Output:
    """The output of parsed options; the requested names are those of the option `kind`."""
    given = vars(options)
    found = {**given, "names": tuple(given.get(kind) or ())}
    if given.get("figure_format") is not None:
        found["figure_format"] = tuple(given["figure_format"])
    return Output(**_fields(Output, found))


def _fields(kind: type, given: dict[str, Any]) -> dict[str, Any]:
    """The values that are given for the fields of a data class."""
    names = [one.name for one in fields(kind)]
    return {name: given[name] for name in names if given.get(name) is not None}
