"""The functions that compute the numbers of the documentation from committed files.

An expression is a line of Python with these functions and `format`: `mean("cls-books:fairseq/random", 5)`,
`format(value("results/scale/runs.json", "rows.2.runs"), ",.0f")`. `docs/check_numbers.py` writes their values
into the pages.

A group is `STUDY:METHOD/INIT`, with its values at the best checkpoint or after an epoch. STUDY is a folder
below results/ that contains runs, directly or in `runs`. An archive is read as a folder of its name without
`.tar.xz`.
"""

from __future__ import annotations

import csv
import functools
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from roberta_small.analysis import best_checkpoints, compare_groups, load_runs, read_study, scores, values_of
from roberta_small.common import archive
from roberta_small.common.errors import UserError
from roberta_small.common.files import ROOT
from roberta_small.common.metrics import number
from roberta_small.common.statistics import mean_std, t_interval, wilson_interval
from roberta_small.common.tables import mean_std_cell, p_value

At = str | int


def mean(
    group: str, at: At = "best", *, subset: str = "test", ddof: int = 1, seeds: int = sys.maxsize
) -> str:
    """Mean and standard deviation of the accuracies of the seeds up to `seeds`: `66.07 ± 2.72`."""
    return mean_std_cell(*mean_std(_scores(group, at, "accuracy", subset, seeds), ddof), "accuracy")


def average(group: str, at: At = "best", *, metric: str = "accuracy", subset: str = "test") -> float:
    """The mean over the seeds."""
    return float(_scores(group, at, metric, subset).mean())


def only(group: str, at: At = "best", *, subset: str = "test") -> str:
    """The mean accuracy over the seeds: `66.07`."""
    return number(average(group, at, subset=subset), "accuracy")


def draws(group: str) -> str:
    """Mean and standard deviation of the test accuracies of several draws of labels: `77.35 ± 2.94`.

    The draws of `STUDY/TABLE:METHOD/INIT` are the folders TABLE-1, TABLE-2, ... of the study, with one run of
    the method each. Of a single draw, it is the accuracy.
    """
    place, _, name = group.partition(":")
    study, _, table = place.rpartition("/")
    found = sorted(folder.name for folder in _runs_folder(study).glob(f"{table}-*"))
    middle, std = mean_std([average(f"{study}/{draw}:{name}") for draw in found])
    return number(middle, "accuracy") + (f" ± {number(std, 'accuracy')}" if len(found) > 1 else "")


def interval(group: str, at: At = "best") -> str:
    """Mean test accuracy with the 95 % t interval over the seeds: `80.15 [78.44, 81.86]`."""
    low, high = t_interval(_scores(group, at, "accuracy", "test"))
    return f"{only(group, at)} [{low:.2f}, {high:.2f}]"


def signed(a: str, b: str, at: At = "best", *, metric: str = "accuracy") -> str:
    """The difference of two groups, paired by seed where possible: `+1.07 [-1.51, +3.64]`."""
    columns = (number(compared(a, b, name, at, metric), metric) for name in ("difference", "low", "high"))
    middle, low, high = (shown if shown.startswith("-") else f"+{shown}" for shown in columns)
    return f"{middle} [{low}, {high}]"


def compared(a: str, b: str, column: str, at: At = "best", metric: str = "accuracy") -> float:
    """A column of the comparison of two groups: `difference`, `low`, `high`, `p_t`, `seeds_needed`, ..."""
    import pandas as pd

    frames, names = [], []
    for position, group in enumerate((a, b)):
        names.append(f"{position}:{group}")  # two studies may have groups of the same name
        frames.append(_rows(group, metric, "test").assign(group=names[-1]))
    return float(compare_groups(pd.concat(frames), names, at=[str(at)]).iloc[0][column])


def corrected(study: str, a: str, b: str, at: At = "best") -> str:
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
    return str(sum(_study(study, "accuracy", "test")["group"].nunique() for study in studies))


def cell(path: str, column: str, **where: At) -> float:
    """A number of a CSV file below results/; `where` are column=value pairs that select one row."""
    with (ROOT / "results" / path).open(encoding="utf-8", newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if all(row[key] == str(v) for key, v in where.items())]
    if len(rows) != 1:
        raise UserError(f"{path}: {len(rows)} rows with {where}; select exactly one")
    return float(rows[0][column])


def value(path: str, place: str) -> float:
    """A number of a committed JSON file at a place of keys; in lists, a position, KEY=VALUE or `length`."""
    found: Any = json.loads(_committed(path).read_text(encoding="utf-8"))
    for step in place.split("."):
        key, selects, wanted = step.partition("=")
        if isinstance(found, list) and selects:
            (found,) = [element for element in found if str(element.get(key)) == wanted]
        elif isinstance(found, list) and step == "length":
            found = len(found)
        else:
            found = found[int(step)] if isinstance(found, list) else found[step]
    return float(found)


def benchmark(
    work: str, contender: str, *, quantity: str = "median", file: str = "results/benchmarks/benchmarks.json"
) -> float:
    """A number of a contender of `python -m benchmarks`, without `quantity` its seconds."""
    return value(file, f"benchmarks.name={work}.contenders.contender={contender}.{quantity}")


