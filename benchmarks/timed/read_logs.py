"""Read a tree of logs into memory with one of the usual tools or ours; the time excludes imports.

python -m benchmarks.timed.read_logs OUT.json tbparse|tensorboard-reducer|ours FOLDER

Each gives a data frame, or one a tag, in which every scalar has its run, subset, tag and step.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from benchmarks.log_tree import TAGS
from roberta_small.common.files import atomic_write

Reader = Callable[[Path], list[pd.DataFrame]]


def tbparse() -> Reader:
    """One table; run and subset are taken from the name of the folder."""
    from tbparse import SummaryReader

    return lambda root: [SummaryReader(str(root), extra_columns={"dir_name"}).scalars[["value"]]]


def tensorboard_reducer() -> Reader:
    """For each subset one table per tag, with one column per run."""
    from tensorboard_reducer import load_tb_events

    def read(root: Path) -> list[pd.DataFrame]:
        folders = [sorted(map(str, root.glob(f"*/*/{subset}"))) for subset in TAGS]
        return [table for runs in folders for table in load_tb_events(runs).values()]

    return read


def ours() -> Reader:
    """The long table, sorted and with epochs."""
    from roberta_small.analysis import load_runs

    return lambda root: [load_runs(root)[["value"]]]


READERS = {"tbparse": tbparse, "tensorboard-reducer": tensorboard_reducer, "ours": ours}


def main(output: str, tool: str, folder: str) -> None:
    """Read once; returns the seconds, the number of scalars and their sum."""
    read = READERS[tool]()
    start = time.perf_counter()
    values = read(Path(folder))
    seconds = time.perf_counter() - start
    scalars, total = (
        sum(table.size for table in values),
        float(sum(table.to_numpy().sum() for table in values)),
    )
    atomic_write(output, json.dumps({"seconds": [seconds], "scalars": scalars, "total": total}))


if __name__ == "__main__":
    main(*sys.argv[1:])
