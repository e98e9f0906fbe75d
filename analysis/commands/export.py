"""The command `export`: the scores or the logged scalars of runs in plain formats that other tools read.

`model-index` is the block of a model card on the Hugging Face hub that lists evaluation results
(https://github.com/huggingface/hub-docs/blob/main/modelcard.md), in YAML: one model for each group. `scalars`
is the long table as CSV, with the columns of TensorBoard's data frames.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd
import yaml

from roberta_small.analysis.commands.options import (
    add_choice,
    add_command,
    add_out,
    add_selection,
    add_study,
    choice,
    selected_runs,
    selected_table,
)
from roberta_small.analysis.read.load import read_runs
from roberta_small.analysis.read.long_table import GROUP
from roberta_small.analysis.read.runs import Run
from roberta_small.analysis.stats.best import at_best, best_checkpoints
from roberta_small.analysis.stats.pretraining import PRETRAIN_ARM
from roberta_small.analysis.stats.spread import summarize
from roberta_small.analysis.study import names_of
from roberta_small.common import manifest
from roberta_small.common.errors import UsageError, UserError, count
from roberta_small.common.files import atomic_write, escaped
from roberta_small.common.metrics import LOSS, digits, in_percent, logged
from roberta_small.common.tables import shortest

EXAMPLES = """examples:
  python -m analysis export runs --format model-index --groups fairseq/pretrained --out model-index.yaml
  python -m analysis export runs --format scalars --out scalars.csv
"""
MODEL_INDEX, SCALARS = "model-index", "scalars"
COLUMNS = ["run", "tag", "step", "value"]
"""The columns of scalars."""
TASK = "text-classification"
"""The hub's identifier of the task."""
HUB_METRICS: dict[str, tuple[str, dict[str, str]]] = {
    "macro_f1": ("f1", {"average": "macro"}),
    "mcc": ("matthews_correlation", {}),
}
"""Metric -> the hub's identifier, and the arguments of its computation; other metrics keep their names."""
ONLY_MODEL_INDEX = {
    "metric": None, "by": None, "choose_on": None, "split": None, "direction": "auto", "ties": "latest",
    "dataset": None,
}  # fmt: skip
"""Options without a meaning for scalars, and their defaults."""


def register(commands: argparse._SubParsersAction) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "export",
        _export,
        "write mean scores as model-index of the Hugging Face hub, or all logged scalars as CSV",
        EXAMPLES,
    )
    add_selection(parser)
    add_choice(parser)
    add_study(parser)
    parser.add_argument(
        "--format", choices=FORMATS, required=True,
        help="model-index: YAML for a model card, the mean scores of each group at its best checkpoints; "
        f"scalars: CSV with the columns {', '.join(COLUMNS)}, all logged numbers",
    )  # fmt: skip
    parser.add_argument(
        "--dataset", type=escaped, metavar="ID",
        help="data set of the model-index, its name on the hub if it has one (default: name of the data "
        "folder that the manifests record)",
    )  # fmt: skip
    add_out(parser, "file to write", metavar="FILE", required=True)


def _export(options: argparse.Namespace) -> None:
    atomic_write(options.out, FORMATS[options.format](options))
    print(f"wrote {options.out}", file=sys.stderr)


def _model_index(options: argparse.Namespace) -> str:
    runs, table = selected_table(options)
    if any(run.arm == PRETRAIN_ARM for run in runs):
        raise UserError(f"the runs of {PRETRAIN_ARM} are language models, not classifiers; --exclude them")
    data_set = options.dataset or _data_set(runs)
    best = best_checkpoints(table, options.metric, **choice(options))
    metrics = dict.fromkeys([options.metric, *(metric.name for metric in logged()), LOSS])
    logged_here = set(table.loc[table["subset"] == options.split, "metric"])
    scores = pd.concat(
        summarize(at_best(table, best, metric, options.split), GROUP, "value").assign(metric=metric)
        for metric in metrics
        if metric in logged_here
    )
    of_group = dict(list(scores.assign(group=names_of(scores)).groupby("group")))
    models = [
        {
            "name": options.study.label(group),
            "results": [
                {
                    "task": {"type": TASK},
                    "dataset": {"type": data_set, "name": data_set, "split": options.split},
                    "metrics": [_metric(row, options.split) for row in of_group[group].to_dict("records")],
                }
            ],
        }
        for group in options.study.selected
        if group in of_group
    ]
    if not models:
        raise UserError(f"{options.runs}: no finite score on {options.split} at a best checkpoint")
    return yaml.safe_dump({MODEL_INDEX: models}, sort_keys=False, allow_unicode=True)


def _data_set(runs: list[Run]) -> str:
    """The name of the data folder of these runs; raises `UserError` unless all recorded the same."""
    contents = [manifest.read(run.path) or {"data": {}} for run in runs]
    names = sorted({Path(content["data"].get("path") or "").name for content in contents})
    if names in ([], [""]):
        raise UserError("the runs do not record their data; name the data set with --dataset ID")
    if len(names) > 1:
        raise UserError(
            f"runs of {len(names)} data folders ({', '.join(name or 'unknown' for name in names)}): select "
            "some with --groups, or name their common data set with --dataset ID"
        )
    return names[0]


def _metric(row: Mapping, split: str) -> dict[str, object]:
    """The entry of a metric. The hub's metrics are fractions where ours are percentages."""
    metric = row["metric"]
    kind, arguments = HUB_METRICS.get(metric, (metric, {}))
    scale, decimals = (100, digits(metric) + 2) if in_percent(metric) else (1, digits(metric))
    name = f"{split.capitalize()} {metric.replace('_', ' ')}, "
    if row["n"] > 1:
        name += f"mean of {count(row['n'], 'seed')} (std {row['std'] / scale:.{decimals}f})"
    else:
        name += "one seed"
    entry = {"type": kind, "value": shortest(row["mean"] / scale), "name": name}
    return {**entry, "args": arguments} if arguments else entry


def _scalars(options: argparse.Namespace) -> str:
    given = [name for name, default in ONLY_MODEL_INDEX.items() if vars(options)[name] != default]
    if given:
        raise UsageError(f"--{given[0].replace('_', '-')}: has no effect on --format {SCALARS}; omit it")
    runs, _ = selected_runs(options)
    table = read_runs(runs)
    frame = table.assign(
        run=names_of(table) + "/seed" + table["seed"].astype(str), tag=table["subset"] + "/" + table["metric"]
    )
    return frame[COLUMNS].to_csv(index=False, lineterminator="\n", na_rep="NaN")


FORMATS: dict[str, Callable[[argparse.Namespace], str]] = {MODEL_INDEX: _model_index, SCALARS: _scalars}
"""Format -> function that reads the runs and returns the contents of the file."""
