"""The data of the interactive curves of the report."""

from __future__ import annotations

import json
import math
from typing import Any

import pandas as pd

from roberta_small.analysis.figures.style import style_indices
from roberta_small.analysis.read.long_table import RUN, SELECTING, usual_or_only
from roberta_small.analysis.report.findings import Findings
from roberta_small.analysis.stats.spread import validations
from roberta_small.analysis.study import Study
from roberta_small.common.metrics import digits, label

MORE_METRICS = ("accuracy", "macro_f1", "f1", "mcc", "loss", "ppl")
"""Selectable in the chart in addition to the metric of the report, if an evaluated subset has them."""


def curves_json(findings: Findings) -> str:
    """The data of the interactive chart as JSON without `<`, so that it cannot end a `<script>` element.

    {"metrics": [{"name", "label", "digits"}], "subsets": [...],
     "groups": [...], "labels": {group: text}, "styles": {group: index},
     "runs": [{"name", "group", "seed", "curves": {metric: {subset: [[epoch, value], ...]}}}]}

    `styles` is the index of the color and dashes of a group, as in the figures.

    Values are those logged at validations; NaN and infinity become null. The metric of the report is first.
    """
    table = findings.table
    selecting = usual_or_only(SELECTING, table["subset"].unique())
    subsets = list(dict.fromkeys(["train", selecting, findings.rule.reported]))
    rows = table[table["subset"].isin(subsets)].merge(validations(table), on=[*RUN, "step"])
    known = set(rows.loc[rows["subset"] != "train", "metric"])
    metrics = [metric for metric in dict.fromkeys([findings.rule.metric, *MORE_METRICS]) if metric in known]
    rows = rows[rows["metric"].isin(metrics)]
    content = {
        "metrics": [{"name": metric, "label": label(metric), "digits": digits(metric)} for metric in metrics],
        "subsets": [subset for subset in subsets if subset in set(rows["subset"])],
        "groups": findings.groups,
        "labels": {group: findings.study.label(group) for group in findings.groups},
        "styles": style_indices(findings.groups, findings.study),
        "runs": [_run(names, run, findings.study) for names, run in rows.groupby(RUN)],
    }
    return json.dumps(content, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")


def _run(names: tuple[str, str, int], rows: pd.DataFrame, study: Study) -> dict[str, Any]:
    arm, init, seed = names
    curves: dict[str, dict[str, list]] = {}
    for (metric, subset), curve in rows.groupby(["metric", "subset"]):
        values = [value if math.isfinite(value) else None for value in curve["value"].tolist()]
        curves.setdefault(metric, {})[subset] = [
            list(point) for point in zip(curve["epoch"].tolist(), values, strict=True)
        ]
    name = study.run_label(arm, init, seed)
    return {"name": name, "group": f"{arm}/{init}", "seed": seed, "curves": curves}
