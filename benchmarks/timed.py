"""A function in a process of its own: python -m benchmarks.timed OUT.json MODULE:FUNCTION WORD ...

The file gets what the function returns: `seconds` and, if it has them, `tokens`, `losses` and others.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from roberta_small.common.files import atomic_write

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class Clock:
    """Records the start of each update, its number of real tokens and its loss."""

    def __init__(self) -> None:
        self._starts: list[float] = []
        self._events: list[torch.cuda.Event] = []
        self._tokens: list[int | Tensor] = []
        self.losses: list[float | Tensor] = []

    def start(self, tokens: int | Tensor) -> None:
        """An update of `tokens` tokens starts; a GPU notes when it gets there, and nothing waits for it."""
        import torch

        if torch.cuda.is_available():
            self._events.append(torch.cuda.Event(enable_timing=True))
            self._events[-1].record()
        self._starts.append(time.perf_counter())
        self._tokens.append(tokens)

    def result(self, warm_up: int) -> dict[str, Any]:
        """Seconds and tokens of each update after the first `warm_up`; the last one has no end.

        Loading data and logging are part of them. The losses are those of all updates; on a GPU `gpu_bytes`
        is the peak memory of tensors.
        """
        import torch

        seconds = [after - before for before, after in itertools.pairwise(self._starts)][warm_up:]
        if not seconds:
            raise SystemExit(
                f"error: {len(self._starts)} updates, of which {warm_up} are warm-up and the last has no end"
            )
        tokens, losses = [int(n) for n in self._tokens], [float(loss) for loss in self.losses]
        record = {"seconds": seconds, "tokens": tokens[warm_up:-1], "losses": losses}
        if not self._events:
            return record
        torch.cuda.synchronize()
        events = itertools.pairwise(self._events)
        seconds = [before.elapsed_time(after) / 1000 for before, after in events][warm_up:]
        return record | {"seconds": seconds, "gpu_bytes": torch.cuda.max_memory_reserved()}


def fairseq_train(warm_up: str, *flags: str) -> dict[str, Any]:
    """fairseq-train with a clock at each update."""
    import torch
    from fairseq.trainer import Trainer
    from fairseq_cli.train import cli_main

    clock, train_step = Clock(), Trainer.train_step

    def step(trainer: Trainer, samples: list[dict[str, Any]], *args: Any, **kwargs: Any) -> Any:
        clock.start(sum(sample["ntokens"] for sample in samples))
        logged = train_step(trainer, samples, *args, **kwargs)
        # None: in fp16, a gradient of stock fairseq has overflowed, and the optimizer's step was left out.
        # Without a loss: on a GPU, our training logs an update during the next one.
        if logged is not None and "loss" in logged:
            clock.losses.append(logged["loss"])
        return logged

    Trainer.train_step = step
    torch.cuda.reset_peak_memory_stats = lambda *_: None  # fairseq calls it after each update
    sys.argv = ["fairseq-train", *flags]
    cli_main()
    return clock.result(int(warm_up))


def main(output: str, place: str, *words: str) -> None:
    """Call the function and write its record."""
    module, _, name = place.partition(":")
    record = getattr(importlib.import_module(module), name)(*words)
    atomic_write(output, json.dumps(record))
    # Stock fairseq's loading thread, still at work in the middle of an epoch, may abort an ordinary end.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
