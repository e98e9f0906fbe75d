"""What this machine can do at most, and hence the least time that an update of fine-tuning takes.

floor = FLOPs of the mean batch / fastest matrix rate + optimizer traffic / memory bandwidth.
Adam reads parameter, gradient and two moments and writes all but the gradient: 7 numbers of 4 bytes
a parameter.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from . import flops, words
from .measure import RESULT, Contender, execute, python, say
from .sentences import read_sizes
from .settings import Settings

ADAM_BYTES = 7 * 4


def run(settings: Settings) -> dict[str, Any]:
    """Rates, FLOPs of an update at the mean batch, and the floor in seconds."""
    rates = machine_rates(settings)
    lengths = np.minimum(read_sizes(settings.data / "input0" / "train") + 1, settings.max_positions)
    types, classes = words.vocabulary(settings.data / "input0" / "dict.txt"), words.classes(settings)
    batch = flops.classifier(settings.sizes, lengths, classes) * settings.batch_size / len(lengths)
    parameters = flops.parameters(settings.sizes, types, settings.max_positions, classes)
    bandwidth = max(rates["memory"].values())
    products, traffic = batch / best_rate(rates), ADAM_BYTES * parameters / bandwidth
    quantities = [
        (f"product {shape}, {name}", rate / 1e12, "TFLOP/s")
        for shape, types in rates["matrix"].items()
        for name, rate in types.items()
    ]
    quantities += [(f"memory, {what}", rate / 1e9, "GB/s") for what, rate in rates["memory"].items()]
    quantities += [
        ("tokens of a sentence, mean", float(lengths.mean()), "tokens"),
        ("fine-tuning update, model", batch / 1e9, "GFLOP"),
        ("fine-tuning update, products at the best rate", products * 1e3, "ms"),
        ("fine-tuning update, optimizer's memory traffic", traffic * 1e3, "ms"),
        ("fine-tuning update, floor", (products + traffic) * 1e3, "ms"),
    ]
    return {
        "name": "floor",
        "title": "What this machine can do at most",
        "formula": flops.CLASSIFIER,
        "parameters": parameters,
        "floor_seconds": products + traffic,
        "quantities": [{"quantity": what, "value": value, "unit": unit} for what, value, unit in quantities],
    }


@functools.cache
def machine_rates(settings: Settings) -> dict[str, Any]:
    """FLOP/s and bytes/s, measured once in a process with our environment."""
    embed, blocks = settings.sizes.embed, settings.blocks * settings.block_tokens
    types = words.vocabulary(settings.data / "input0" / "dict.txt")
    shapes = [f"{settings.batch_size * 137}x{embed}x{embed}", f"{blocks // 8}x{embed}x{types}"]
    command = python("benchmarks.timed.machine_rates", RESULT, *shapes)
    say("floor: matrix products and memory")
    contender = Contender("rates", command, words.tuned(settings))
    record = execute(contender, settings, settings.output / "logs" / "floor.txt")
    return {"matrix": record["matrix"], "memory": record["memory"]}


def best_rate(rates: dict[str, Any]) -> float:
    """FLOP/s of the fastest product."""
    return max(rate for types in rates["matrix"].values() for rate in types.values())