def logged(run: str, metric: str, at: At = "last", *, subset: str = "valid") -> float:
    """A scalar of one run, a folder below results/: `last`, `lowest`, `median`, or at an update."""
    values = values_of(_table(_committed(f"results/{run}")), subset, metric).set_index("step")["value"]
    if at == "last":
        return float(values.iloc[-1])
    return float({"lowest": values.min, "median": values.median}.get(str(at), lambda: values.loc[at])())


def cost(group: str) -> str:
    """Minutes of processor time of a run, and its peak memory in MiB, means over the seeds: `3.4 | 812`."""
    runs = _manifests(group)
    seconds, peak = (
        sum(run[key] for run in runs) / len(runs) for key in ("cpu_seconds", "peak_memory_bytes")
    )
    return f"{seconds / 60:.1f} | {peak / 2**20:,.0f}"


def default_command(study: str) -> str:
    """What `roberta-small train --data FILE` reports of its methods, in cells of a table.

    Test accuracy of the majority class, TF-IDF with its 95 % interval, n-grams, encoder (means over seeds);
    the method with the highest validation accuracy, and its difference to TF-IDF; the processor time of all
    methods as a multiple of that of the encoder.
    """
    methods = {"tfidf/tfidf": "TF-IDF", "ngrams/random": "n-grams", "fairseq/random": "encoder"}
    valid, test = (
        {name: average(f"{study}:{name}", subset=subset) for name in methods} for subset in ("valid", "test")
    )
    predictions = _runs_folder(study) / "tfidf/tfidf/seed0/predictions-test.jsonl"
    classes = Counter(json.loads(line)["gold"] for line in predictions.read_text("utf-8").splitlines())
    low, high = wilson_interval(test["tfidf/tfidf"] / 100, classes.total())
    best = max(methods, key=valid.__getitem__)
    seconds = {name: sum(run["cpu_seconds"] for run in _manifests(f"{study}:{name}")) for name in methods}
    return " | ".join(
        [
            f"{100 * max(classes.values()) / classes.total():.2f}",
            f"{test['tfidf/tfidf']:.2f} [{100 * low:.2f}, {100 * high:.2f}]",
            f"{test['ngrams/random']:.2f}",
            f"{test['fairseq/random']:.2f}",
            methods[best],
            f"{test[best] - test['tfidf/tfidf']:+.2f}",
            f"{sum(seconds.values()) / seconds['fairseq/random']:.2f}",
        ]
    )


FUNCTIONS = {
    function.__name__: function
    for function in (
        mean, average, only, draws, interval, signed, compared, corrected, comparisons, configurations, cell,
        value, benchmark, logged, cost, default_command, format,
    )
}  # fmt: skip


def compute(expression: str) -> str:
    """The value of an expression; raises `UserError` if it is not valid or cannot be computed."""
    try:
        found = eval(expression, {"__builtins__": {}, **FUNCTIONS})
        if not isinstance(found, str):
            raise UserError("not a text; use format")
    except (UserError, OSError, LookupError, TypeError, ValueError, SyntaxError, NameError) as error:
        raise UserError(f"{expression}: {type(error).__name__}: {error}") from None
    return found


def _rows(group: str, metric: str, subset: str) -> Any:
    """The scores of a group; raises `UserError` if there are none."""
    study, _, name = group.partition(":")
    values = _study(study, metric, subset)
    found = values[values["group"] == name]
    if found.empty:
        raise UserError(f"no group {name}; there are {', '.join(sorted(set(values['group'])))}")
    return found


def _scores(group: str, at: At, metric: str, subset: str, seeds: int = sys.maxsize) -> Any:
    """The values of the seeds of a group; larger ones than `seeds` are left out."""
    rows = _rows(group, metric, subset)
    found = rows.loc[(rows["at"] == str(at)) & (rows["seed"].astype(int) <= seeds), "value"]
    if found.empty:
        raise UserError(f"no {metric} of {group} on {subset} at {at}")
    return found.to_numpy(dtype=float)


def _committed(path: str) -> Path:
    """A committed file or folder, also one of an archive: `results/engine/runs/...` of `runs.tar.xz`."""
    place = ROOT / path
    for folder in (place, *place.parents[: len(place.relative_to(ROOT).parts) - 1]):
        packed = folder.with_name(folder.name + archive.SUFFIX)
        if packed.is_file():
            return archive.opened(packed) / place.relative_to(folder)
    return place


def _runs_folder(study: str) -> Path:
    inside = _committed(f"results/{study}/runs")
    return inside if inside.exists() else _committed(f"results/{study}")


def _manifests(group: str) -> list[dict[str, Any]]:
    study, _, name = group.partition(":")
    paths = sorted(_runs_folder(study).glob(f"{name}/seed*/manifest.json"))
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


@functools.cache
def _family(study: str) -> Any:
    """All comparisons of the study file, which lies in the folder of the runs."""
    read = read_study(ROOT / "results" / study / "study.toml")
    return compare_groups(_study(study, "accuracy", "test"), pairs=read.pairs, at=read.at or ["best"])


@functools.cache
def _study(study: str, metric: str, subset: str) -> Any:
    table = _table(_runs_folder(study))
    return scores(table, best_checkpoints(table), metric, subset)


_table = functools.cache(load_runs)
