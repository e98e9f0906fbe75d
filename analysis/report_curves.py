"""The numbers behind the report's interactive curves, as JSON for a page."""

from __future__ import annotations

import json
import math
from typing import Any

import pandas as pd

from .findings import Findings
from .long_table import RUN
from .metrics import IN_PERCENT, label

SUBSETS = ("train", "valid", "test")
ALSO = ("accuracy", "macro_f1", "f1", "mcc", "loss", "ppl")
"""Offered beside the metric of the report, where valid or test has them."""


def curves_json(findings: Findings) -> str:
    """JSON that holds no `<`, so that nothing in it can end a `<script>` element.

    {"metrics": [{"name", "label", "digits"}], "subsets": [...], "groups": [...],
     "runs": [{"name", "group", "seed", "curves": {metric: {subset: [[epoch, value], ...]}}}]}

    The values are those logged at validations; null is NaN or infinite. The report's metric comes first.
    """
    table = findings.table
    validations = table.loc[table["subset"] == "valid", [*RUN, "step"]].drop_duplicates()
    rows = table[table["subset"].isin(SUBSETS)].merge(validations, on=[*RUN, "step"])
    known = set(rows.loc[rows["subset"] != "train", "metric"])
    metrics = [metric for metric in dict.fromkeys([findings.rule.metric, *ALSO]) if metric in known]
    rows = rows[rows["metric"].isin(metrics)]
    content = {
        "metrics": [
            {"name": metric, "label": label(metric), "digits": 2 if metric in IN_PERCENT else 4}
            for metric in metrics
        ],
        "subsets": [subset for subset in SUBSETS if subset in set(rows["subset"])],
        "groups": findings.groups,
        "runs": [_run(names, run) for names, run in rows.groupby(RUN)],
    }
    return json.dumps(content, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")


def _run(names: tuple[str, str, int], rows: pd.DataFrame) -> dict[str, Any]:
    arm, init, seed = names
    curves: dict[str, dict[str, list]] = {}
    for (metric, subset), curve in rows.groupby(["metric", "subset"]):
        values = [value if math.isfinite(value) else None for value in curve["value"].tolist()]
        curves.setdefault(metric, {})[subset] = [
            list(point) for point in zip(curve["epoch"].tolist(), values, strict=True)
        ]
    return {"name": f"{arm}/{init}/seed{seed}", "group": f"{arm}/{init}", "seed": seed, "curves": curves}
