"""fairseq-train with a clock at each update.

python -m benchmarks.timed.fairseq_train OUT.json WARM_UP arguments of fairseq-train ...
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import torch
from fairseq.trainer import Trainer
from fairseq_cli.train import cli_main

from benchmarks.timed.clock import Clock
from roberta_small.common.files import atomic_write


def main(output: str, warm_up: str, *arguments: str) -> None:
    """Train with these arguments, then write the times of the updates after the first `warm_up`."""
    clock = Clock()
    train_step = Trainer.train_step

    def timed(trainer: Trainer, samples: list[dict[str, Any]], *args: Any, **kwargs: Any) -> Any:
        clock.start(sum(sample["ntokens"] for sample in samples))
        logged = train_step(trainer, samples, *args, **kwargs)
        clock.loss(float(logged["loss"]))
        return logged

    forget = torch.cuda.reset_peak_memory_stats

    def noted(*args: Any) -> None:
        clock.note_memory()
        forget(*args)

    Trainer.train_step = timed
    torch.cuda.reset_peak_memory_stats = noted  # fairseq calls it at the end of each update
    sys.argv = ["fairseq-train", *arguments]
    cli_main()
    atomic_write(output, json.dumps(clock.result(int(warm_up))))
    # Stock fairseq's loading thread, still at work in the middle of an epoch, may abort an ordinary end.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
