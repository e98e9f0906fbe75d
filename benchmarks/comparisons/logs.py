"""TensorBoard logs of 200 runs to tables: the usual readers and ours.

The tree is generated: 46 tags at 40 steps a run, 368,000 scalars in 800 event files. The times are those
of reading, without starting Python and importing. All have to find the same numbers.
"""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import Contender, compare, say, timed
from benchmarks.settings import Settings
from roberta_small.common.errors import UserError

RUNS = 200
INITS = ("pretrained", "random")
TRAIN_TAGS = (
    "loss", "nll_loss", "ppl", "accuracy", "wps", "ups", "wpb", "bsz", "lr", "gnorm", "clip",
    "train_wall", "wall",
)  # fmt: skip
VALID_TAGS = ("loss", "nll_loss", "ppl", "accuracy", "macro_f1", "mcc", "wps", "wpb", "bsz", "best_accuracy")
TAGS = {"train": TRAIN_TAGS, "train_inner": TRAIN_TAGS, "valid": VALID_TAGS, "test": VALID_TAGS}
STEPS = range(225, 225 * 41, 225)
SCALARS_PER_RUN = len(STEPS) * sum(map(len, TAGS.values()))
START = 1_700_000_000.0


def run(settings: Settings) -> dict[str, Any]:
    """Seconds of reading; raises `UserError` if the numbers differ."""
    folder = settings.scratch / "logs"
    say(f"logs: writing {RUNS} runs")
    write_tree(folder, RUNS)
    scalars = RUNS * SCALARS_PER_RUN
    readers = ("tbparse", "tensorboard-reducer", "ours")
    result = compare(
        "logs",
        f"TensorBoard logs to tables, {RUNS} runs, {scalars:,} scalars",
        [Contender(name, timed(read_logs, name, folder), ours=name == "ours") for name in readers],
        settings,
        scalars=scalars,
        about="reading alone, without imports; wall is the whole process",
    )
    check_same_numbers(result)
    return result


def check_same_numbers(result: dict[str, Any]) -> None:
    """All readers, in every round, found as many scalars with the same sum."""
    rows = result["contenders"]
    records = [(row["contender"], record) for row in rows for record in row.get("rounds", ())]
    for name, record in records:
        found, total = record["scalars"], record["total"]
        if found != result["scalars"] or not math.isclose(total, records[0][1]["total"]):
            raise UserError(
                f"{name}: {found:,} scalars that add up to {total}, not {result['scalars']:,} and "
                f"{records[0][1]['total']} as {records[0][0]}"
            )


def read_logs(tool: str, folder: str) -> dict[str, Any]:
    """Read a tree of logs into memory; every scalar then has its run, subset, tag and step."""
    read: Callable[[], list[Any]]
    if tool == "tbparse":
        from tbparse import SummaryReader

        read = lambda: [SummaryReader(folder, extra_columns={"dir_name"}).scalars[["value"]]]  # noqa: E731
    elif tool == "tensorboard-reducer":
        from tensorboard_reducer import load_tb_events

        folders = [sorted(map(str, Path(folder).glob(f"*/*/{subset}"))) for subset in TAGS]
        read = lambda: [table for runs in folders for table in load_tb_events(runs).values()]  # noqa: E731
    else:
        from roberta_small.analysis import load_runs

        read = lambda: [load_runs(folder)[["value"]]]  # noqa: E731
    start = time.perf_counter()
    tables = read()
    seconds = time.perf_counter() - start
    total = float(sum(table.to_numpy().sum() for table in tables))
    return {"seconds": [seconds], "scalars": sum(table.size for table in tables), "total": total}


def write_tree(root: Path, runs: int) -> None:
    """Write `runs` runs below `root`, in folders `<root>/<init>/<seed>/<subset>`, as fairseq writes them."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    for run in range(runs):
        random = np.random.default_rng(run)
        for subset, tags in TAGS.items():
            records = [framed(Event(wall_time=START, file_version="brain.Event:2"))]
            values_ST = random.uniform(0.0, 100.0, (len(STEPS), len(tags))).astype(np.float32)
            for number, (step, values_T) in enumerate(zip(STEPS, values_ST.tolist(), strict=True)):
                for tag, value in zip(tags, values_T, strict=True):
                    summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
                    wall_time = START + number + 0.123456
                    records.append(framed(Event(wall_time=wall_time, step=step, summary=summary)))
            folder = root / INITS[run % 2] / str(1 + run // 2) / subset
            folder.mkdir(parents=True)
            (folder / "events.out.tfevents.1700000000.host.1.0").write_bytes(b"".join(records))


def framed(event: Any) -> bytes:
    """The event as a TFRecord: length, checksum, content, checksum."""
    from roberta_small.analysis.read.tfrecord import crc32c, mask

    data = event.SerializeToString()
    length = struct.pack("<Q", len(data))
    checksums = [struct.pack("<I", mask(crc32c(part))) for part in (length, data)]
    return length + checksums[0] + data + checksums[1]
