"""Numbers in the documentation: computed from committed files, and checked.

A number is enclosed in a pair of comments that do not appear in the rendered page. The first one contains the
expression that computes it:

    Random weights reach <!--= mean("cls-books:fairseq/random") -->66.07 ± 2.72<!--/--> %.

    python docs/check_numbers.py            compare every number with its expression; list those without one
    python docs/check_numbers.py --write    replace numbers that differ

A marker does not begin a line, which would begin an HTML block, and does not contain two hyphens, which end a
comment on GitHub (write `"\\x2d-jobs"`).

An expression is a call of a function of `FUNCTIONS`. Numbers that no committed file contains (settings,
sizes, published results) are listed with a reason in `docs/given.toml`. Code, link targets and dates are not
checked.
"""

from __future__ import annotations

import argparse
import ast
import csv
import functools
import json
import operator
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from roberta_small.analysis import best_checkpoints, compare_groups, load_runs, scores, values_of  # noqa: E402
from roberta_small.common import archive  # noqa: E402
from roberta_small.common.cli import Parser  # noqa: E402
from roberta_small.common.errors import UserError, report_errors  # noqa: E402
from roberta_small.common.files import atomic_write  # noqa: E402
from roberta_small.common.metrics import number  # noqa: E402
from roberta_small.common.statistics import mean_std, t_interval  # noqa: E402
from roberta_small.common.tables import p_value  # noqa: E402

GIVEN = ROOT / "docs" / "given.toml"
MARKED = re.compile(r"<!--=\s*(?P<expression>.+?)\s*-->(?P<text>.*?)<!--/-->", re.DOTALL)
UNCHECKED = re.compile(
    r"^```.*?^```|`[^`\n]*`|<!--.*?-->|\]\([^)\s]*\)|\b\d{4}-\d\d-\d\d\b", re.DOTALL | re.MULTILINE
)
"""Fenced and inline code, comments, link targets and dates."""
UNITS = (
    r"%|points?\b|times\b|percent|bits?\b|ms\b|s\b|min(?:utes?)?\b|hours?\b|[KMG]i?B\b|tokens?\b|reviews?\b"
)
NUMBER = re.compile(
    rf"(?<![\w.,])[-+−]?(?:\d+(?:,\d{{3}})*\.\d+|\d{{1,3}}(?:,\d{{3}})+|\d+(?=[ -]?(?:{UNITS})))"
)
"""A number with decimals, with thousands, or with a unit."""


def mean(
    group: str, at: str | int = "best", *, metric: str = "accuracy", subset: str = "test", ddof: int = 1
) -> str:
    """Mean and standard deviation over the seeds: `66.07 ± 2.72`. For groups and points see `_scores`."""
    middle, std = mean_std(_scores(group, at, metric, subset), ddof)
    return f"{number(middle, metric)} ± {number(std, metric)}"


def only(
    group: str,
    at: str | int = "best",
    *,
    metric: str = "accuracy",
    subset: str = "test",
    digits: int | None = None,
) -> str:
    """The mean over the seeds alone; `digits` decimals instead of the metric's."""
    middle, _ = mean_std(_scores(group, at, metric, subset))
    return number(middle, metric) if digits is None else f"{middle:.{digits}f}"


def interval(group: str, at: str | int = "best", *, metric: str = "accuracy", subset: str = "test") -> str:
    """The mean with the 95 % t interval over the seeds: `80.15 [78.44, 81.86]`."""
    values = _scores(group, at, metric, subset)
    middle, _ = mean_std(values)
    return f"{number(middle, metric)} {_brackets(*t_interval(values), metric)}"


def difference(
    a: str, b: str, at: str | int = "best", *, metric: str = "accuracy", subset: str = "test"
) -> str:
    """The difference of two groups, paired by seed where possible, with its 95 % interval."""
    row = _comparison(a, b, str(at), metric, subset)
    return f"{number(row['difference'], metric):s} {_brackets(row['low'], row['high'], metric)}"


