"""What a run says while it trains: in `train.log` as fairseq's lines, in TensorBoard with fairseq's tags.

So the sweep follows it, and `analysis` reads it, like a run of fairseq: subsets train_inner (every 25
updates), train (every epoch), valid and test (every validation); losses in bits.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

from torch.utils.tensorboard import SummaryWriter
from transformers.utils.logging import disable_progress_bar

from .run_folder import FORMAT, TIME

INTERVAL = 25
"""Updates between two records of the training loss."""


def log_to_standard_output() -> None:
    """Lines as fairseq-train has them; the sweep puts them into `train.log`."""
    logging.basicConfig(format=FORMAT, datefmt=TIME, level=logging.INFO, force=True)
    disable_progress_bar()  # of saving and loading, each a line of its own in a file


class RunLog:
    """Writes records; close it at the end."""

    def __init__(self, tensorboard: Path) -> None:
        self._folder = tensorboard
        self._writers: dict[str, SummaryWriter] = {}

    def write(
        self, subset: str, values: dict[str, float], *, step: int, epoch: int, done: float = 0.0
    ) -> None:
        """One record; `done` is how many epochs are done, with the fraction of the current one."""
        if subset not in self._writers:
            self._writers[subset] = SummaryWriter(self._folder / subset)
        for tag, value in values.items():
            self._writers[subset].add_scalar(tag, value, step)
        self._writers[subset].flush()
        # fairseq names the values of a validation after their subset, those of training not.
        training = subset.startswith("train")
        prefix = "" if subset == "train_inner" else f"{subset}_"
        named = {f"{prefix}{tag}": f"{value:.6g}" for tag, value in (values | {"num_updates": step}).items()}
        record = {"epoch": epoch} | ({"update": f"{done:.3f}"} if training else {}) | named
        logging.getLogger(subset).info("%s", json.dumps(record))

    def close(self) -> None:
        """Flush all files."""
        for writer in self._writers.values():
            writer.close()
