"""fairseq-train under torch.profiler for some updates.

python -m benchmarks.timed.fairseq_profile OUT.json WARM_UP UPDATES arguments of fairseq-train ...
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import torch
from fairseq.trainer import Trainer
from fairseq_cli.train import cli_main
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from roberta_small.common.files import atomic_write


def main(output: str, warm_up: str, updates: str, *arguments: str) -> None:
    """Train with these arguments, then write each operator's own time in the profiled updates."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device == "cuda" else [])]
    profiler = profile(activities=activities)
    train_step, first, last = Trainer.train_step, int(warm_up), int(warm_up) + int(updates) - 1
    done = 0

    def watched(*args: Any, **kwargs: Any) -> Any:
        nonlocal done
        if done == first:
            profiler.start()
        logged = train_step(*args, **kwargs)
        if done == last:
            profiler.stop()
        done += 1
        return logged

    Trainer.train_step = watched
    sys.argv = ["fairseq-train", *arguments]
    cli_main()
    atomic_write(output, json.dumps({"device": device, "operators": operators(profiler, device)}))
    sys.stdout.flush()
    os._exit(0)  # as in fairseq_train.py


def operators(profiler: profile, device: str) -> list[dict[str, Any]]:
    """Name, calls and own milliseconds (without the operators it calls) of each, the longest first.

    On a GPU those of the kernels that an operator starts; the kernels are events of their own too, left out.
    """
    rows = [
        {
            "operator": event.key,
            "calls": event.count,
            "ms": (event.self_device_time_total if device == "cuda" else event.self_cpu_time_total) / 1000,
        }
        for event in profiler.key_averages()
        if event.device_type == DeviceType.CPU
    ]
    return sorted(rows, key=lambda row: -row["ms"])


if __name__ == "__main__":
    main(*sys.argv[1:])
