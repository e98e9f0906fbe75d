"""The maximum rates of this machine, and the resulting minimum time of an update of fine-tuning.

floor = FLOPs of the mean batch / fastest matrix rate + optimizer traffic / memory bandwidth.
Adam reads parameter, gradient and two moments and writes all but the gradient: 7 numbers of 4 bytes
a parameter.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import fairseq_commands
from benchmarks.measure import Contender, execute, say, timed
from benchmarks.settings import Settings
from roberta_small.common.data_folder import read_sizes
from roberta_small.common.hardware import sizes_of
from roberta_small.experiments.recipe import recipe as recipes

ADAM_BYTES = 7 * 4
REPETITIONS, SECONDS_AT_MOST = 30, 3.0
CALLS = 50
"""Calls on a GPU between two synchronizations: a single call takes less time than its synchronization."""


def run(settings: Settings) -> dict[str, Any]:
    """Rates, FLOPs of an update at the mean batch, and the floor in seconds."""
    from roberta_small.fairseq_plugin.models import parameters as formulas

    sizes, rates = settings.sizes, machine_rates(settings)
    lengths, classes = sentence_lengths(settings).astype(float), fairseq_commands.classes(settings)
    work = formulas.encoder(sizes.layers, sizes.embed, sizes.ffn, lengths.sum(), (lengths**2).sum())
    work += formulas.classifier_head(sizes.embed, classes, len(lengths))
    work *= settings.batch_size / len(lengths)
    symbols = {"V": fairseq_commands.vocabulary(settings.data), "P": settings.max_positions, "K": classes}
    symbols |= {"L": sizes.layers, "C": sizes.embed, "F": sizes.ffn}
    parameters = sum(formulas.formula_value(part.formula, symbols) for part in formulas.COMPONENTS)
    products = work / best_rate(rates)
    traffic = ADAM_BYTES * parameters / max(rates["memory"].values())
    quantities = [
        (f"product {shape}, {name}", rate / 1e12, "TFLOP/s")
        for shape, types in rates["matrix"].items()
        for name, rate in types.items()
    ]
    quantities += [(f"memory, {what}", rate / 1e9, "GB/s") for what, rate in rates["memory"].items()]
    quantities += [
        ("tokens of a sentence, mean", float(lengths.mean()), "tokens"),
        ("fine-tuning update, model", work / 1e9, "GFLOP"),
        ("fine-tuning update, products at the best rate", products * 1e3, "ms"),
        ("fine-tuning update, optimizer's memory traffic", traffic * 1e3, "ms"),
        ("fine-tuning update, floor", (products + traffic) * 1e3, "ms"),
    ]
    return {
        "name": "floor",
        "title": "What this machine can do at most",
        "formula": formulas.CLASSIFIER,
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
    masked = round(masked_share() * settings.blocks * settings.block_tokens)
    shapes = [f"{tokens}x{embed}x{embed}", f"{masked}x{embed}x{fairseq_commands.vocabulary(settings.data)}"]
    say("floor: matrix products and memory")
    contender = Contender("rates", timed(measure_rates, *shapes), fairseq_commands.tuned(settings))
    return execute(contender, settings, "floor")


def measure_rates(*shapes: str) -> dict[str, Any]:
    """FLOP/s for each shape ROWSxINNERxCOLUMNS and type, bytes/s of copying and of filling."""
    import torch

    gpu = torch.cuda.is_available()

    def seconds_of(work: Callable[[], object]) -> float:
        """Median seconds of a call, after two for warming up; on a GPU `CALLS` at a time."""
        times: list[float] = []
        end = time.perf_counter() + SECONDS_AT_MOST
        while len(times) < REPETITIONS + 2 and (len(times) < 3 or time.perf_counter() < end):
            start = time.perf_counter()
            for _ in range(CALLS if gpu else 1):
                work()
            if gpu:
                torch.cuda.synchronize()
            times.append((time.perf_counter() - start) / (CALLS if gpu else 1))
        return statistics.median(times[2:])

    def matrix_rate(shape: str, dtype: torch.dtype) -> float:
        rows, inner, columns = (int(size) for size in shape.split("x"))
        left, right = torch.randn(rows, inner), torch.randn(inner, columns)
        left, right = left.to(source.device, dtype), right.to(source.device, dtype)
        target = left.new_empty(rows, columns)
        return 2 * rows * inner * columns / seconds_of(lambda: torch.mm(left, right, out=target))

    device = "cuda" if gpu else "cpu"
    copied = sizes_of(device).copied_bytes
    source = torch.ones(copied // 4, device=device)
    target = torch.ones_like(source)
    types = {"fp32": torch.float32, "bf16": torch.bfloat16}
    return {
        "matrix": {
            shape: {name: matrix_rate(shape, dtype) for name, dtype in types.items()} for shape in shapes
        },
        "memory": {
            "copy": 2 * copied / seconds_of(lambda: target.copy_(source)),  # read and written
            "fill": copied / seconds_of(target.zero_),
        },
    }


def masked_share() -> float:
    """Fraction of tokens that are masked in pre-training."""
    return float(recipes.load("pretrain").value("--mask-prob"))


def sentence_lengths(settings: Settings) -> NDArray[np.integer]:
    """Tokens of each training sentence with <s>, truncated to the maximum length."""
    return np.minimum(read_sizes(settings.data / "input0" / "train.idx") + 1, settings.max_positions)


def best_rate(rates: dict[str, Any]) -> float:
    """FLOP/s of the fastest product."""
    return max(rate for types in rates["matrix"].values() for rate in types.values())
