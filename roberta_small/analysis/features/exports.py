"""The scores or the logged scalars of runs for other tools: the model-index of a model card, plain scalars.

`model-index` is the block of a model card on the Hugging Face hub that lists evaluation results
(https://github.com/huggingface/hub-docs/blob/main/modelcard.md), in YAML: one model for each group. The table
`scalars` is the long table with the columns of TensorBoard's data frames.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
import yaml

from roberta_small.analysis.presentation import Computed
from roberta_small.analysis.query import MODEL_INDEX, names_of
from roberta_small.analysis.read.long_table import GROUP
from roberta_small.analysis.read.runs import LoggedRun
from roberta_small.analysis.scoring import at_best, summarize
from roberta_small.analysis.selection import Selection
from roberta_small.common.errors import UserError, count
from roberta_small.common.label_kinds import KINDS
from roberta_small.common.metrics import LOSS, digits, in_percent, logged
from roberta_small.common.tables import Table, shortest

PRETRAIN_ARM = "pretrain"
COLUMNS = ["run", "tag", "step", "value"]
"""The columns of scalars."""
TASK = "text-classification"
"""The hub's identifier of the task."""
HUB_METRICS: dict[str, tuple[str, dict[str, str]]] = {
    "macro_f1": ("f1", {"average": "macro"}),
    "micro_f1": ("f1", {"average": "micro"}),
    "pearson": ("pearsonr", {}),
    "mcc": ("matthews_correlation", {}),
}
"""Metric -> the hub's identifier, and the arguments of its computation; other metrics keep their names."""


def model_index(selection: Selection) -> str:
    """The mean scores of each group at its best checkpoints, in YAML for a model card.

    Raises `UserError` for language models, without a finite score, and if the runs do not record one data
    set, unless the query names it.
    """
    runs, table, study = selection.runs, selection.table, selection.study
    if any(run.arm == PRETRAIN_ARM for run in runs):
        raise UserError(
            f"the runs of {PRETRAIN_ARM} are language models, not classifiers; choose others with --groups"
        )
    data_set, best = study.query.data_set or _data_set(runs), selection.best
    metrics = dict.fromkeys([study.metric, *(metric.name for kind in KINDS for metric in logged(kind)), LOSS])
    logged_here = set(table.loc[table["subset"] == study.split, "metric"])
    scores = pd.concat(
        summarize(at_best(table, best, metric, study.split), GROUP, "value").assign(metric=metric)
        for metric in metrics
        if metric in logged_here
    )
    of_group = dict(list(scores.assign(group=names_of(scores)).groupby("group")))
    models = [
        {
            "name": study.label(group),
            "results": [
                {
                    "task": {"type": TASK},
                    "dataset": {"type": data_set, "name": data_set, "split": study.split},
                    "metrics": [_metric(row, study.split) for row in of_group[group].to_dict("records")],
                }
            ],
        }
        for group in study.selected
        if group in of_group
    ]
    if not models:
        raise UserError(f"no finite score on {study.split} at a best checkpoint")
    return yaml.safe_dump({MODEL_INDEX: models}, sort_keys=False, allow_unicode=True)


def _data_set(runs: Sequence[LoggedRun]) -> str:
    """The name of the data folder of these runs; raises `UserError` unless all recorded the same."""
    contents = [run.read_manifest() or {"data": {}} for run in runs]
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


def compute(selection: Selection) -> Computed:
    """The table `scalars`."""
    table = selection.table
    # As objects, because other floats are rounded to single precision, and are empty for NaN.
    values = ["NaN" if math.isnan(value) else value for value in table["value"].tolist()]
    frame = table.assign(
        run=names_of(table) + "/seed" + table["seed"].astype(str),
        tag=table["subset"] + "/" + table["metric"],
        value=pd.Series(values, dtype=object),
    )[COLUMNS]
    return Computed([Table("scalars", "All logged scalars", (), frame, frame.astype(str))])
