"""The functions that compute the numbers of the documentation from committed files.

An expression is a call of one of `FUNCTIONS`: `mean("cls-books:fairseq/random", 5)`. `docs/check_numbers.py`
writes their values into the pages.
"""

from __future__ import annotations

import ast
import csv
import functools
import json
import operator
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from roberta_small.analysis import best_checkpoints, compare_groups, load_runs, read_study, scores, values_of
from roberta_small.common import archive
from roberta_small.common.errors import UserError
from roberta_small.common.files import ROOT
from roberta_small.common.metrics import number
from roberta_small.common.statistics import mean_std, t_interval, wilson_interval
from roberta_small.common.tables import p_value


def mean(
    group: str,
    at: str | int = "best",
    *,
    metric: str = "accuracy",
    subset: str = "test",
    ddof: int = 1,
    seeds: int | None = None,
) -> str:
    """Mean and standard deviation over the seeds: `66.07 ± 2.72`. For groups and points see `_scores`."""
    middle, std = mean_std(_scores(group, at, metric, subset, seeds), ddof)
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


def majority(study: str) -> str:
    """Accuracy of the most frequent class of the test set, whose labels are in the predictions of TF-IDF."""
    lines = _run_file(study, "tfidf/tfidf/seed0/predictions-test.jsonl")
    classes = Counter(json.loads(line)["gold"] for line in lines)
    return number(100 * max(classes.values()) / len(lines), "accuracy")


def interval(group: str, at: str | int = "best", *, metric: str = "accuracy", subset: str = "test") -> str:
    """The mean with the 95 % t interval over the seeds: `80.15 [78.44, 81.86]`."""
    values = _scores(group, at, metric, subset)
    middle, _ = mean_std(values)
    return f"{number(middle, metric)} {_brackets(*t_interval(values), metric)}"


def signed(a: str, b: str, at: str | int = "best", *, metric: str = "accuracy", subset: str = "test") -> str:
    """The difference of two groups, paired by seed where possible: `+1.07 [-1.51, +3.64]`."""
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
    """`p = 0.270`, `p < 0.001`: of the t test over seeds, corrected for the pairs of the study file."""
    family = _family(study)
    found = family[(family["a"] == a) & (family["b"] == b) & (family["at"] == str(at))]
    shown = p_value(float(found["p_t_holm"].item()))
    return f"p {shown[0]} {shown[1:]}" if shown.startswith("<") else f"p = {shown}"


def comparisons(study: str) -> str:
    """The number of comparisons that `corrected` corrects for."""
    return str(len(_family(study)))


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


def cost(group: str) -> str:
    """Minutes of processor time of a run, and its peak memory in MiB, means over the seeds: `3.4 | 812`."""
    study, _, name = group.partition(":")
    runs = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(_runs_folder(study).glob(f"{name}/seed*/manifest.json"))
    ]
    seconds, peak = (
        sum(run[key] for run in runs) / len(runs) for key in ("cpu_seconds", "peak_memory_bytes")
    )
    return f"{seconds / 60:.1f} | {peak / (1 << 20):,.0f}"


def default_command(study: str) -> str:
    """What `roberta-small train --data FILE` reports of its methods, in cells of a table.

    Test accuracy of the majority class, TF-IDF with its 95 % interval, n-grams, encoder (means over seeds);
    the method with the highest validation accuracy, and its difference to TF-IDF; the processor time of all
    methods as a multiple of that of the encoder.
    """
    methods = {"tfidf/tfidf": "TF-IDF", "ngrams/random": "n-grams", "fairseq/random": "encoder"}
    valid, test = (
        {name: float(_scores(f"{study}:{name}", "best", "accuracy", subset).mean()) for name in methods}
        for subset in ("valid", "test")
    )
    true = [json.loads(line)["gold"] for line in _run_file(study, "tfidf/tfidf/seed0/predictions-test.jsonl")]
    majority = 100 * max(map(true.count, set(true))) / len(true)
    interval = [100 * bound for bound in wilson_interval(test["tfidf/tfidf"] / 100, len(true))]
    named = max(methods, key=lambda name: valid[name])
    seconds = dict.fromkeys(methods, 0.0)
    for name in methods:
        for seed in _runs_folder(study).glob(f"{name}/seed*/manifest.json"):
            seconds[name] += json.loads(seed.read_text(encoding="utf-8"))["cpu_seconds"]
    return " | ".join(
        [
            f"{majority:.2f}",
            f"{test['tfidf/tfidf']:.2f} {_brackets(*interval, 'accuracy')}",
            f"{test['ngrams/random']:.2f}",
            f"{test['fairseq/random']:.2f}",
            methods[named],
            _plus(test[named] - test["tfidf/tfidf"], "accuracy"),
            f"{sum(seconds.values()) / seconds['fairseq/random']:.2f}",
        ]
    )


FUNCTIONS: dict[str, Callable[..., str]] = {
    function.__name__: function
    for function in (
        mean,
        only,
        majority,
        interval,
        signed,
        cell,
        value,
        compared,
        corrected,
        comparisons,
        configurations,
        logged,
        hours,
        formula,
        benchmark,
        from_published,
        cost,
        default_command,
    )
}


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


def _scores(group: str, at: str | int, metric: str, subset: str, seeds: int | None = None) -> Any:
    """The values of the seeds of a group `STUDY:METHOD/INIT` at the best checkpoint or after an epoch.

    `seeds` leaves out larger ones, for a comparison with fewer.

    STUDY is a folder below results/ that contains runs, directly or in `runs`. An archive is read as a folder
    of its name without `.tar.xz`.
    """
    study, _, name = group.partition(":")
    values = _study(study, metric, subset)
    found = values.loc[(values["group"] == name) & (values["at"] == str(at))]
    found = found.loc[found["seed"].astype(int) <= (seeds or sys.maxsize), "value"]
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
def _family(study: str) -> Any:
    """All comparisons of the study file, which lies in the folder of the runs."""
    read = read_study(ROOT / "results" / study / "study.toml")
    groups = list(dict.fromkeys(group for pair in read.pairs for group in pair))
    return compare_groups(_study(study, "accuracy", "test"), groups, pairs=read.pairs, at=read.at or ["best"])


def _runs_folder(study: str) -> Path:
    """The folder of runs of a study below results/."""
    inside, folder = (_committed(f"results/{name}") for name in (f"{study}/runs", study))
    return inside if inside.exists() else folder


def _run_file(study: str, path: str) -> list[str]:
    """The lines of a file of a study's runs."""
    return (_runs_folder(study) / path).read_text(encoding="utf-8").splitlines()


@functools.cache
def _study(study: str, metric: str, subset: str) -> Any:
    table = _table(_runs_folder(study))
    return scores(table, best_checkpoints(table), metric, subset)


@functools.cache
def _table(folder: Path) -> Any:
    return load_runs(folder)
