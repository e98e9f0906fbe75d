"""Log files -> one long table -> best checkpoints -> statistics, tables and figures.

Needs neither torch nor fairseq. Commands: `roberta-small --help`. In Python:

    from roberta_small.analysis import best_checkpoints, compare_groups, load_runs, render, scores, table1

    table = load_runs("runs")             # arm, init, seed, subset, epoch, step, metric, value
    best = best_checkpoints(table)        # one row per run
    print(render([table1(table)], "markdown"))
    values = scores(table, best, "accuracy")
    compare_groups(values, ["fairseq/pretrained", "fairseq/random"], at=["best"])

All tables and statistics are pandas data frames. A module is imported when one of its names is first used,
so that reading logs does not import matplotlib.
"""

# ruff: noqa: F401  the names of `__all__`, for type checkers and editors

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roberta_small.analysis.compare import compare_groups
    from roberta_small.analysis.features.curves import draw_curves
    from roberta_small.analysis.features.runs import list_runs, table1, table2
    from roberta_small.analysis.features.seeds import draw_expected, draw_seeds
    from roberta_small.analysis.predictions import accuracies, compare_predictions, read_predictions
    from roberta_small.analysis.presentation import present
    from roberta_small.analysis.published import compare_reference, read_reference
    from roberta_small.analysis.query import Query, Study
    from roberta_small.analysis.read.events import Scalar, read_scalars
    from roberta_small.analysis.read.long_table import load_runs, read_runs, values_of
    from roberta_small.analysis.read.runs import LoggedRun, find_runs, select_finished
    from roberta_small.analysis.report.page import write_report
    from roberta_small.analysis.scoring import (
        best_checkpoints,
        expected_best_of_seeds,
        per_epoch,
        scores,
        spread_over_seeds,
        summarize,
    )
    from roberta_small.analysis.selection import select
    from roberta_small.analysis.study_file import read_study
    from roberta_small.common.tables import Table, render

NAMES = {
    "common.tables": "Table render",
    "analysis.compare": "compare_groups",
    "analysis.features.curves": "draw_curves",
    "analysis.features.runs": "list_runs table1 table2",
    "analysis.features.seeds": "draw_expected draw_seeds",
    "analysis.predictions": "accuracies compare_predictions read_predictions",
    "analysis.presentation": "present",
    "analysis.published": "compare_reference read_reference",
    "analysis.query": "Query Study",
    "analysis.read.events": "Scalar read_scalars",
    "analysis.read.long_table": "load_runs read_runs values_of",
    "analysis.read.runs": "LoggedRun find_runs select_finished",
    "analysis.report.page": "write_report",
    "analysis.scoring": "best_checkpoints expected_best_of_seeds per_epoch scores spread_over_seeds"
    " summarize",
    "analysis.selection": "select",
    "analysis.study_file": "read_study",
}
MODULES = {name: f"roberta_small.{module}" for module, names in NAMES.items() for name in names.split()}
"""The public names and their modules."""

__all__ = list(MODULES)


def __getattr__(name: str) -> object:
    if name not in MODULES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module(MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
