"""The maximum rates of this machine, and the resulting minimum time of an update of fine-tuning.

floor = FLOPs of the mean batch / fastest matrix rate + optimizer traffic / memory bandwidth.
Adam reads parameter, gradient and two moments and writes all but the gradient: 7 numbers of 4 bytes
a parameter.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import command_line
from benchmarks.measure import RESULT, Contender, execute, python, say
from benchmarks.sentences import read_sizes
from benchmarks.settings import Settings

ADAM_BYTES = 7 * 4


def run(settings: Settings) -> dict[str, Any]:
    """Rates, FLOPs of an update at the mean batch, and the floor in seconds."""
    from benchmarks import flops  # imports fairseq, for which --help does not wait

    rates = machine_rates(settings)
    lengths, classes = sentence_lengths(settings), command_line.classes(settings)
    batch = flops.classifier(settings.sizes, lengths, classes) * settings.batch_size / len(lengths)
    parameters = flops.parameters(
        settings.sizes,
        command_line.vocabulary(command_line.dictionary(settings)),
        settings.max_positions,
        classes,
    )
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
    """FLOP/s and bytes/s, measured once in a process with our environment.

    The products are a layer's at the mean batch of fine-tuning, and that of the LM head.
    """
    embed = settings.sizes.embed
    tokens = round(sentence_lengths(settings).mean() * settings.batch_size)
    masked = round(command_line.masked_share() * settings.blocks * settings.block_tokens)
    shapes = [
        f"{tokens}x{embed}x{embed}",
        f"{masked}x{embed}x{command_line.vocabulary(command_line.dictionary(settings))}",
    ]
    command = python("benchmarks.timed.machine_rates", RESULT, *shapes)
    say("floor: matrix products and memory")
    contender = Contender("rates", command, command_line.tuned(settings))
    record = execute(contender, settings, settings.output / "logs" / "floor.txt")
    return {"matrix": record["matrix"], "memory": record["memory"]}


def sentence_lengths(settings: Settings) -> NDArray[np.integer]:
    """Tokens of each training sentence with <s>, truncated to the maximum length."""
    return np.minimum(read_sizes(settings.data / "input0" / "train") + 1, settings.max_positions)


def best_rate(rates: dict[str, Any]) -> float:
    """FLOP/s of the fastest product."""
    return max(rate for types in rates["matrix"].values() for rate in types.values())
