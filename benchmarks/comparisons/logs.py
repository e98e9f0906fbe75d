"""Reading the TensorBoard logs of 200 runs into tables: the usual readers and ours.

The tree is generated: 46 tags at 40 steps a run, 368,000 scalars in 800 event files. The times are those
of reading, without starting Python and importing. All have to find the same numbers.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from benchmarks.log_tree import SCALARS_PER_RUN, write_tree
from benchmarks.measure import RESULT, Contender, compare, python, say
from benchmarks.settings import Settings
from roberta_small.common.errors import UserError

RUNS = 200
MORE = 10


def run(settings: Settings) -> dict[str, Any]:
    """Seconds of reading; raises `UserError` if the numbers differ."""
    trees = {runs: settings.scratch / f"logs-{runs}" for runs in (RUNS, RUNS * MORE)}
    for runs, folder in trees.items():
        say(f"logs: writing {runs:,} runs")
        write_tree(folder, runs)
    scalars = RUNS * SCALARS_PER_RUN
    result = compare(
        "logs",
        f"TensorBoard logs to tables, {RUNS} runs, {scalars:,} scalars",
        [
            _reader("tbparse", trees[RUNS], needs="tbparse"),
            _reader("tensorboard-reducer", trees[RUNS], needs="tensorboard_reducer"),
            _reader("ours", trees[RUNS]),
            _reader("ours", trees[RUNS * MORE], part=MORE),
        ],
        settings,
        scalars=scalars,
        about="reading alone, without imports; wall is the whole process",
    )
    check_same_numbers(result)
    return result


def check_same_numbers(result: dict[str, Any]) -> None:
    """All that read the same tree, in every round, found as many scalars with the same sum."""
    rows = [row for row in result["contenders"] if row["scale"] == 1.0]
    records = [(row["contender"], record) for row in rows for record in row.get("rounds", ())]
    for name, record in records:
        if record["scalars"] != result["scalars"] or not math.isclose(
            record["total"], records[0][1]["total"]
        ):
            raise UserError(
                f"{name}: {record['scalars']:,} scalars that add up to {record['total']}, "
                f"not {result['scalars']:,} and {records[0][1]['total']} as {records[0][0]}"
            )


def _reader(tool: str, folder: Path, *, needs: str | None = None, part: int = 1) -> Contender:
    return Contender(
        tool if part == 1 else f"{tool}, {part} times the logs",
        python("benchmarks.timed.read_logs", RESULT, tool, folder),
        ours=tool == "ours",
        scale=1 / part,
        needs=needs,
        note="" if part == 1 else f"1/{part} of its time: the time grows with the logs",
    )
