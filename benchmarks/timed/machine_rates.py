"""The maximum rates of this machine: matrix products and memory.

python -m benchmarks.timed.machine_rates OUT.json ROWSxINNERxCOLUMNS ...
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable

import torch

from roberta_small.common.files import atomic_write

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
COPY_BYTES = 65_000_000
REPETITIONS = 30
SECONDS_AT_MOST = 3.0
CALLS = 50
"""Calls on a GPU between two synchronizations: a single call takes less time than its synchronization."""


def seconds_of(work: Callable[[], object]) -> float:
    """Median seconds of a call, after two for warming up; on a GPU `CALLS` at a time."""
    calls = CALLS if torch.cuda.is_available() else 1
    times: list[float] = []
    end = time.perf_counter() + SECONDS_AT_MOST
    while len(times) < REPETITIONS + 2 and (len(times) < 3 or time.perf_counter() < end):
        start = time.perf_counter()
        for _ in range(calls):
            work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / calls)
    return statistics.median(times[2:])


def matrix_rate(shape: tuple[int, int, int], dtype: torch.dtype, device: str) -> float:
    """FLOP/s of a product (rows, inner) x (inner, columns): 2 * rows * inner * columns FLOPs."""
    rows, inner, columns = shape
    left, right = torch.randn(rows, inner), torch.randn(inner, columns)
    left, right = left.to(device, dtype), right.to(device, dtype)
    target = torch.empty(rows, columns, dtype=dtype, device=device)
    return 2 * rows * inner * columns / seconds_of(lambda: torch.mm(left, right, out=target))


def main(output: str, *shapes: str) -> None:
    """Measure and write: FLOP/s for each shape and type, bytes/s of copying and of filling."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rates = {
        shape: {
            name: matrix_rate(tuple(int(size) for size in shape.split("x")), dtype, device)
            for name, dtype in DTYPES.items()
        }
        for shape in shapes
    }
    source = torch.ones(COPY_BYTES // 4, device=device)
    target = torch.ones_like(source)
    memory = {
        "copy": 2 * COPY_BYTES / seconds_of(lambda: target.copy_(source)),  # read and written
        "fill": COPY_BYTES / seconds_of(target.zero_),
    }
    atomic_write(output, json.dumps({"matrix": rates, "memory": memory}))


if __name__ == "__main__":
    main(*sys.argv[1:])
