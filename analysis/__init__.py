"""Log files -> one long table -> best checkpoints -> statistics, tables and figures.

Runs without torch and fairseq. `python -m analysis --help` for the commands; in Python:

    from analysis import best_checkpoints, load_runs, render, table1

    table = load_runs("runs")             # arm, init, seed, subset, epoch, step, metric, value
    best = best_checkpoints(table)        # one row a run
    print(render([table1(table)], "markdown"))

The table and what is made of it are pandas data frames. Modules are imported when one of their names is
first used: who reads logs does not wait for matplotlib.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .best import best_checkpoints
    from .events import Scalar, read_scalars
    from .figures import draw_curves
    from .load import load_runs, read_runs
    from .long_table import values_of
    from .runs import Run, find_runs, select_finished
    from .stats import per_epoch, summarize
    from .tables import Table, list_runs, table1, table2
    from .writers import render

MODULES = {
    "Run": "runs",
    "Scalar": "events",
    "Table": "tables",
    "best_checkpoints": "best",
    "draw_curves": "figures",
    "find_runs": "runs",
    "list_runs": "tables",
    "load_runs": "load",
    "per_epoch": "stats",
    "read_runs": "load",
    "read_scalars": "events",
    "render": "writers",
    "select_finished": "runs",
    "summarize": "stats",
    "table1": "tables",
    "table2": "tables",
    "values_of": "long_table",
}
"""The public names and where they live."""

__all__ = [
    "Run",
    "Scalar",
    "Table",
    "best_checkpoints",
    "draw_curves",
    "find_runs",
    "list_runs",
    "load_runs",
    "per_epoch",
    "read_runs",
    "read_scalars",
    "render",
    "select_finished",
    "summarize",
    "table1",
    "table2",
    "values_of",
]


def __getattr__(name: str) -> object:
    if name not in MODULES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module(f".{MODULES[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__