def signed(a: str, b: str, at: str | int = "best", *, metric: str = "accuracy", subset: str = "test") -> str:
    """`difference` with an explicit sign of all values: `+1.07 [-1.51, +3.64]`."""
    row = _comparison(a, b, str(at), metric, subset)
    middle, low, high = (_plus(row[key], metric) for key in ("difference", "low", "high"))
    return f"{middle} [{low}, {high}]"


def cell(path: str, column: str, shown: str = ".2f", **where: str) -> str:
    """A cell of a committed CSV file, formatted; `where` are column=value pairs that select one row."""
    with (ROOT / "results" / path).open(encoding="utf-8", newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if all(row[key] == str(v) for key, v in where.items())]
    if len(rows) != 1:
        raise UserError(f"{path}: {len(rows)} rows with {where}; select exactly one")
    return format(float(rows[0][column]), shown)


def value(path: str, place: str, shown: str = ".2f", scale: float = 1.0) -> str:
    """A number of a committed JSON file, times `scale`, formatted; `place` is its path: `runs.0.seconds`."""
    return format(_at(path, place) * scale, shown)


def formula(path: str, terms: str, shown: str = ".2f", **places: str) -> str:
    """The value of `terms` (+, -, *, / of constants and names), formatted.

    `places` are the places of the names in a committed JSON file:
    `formula("results/scale/text.json", "b / s / 1e6", b="rows.0.text_bytes", s="rows.0.binarize_seconds")`.
    """
    names = {name: float(_at(path, place)) for name, place in places.items()}
    return format(_arithmetic(ast.parse(terms, mode="eval").body, names), shown)


def benchmark(
    work: str,
    contender: str,
    shown: str = ".0f",
    scale: float = 1.0,
    *,
    quantity: str = "median",
    over: str = "",
    file: str = "results/benchmarks/benchmarks.json",
) -> str:
    """A number of a contender of `python -m benchmarks`; with `over`, divided by that of another one."""
    place = f"benchmarks.name={work}.contenders.contender={{}}.{quantity}"
    found = _at(file, place.format(contender))
    return format(found * scale / (_at(file, place.format(over)) if over else 1), shown)


def compared(
    a: str,
    b: str,
    column: str,
    shown: str = ".2f",
    at: str | int = "best",
    *,
    metric: str = "accuracy",
    subset: str = "test",
) -> str:
    """One column of the comparison of two groups: `difference`, `low`, `high`, `p_t`, `seeds_needed`, ..."""
    return format(float(_comparison(a, b, str(at), metric, subset)[column]), shown)


def corrected(study: str, a: str, b: str, at: str | int = "best") -> str:
    """`p = 0.27` or `p < 0.001`: of the t test over seeds, corrected over the family of `comparison.csv`."""
    shown = p_value(float(cell(f"{study}/comparison.csv", "p_t_holm", "", a=a, b=b, at=str(at))))
    return f"p {shown[0]} {shown[1:]}" if shown.startswith("<") else f"p = {shown}"


def configurations(*studies: str) -> str:
    """The number of groups (method, settings and initialization) in these studies."""
    groups = [set(_study(study, "accuracy", "test")["group"]) for study in studies]
    return str(sum(map(len, groups)))


def logged(
    run: str, metric: str, at: str | int = "last", shown: str = ".2f", *, subset: str = "valid"
) -> str:
    """A scalar of one run, a folder below results/: `last`, `lowest`, `median`, or at an update."""
    return format(_logged(run, metric, at, subset), shown)


def hours(run: str, tokens: float, shown: str = ".1f") -> str:
    """The hours that a run needs for `tokens` at its median throughput."""
    return format(tokens / _logged(run, "wps", "median", "train_inner") / 3600, shown)


