"""Log files -> one long table -> best checkpoints -> statistics, tables and figures.

Needs neither torch nor fairseq. Commands: `python -m analysis --help`. In Python:

    from analysis import best_checkpoints, compare_groups, load_runs, render, scores, table1

    table = load_runs("runs")             # arm, init, seed, subset, epoch, step, metric, value
    best = best_checkpoints(table)        # one row per run
    print(render([table1(table)], "markdown"))
    values = scores(table, best, "accuracy")
    compare_groups(values, ["fairseq/pretrained", "fairseq/random"], at=["best"])

All tables and statistics are pandas data frames. A module is imported when one of its names is first used,
so that reading logs does not import matplotlib.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from common.tables import Table, render

    from .figures.curves import draw_curves
    from .figures.seeds import draw_expected, draw_seeds
    from .read.events import Scalar, read_scalars
    from .read.load import load_runs, read_runs
    from .read.long_table import values_of
    from .read.runs import Run, find_runs, select_finished
    from .report.findings import Rule, gather
    from .report.page import write_report
    from .stats.best import best_checkpoints
    from .stats.compare import compare_groups
    from .stats.predictions import accuracies, compare_predictions, read_predictions
    from .stats.reference import compare_reference, read_reference
    from .stats.spread import expected_best_of_seeds, per_epoch, scores, spread_over_seeds, summarize
    from .study import Study, read_study
    from .tables.presented import present
    from .tables.runs import list_runs, table1, table2

MODULES = {
    "Rule": "analysis.report.findings",
    "Run": "analysis.read.runs",
    "Scalar": "analysis.read.events",
    "Study": "analysis.study",
    "Table": "common.tables",
    "accuracies": "analysis.stats.predictions",
    "best_checkpoints": "analysis.stats.best",
    "compare_predictions": "analysis.stats.predictions",
    "compare_groups": "analysis.stats.compare",
    "compare_reference": "analysis.stats.reference",
    "draw_curves": "analysis.figures.curves",
    "draw_expected": "analysis.figures.seeds",
    "draw_seeds": "analysis.figures.seeds",
    "expected_best_of_seeds": "analysis.stats.spread",
    "find_runs": "analysis.read.runs",
    "gather": "analysis.report.findings",
    "list_runs": "analysis.tables.runs",
    "load_runs": "analysis.read.load",
    "per_epoch": "analysis.stats.spread",
    "present": "analysis.tables.presented",
    "read_predictions": "analysis.stats.predictions",
    "read_reference": "analysis.stats.reference",
    "read_runs": "analysis.read.load",
    "read_scalars": "analysis.read.events",
    "read_study": "analysis.study",
    "render": "common.tables",
    "scores": "analysis.stats.spread",
    "select_finished": "analysis.read.runs",
    "spread_over_seeds": "analysis.stats.spread",
    "summarize": "analysis.stats.spread",
    "table1": "analysis.tables.runs",
    "table2": "analysis.tables.runs",
    "values_of": "analysis.read.long_table",
    "write_report": "analysis.report.page",
}
"""The public names and their modules."""

__all__ = [
    "Rule",
    "Run",
    "Scalar",
    "Study",
    "Table",
    "accuracies",
    "best_checkpoints",
    "compare_groups",
    "compare_predictions",
    "compare_reference",
    "draw_curves",
    "draw_expected",
    "draw_seeds",
    "expected_best_of_seeds",
    "find_runs",
    "gather",
    "list_runs",
    "load_runs",
    "per_epoch",
    "present",
    "read_predictions",
    "read_reference",
    "read_runs",
    "read_scalars",
    "read_study",
    "render",
    "scores",
    "select_finished",
    "spread_over_seeds",
    "summarize",
    "table1",
    "table2",
    "values_of",
    "write_report",
]


def __getattr__(name: str) -> object:
    if name not in MODULES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module(MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
