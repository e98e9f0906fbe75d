"""Accuracy and cost of runs: parameters, seconds and peak memory, for example of LoRA and full fine-tuning.

The manifests of the runs record what training took.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pandas as pd

from roberta_small.analysis.presentation import Computed
from roberta_small.analysis.read.long_table import GROUP, RUN
from roberta_small.analysis.selection import Selection
from roberta_small.analysis.style import finish, legend_below, literal, styles, wrap
from roberta_small.common.metrics import label, number
from roberta_small.common.statistics import mean_std
from roberta_small.common.tables import Table, whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURED = ("trainable_parameters", "parameters", "seconds", "cpu_seconds", "peak_memory_bytes")
MIB = 1 << 20


def measured_runs(selection: Selection) -> pd.DataFrame:
    """A row for each run with a score: arm, init, seed, valid, test (see `best_checkpoints`) and `MEASURED`.

    Values that the manifest does not contain are NaN.
    """
    rows = [
        dict(zip(RUN, (run.arm, run.init, run.seed), strict=True))
        | {key: (run.read_manifest() or {}).get(key, math.nan) for key in MEASURED}
        for run in selection.runs
    ]
    return selection.best[[*RUN, "valid", "test"]].merge(pd.DataFrame(rows), on=RUN, how="left")


def compute(selection: Selection) -> Computed:
    """The table: means over the seeds of each arm and init; `data` has one row per run."""
    runs, study = measured_runs(selection), selection.study
    shown, groups = [], []
    for (arm, init), group in runs.groupby(GROUP):
        score, std = mean_std(group["test"], study.query.ddof)
        mean = group[[*MEASURED]].mean()
        percent = 100 * mean["trainable_parameters"] / mean["parameters"]
        spread = f" ± {number(std, study.metric)}" if len(group) > 1 else ""
        groups.append(f"{arm}/{init}")
        row = {"arm": arm, "init": init, "seeds": str(len(group))}
        row[f"{study.split} {label(study.metric)}"] = f"{number(score, study.metric)}{spread}"
        row["trained parameters"] = whole(mean["trainable_parameters"])
        row["of all (%)"] = "–" if math.isnan(percent) else f"{percent:.2f}"
        row |= {"seconds": whole(mean["seconds"]), "CPU seconds": whole(mean["cpu_seconds"])}
        shown.append(row | {"peak memory (MiB)": whole(mean["peak_memory_bytes"] / MIB)})
    table = Table(
        name="cost",
        caption=f"{study.metric.replace('_', ' ').capitalize()} at the best validation, and what training "
        "took: mean over seeds",
        notes=(
            study.note,
            f"±: {study.std_note} over seeds.",
            "seconds: of the whole run, with loading and validation; CPU seconds: of all threads. Peak "
            "memory: resident memory of the process, or GPU memory allocated by PyTorch. –: not recorded in "
            "the manifest.",
        ),
        data=runs.assign(metric=study.metric, ddof=study.query.ddof),
        shown=pd.DataFrame(shown),
        groups=tuple(groups),
    )
    return Computed([table])


def draw(selection: Selection) -> Iterator[tuple[str, Figure]]:
    """The score of each run against its trained parameters, on a logarithmic axis, if they are known."""
    from matplotlib.figure import Figure

    runs, study = measured_runs(selection), selection.study
    known = runs[runs["trainable_parameters"].notna()]
    if known.empty:
        return
    style_of = styles(study.ordered(f"{arm}/{init}" for arm, init in known.groupby(GROUP).groups))
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    panel = figure.subplots()
    for (arm, init), group in known.groupby(GROUP):
        style = style_of[f"{arm}/{init}"]
        panel.plot(
            group["trainable_parameters"], group["test"], linestyle="none", marker=style["marker"],
            color=style["color"], alpha=0.8, markeredgecolor="white", markersize=7,
            label=wrap(study.label(f"{arm}/{init}")),
        )  # fmt: skip
        x, mean = group["trainable_parameters"].mean(), group["test"].mean()
        panel.plot([x / 1.25, x * 1.25], [mean, mean], color=style["color"], linewidth=2)
    panel.set_xscale("log")
    panel.set_xlim(known["trainable_parameters"].min() / 3, known["trainable_parameters"].max() * 3)
    panel.set_xlabel("trained parameters")
    panel.set_ylabel(literal(f"{study.split} {label(study.metric)}"))
    panel.set_title("A mark for each seed, a bar for their mean", fontsize="medium", loc="left")
    finish(panel, "both")
    legend_below(figure)
    yield f"{study.metric}_and_parameters", figure
