"""Log files -> one long table -> best checkpoints -> statistics, tables and figures.

Runs without torch and fairseq. `python -m analysis --help` for the commands; in Python:

    from analysis import best_checkpoints, compare_groups, load_runs, render, scores, table1

    table = load_runs("runs")             # arm, init, seed, subset, epoch, step, metric, value
    best = best_checkpoints(table)        # one row a run
    print(render([table1(table)], "markdown"))
    values = scores(table, best, "accuracy")
    compare_groups(values, ["fairseq/pretrained", "fairseq/random"], at=["best"])

The table and what is made of it are pandas data frames. Modules are imported when one of their names is
first used: who reads logs does not wait for matplotlib.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .answers import accuracies, compare_answers, read_answers
    from .best import best_checkpoints
    from .compare import compare_groups
    from .events import Scalar, read_scalars
    from .expected import expected_best_of_seeds
    from .figure_seeds import draw_expected, draw_seeds
    from .figures import draw_curves
    from .findings import Rule, gather
    from .load import load_runs, read_runs
    from .long_table import values_of
    from .reference import compare_reference, read_reference
    from .report import write_report
    from .runs import Run, find_runs, select_finished
    from .spread import scores, spread_over_seeds
    from .stats import per_epoch, summarize
    from .tables import Table, list_runs, table1, table2
    from .writers import render

MODULES = {
    "Rule": "findings",
    "Run": "runs",
    "Scalar": "events",
    "Table": "tables",
    "accuracies": "answers",
    "best_checkpoints": "best",
    "compare_answers": "answers",
    "compare_groups": "compare",
    "compare_reference": "reference",
    "draw_curves": "figures",
    "draw_expected": "figure_seeds",
    "draw_seeds": "figure_seeds",
    "expected_best_of_seeds": "expected",
    "find_runs": "runs",
    "gather": "findings",
    "list_runs": "tables",
    "load_runs": "load",
    "per_epoch": "stats",
    "read_answers": "answers",
    "read_reference": "reference",
    "read_runs": "load",
    "read_scalars": "events",
    "render": "writers",
    "scores": "spread",
    "select_finished": "runs",
    "spread_over_seeds": "spread",
    "summarize": "stats",
    "table1": "tables",
    "table2": "tables",
    "values_of": "long_table",
    "write_report": "report",
}
"""The public names and where they live."""

__all__ = [
    "Rule",
    "Run",
    "Scalar",
    "Table",
    "accuracies",
    "best_checkpoints",
    "compare_answers",
    "compare_groups",
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
    "read_answers",
    "read_reference",
    "read_runs",
    "read_scalars",
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
    return getattr(importlib.import_module(f".{MODULES[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__