def from_published(
    group: str, at: str | int = "best", shown: str = "+.2f", *, metric: str = "accuracy", subset: str = "test"
) -> str:
    """The mean over the seeds less the mean that the `published.csv` of the study has for the group."""
    study, _, name = group.partition(":")
    arm, _, init = name.rpartition("/")
    where = {"arm": arm, "init": init, "epoch": str(at), "subset": subset, "metric": metric}
    middle, _ = mean_std(_scores(group, at, metric, subset))
    return format(middle - float(cell(f"{study}/published.csv", "mean", "", **where)), shown)


FUNCTIONS: dict[str, Callable[..., str]] = {
    function.__name__: function
    for function in (
        mean,
        only,
        interval,
        difference,
        signed,
        cell,
        value,
        compared,
        corrected,
        configurations,
        logged,
        hours,
        formula,
        benchmark,
        from_published,
    )
}


def documents() -> list[Path]:
    """README, the pages of docs/ (without the generated command reference), results and model card."""
    pages = [path for path in (ROOT / "docs").rglob("*.md") if path.name != "command-line.md"]
    folders = [*(ROOT / "results").rglob("README.md"), *(ROOT / "pretrained").rglob("README.md")]
    return [ROOT / "README.md", *sorted(pages), *sorted(folders)]


def compute(expression: str) -> str:
    """The value of an expression; raises `UserError` if it is not valid or cannot be computed."""
    try:
        call = ast.parse(expression, mode="eval").body
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
            raise UserError("not a call of a function")
        arguments = [ast.literal_eval(node) for node in call.args]
        options = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
        return FUNCTIONS[call.func.id](*arguments, **options)
    except (UserError, OSError, LookupError, TypeError, ValueError, SyntaxError) as error:
        raise UserError(f"{expression}: {type(error).__name__}: {error}") from None


def differences(text: str) -> Iterator[tuple[str, str, str]]:
    """(expression, text, computed) of every marked number that is not as computed."""
    for match in MARKED.finditer(text):
        computed = compute(match["expression"])
        if computed != match["text"]:
            yield match["expression"], match["text"], computed


def unmarked(text: str, given: list[str]) -> Iterator[tuple[int, str]]:
    """(line, number) of every number that is neither marked nor within one of the `given` phrases."""
    blank = _blanked(text)
    covered = [match.span() for phrase in given for match in re.finditer(_pattern(phrase), blank)]
    for match in NUMBER.finditer(blank):
        if not any(low <= match.start() and match.end() <= high for low, high in covered):
            yield text.count("\n", 0, match.start()) + 1, match[0]


def given_phrases(path: Path) -> list[str]:
    """The phrases of `docs/given.toml` for a document: its own, and those of all documents."""
    content = tomllib.loads(GIVEN.read_text(encoding="utf-8"))
    return [*content.get("*", {}), *content.get(str(path.relative_to(ROOT)), {})]


def _pattern(phrase: str) -> str:
    """A regular expression for a phrase that lines may break anywhere."""
    return r"\s+".join(map(re.escape, phrase.split()))


def _blanked(text: str) -> str:
    """The text with marked numbers, code, comments and link targets replaced by blanks of the same length."""

    def blanks(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match[0])

    return UNCHECKED.sub(blanks, MARKED.sub(blanks, text))


def _brackets(low: float, high: float, metric: str) -> str:
    return f"[{number(low, metric)}, {number(high, metric)}]"


def _at(path: str, place: str) -> Any:
    """What a committed JSON file has at a place of keys; in lists, a position, KEY=VALUE or `length`."""
    found: Any = json.loads(_committed(path).read_text(encoding="utf-8"))
    for step in place.split("."):
        key, selects, wanted = step.partition("=")
        if isinstance(found, list) and selects:
            (found,) = [element for element in found if str(element.get(key)) == wanted]
        elif isinstance(found, list) and step == "length":
            found = len(found)
        else:
            found = found[int(step)] if isinstance(found, list) else found[step]
    return found


