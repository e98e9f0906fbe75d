"""Log files -> one long table -> best checkpoints -> statistics, tables and figures.

Runs without torch and fairseq. `python -m analysis --help` for the commands; in Python:

    table = load_runs("runs")             # arm, init, seed, subset, epoch, step, metric, value
    best = best_checkpoints(table)        # one row a run
    print(render([table1(best)], "markdown"))
"""

from .best import best_checkpoints
from .events import read_scalars
from .figures import draw_curves
from .load import load_runs, read_runs
from .runs import Run, find_runs
from .stats import per_epoch, summarize
from .tables import Table, list_runs, table1, table2
from .writers import render

__all__ = [
    "Run",
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
    "summarize",
    "table1",
    "table2",
]