_OPERATIONS: dict[type, Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def _arithmetic(node: ast.expr, names: dict[str, float]) -> float:
    if isinstance(node, ast.BinOp):
        return _OPERATIONS[type(node.op)](_arithmetic(node.left, names), _arithmetic(node.right, names))
    return names[node.id] if isinstance(node, ast.Name) else float(ast.literal_eval(node))


def _plus(x: float, metric: str) -> str:
    shown = number(x, metric)
    return shown if shown.startswith(("-", "−")) else f"+{shown}"


def _comparison(a: str, b: str, at: str, metric: str, subset: str) -> dict[str, Any]:
    import pandas as pd

    frames, names = [], []
    for position, name in enumerate((a, b)):
        study, _, group = name.partition(":")
        values = _study(study, metric, subset)
        # Two studies may have groups of the same name.
        names.append(f"{position}:{group}")
        frames.append(values[values["group"] == group].assign(group=names[-1]))
    return compare_groups(pd.concat(frames), names, at=[at]).iloc[0].to_dict()


def _scores(group: str, at: str | int, metric: str, subset: str) -> Any:
    """The values of the seeds of a group `STUDY:METHOD/INIT` at the best checkpoint or after an epoch.

    STUDY is a folder below results/ that contains runs, directly or in `runs`. An archive is read as a folder
    of its name without `.tar.xz`.
    """
    study, _, name = group.partition(":")
    values = _study(study, metric, subset)
    found = values.loc[(values["group"] == name) & (values["at"] == str(at)), "value"]
    if found.empty:
        raise UserError(f"no group {name} at {at}; there are {', '.join(sorted(set(values['group'])))}")
    return found.to_numpy(dtype=float)


def _logged(run: str, metric: str, at: str | int, subset: str) -> float:
    found = values_of(_table(_committed(f"results/{run}")), subset, metric)
    by_step = found.set_index("step")["value"]
    if at == "last":
        return float(by_step.iloc[-1])
    return float({"lowest": by_step.min, "median": by_step.median}.get(str(at), lambda: by_step.loc[at])())


def _committed(path: str) -> Path:
    """A committed file or folder, also one of an archive: `results/engine/runs/...` of `runs.tar.xz`."""
    place = ROOT / path
    for folder in (place, *place.parents[: len(place.relative_to(ROOT).parts) - 1]):
        packed = folder.with_name(folder.name + archive.SUFFIX)
        if packed.is_file():
            return archive.opened(packed) / place.relative_to(folder)
    return place


@functools.cache
def _study(study: str, metric: str, subset: str) -> Any:
    inside, folder = (_committed(f"results/{name}") for name in (f"{study}/runs", study))
    table = _table(inside if inside.exists() else folder)
    return scores(table, best_checkpoints(table), metric, subset)


@functools.cache
def _table(folder: Path) -> Any:
    return load_runs(folder)


@report_errors
def main(argv: list[str] | None = None) -> int:
    """Check or write; 1 if a number differs from its expression or has none."""
    parser = Parser(
        prog="python docs/check_numbers.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--write", action="store_true", help="replace numbers that differ")
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="documents (default: all)")
    args = parser.parse_args(argv)
    faults = 0
    for path in [file.resolve() for file in args.files] or documents():
        text = path.read_text(encoding="utf-8")
        changed = list(differences(text))
        for expression, old, new in changed:
            print(f"{path.relative_to(ROOT)}: {old} -> {new}  ({expression})")
        if changed and args.write:
            text = MARKED.sub(
                lambda m: m[0].replace(f"-->{m['text']}<", f"-->{compute(m['expression'])}<"), text
            )
            atomic_write(path, text)
        else:
            faults += len(changed)
        for line, found in unmarked(text, given_phrases(path)):
            print(
                f"{path.relative_to(ROOT)}, line {line}: {found} has no expression and is not in {GIVEN.name}"
            )
            faults += 1
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
