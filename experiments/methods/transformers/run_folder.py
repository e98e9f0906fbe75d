"""Run folders of the methods that train with the Transformers Trainer: manifest, log, checkpoints.

Importing this module does not import torch.
"""

from __future__ import annotations

import json
import logging
import resource
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roberta_small.common import manifest
from roberta_small.common.errors import UserError
from roberta_small.common.run import LOG, TENSORBOARD
from roberta_small.experiments.progress import LOG_FORMAT, LOG_TIME
from roberta_small.experiments.provenance import now

if TYPE_CHECKING:
    import torch
    from transformers import TrainingArguments

MODEL = "model"
"""Folder of the best model, for `from_pretrained`."""
CHECKPOINTS = "trainer"
"""Folder of the Trainer's own checkpoints, removed when the run is finished."""
MEASURED = "measured.json"
"""What a run measured of itself; copied into its manifest when it is finished."""
METHODS = "roberta_small.experiments.methods"
"""Parent of the loggers of all methods."""
PACKAGES = ("transformers", "accelerate", "peft", "safetensors", "bitsandbytes")
"""Packages whose versions a manifest records in addition to those of fairseq runs."""


def last_checkpoint(folder: Path) -> Path | None:
    """The Trainer's newest complete checkpoint below `folder`.

    The Trainer writes trainer_state.json last. A checkpoint is incomplete if that file is missing or
    truncated.
    """

    def updates(checkpoint: Path) -> int:
        return int(checkpoint.name.rpartition("-")[2])

    for checkpoint in sorted(folder.glob("checkpoint-*"), key=updates, reverse=True):
        try:
            json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        return checkpoint
    return None


def measured(run: Path) -> dict[str, Any]:
    """What a run measured of itself, for its manifest."""
    path = run / MEASURED
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


@contextmanager
def recorded(folder: Path, content: manifest.Manifest) -> Iterator[manifest.Manifest]:
    """Write the manifest and train.log of a run that is trained inside the `with` block.

    `content` identifies the run (see `common.manifest`). The block gets it as a mapping; keys that it adds
    are written to the manifest too. The final status is "finished", "interrupted" after Ctrl-C or SIGTERM,
    and "failed" after any other exception.
    """
    started = time.monotonic()
    content = content | {"status": "running", "started": now(), "ended": None, "seconds": 0}
    manifest.write(folder, content)
    status = "failed"
    with _log_file(folder / LOG), _termination_interrupts():
        try:
            yield content
            status = "finished"
        except KeyboardInterrupt:
            status = "interrupted"
            raise
        except UserError as error:
            logging.getLogger(__name__).error("%s", error)
            raise
        except Exception:
            logging.getLogger(__name__).exception("the run failed")
            raise
        finally:
            content |= {"status": status, "ended": now(), "seconds": round(time.monotonic() - started, 3)}
            manifest.write(folder, content)


def on_one_device(arguments: TrainingArguments) -> None:
    """Use at most one GPU: the Trainer would multiply the batch size by the number of visible GPUs."""
    arguments._n_gpu = min(1, arguments.n_gpu)


def peak_memory_bytes(device: torch.device) -> int:
    """Peak memory of this process so far in bytes: allocated on a GPU, or resident on a CPU."""
    if device.type == "cuda":
        import torch

        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def write_scalars(folder: Path, subset: str, values: dict[str, float], step: int) -> None:
    """Write one event file of a subset with the values of one step, under fairseq's tags."""
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(folder / TENSORBOARD / subset) as writer:
        for tag, value in values.items():
            writer.add_scalar(tag, value, step)


@contextmanager
def _log_file(path: Path) -> Iterator[None]:
    handler = logging.FileHandler(path, mode="w", encoding="utf-8")
    handler.setFormatter(logging.Formatter(LOG_FORMAT, LOG_TIME))
    ours, level = logging.getLogger(METHODS), logging.getLogger(METHODS).level
    ours.setLevel(logging.INFO)
    ours.addHandler(handler)
    ours.propagate = False  # the terminal shows a progress bar and a single error message
    try:
        yield
    finally:
        ours.setLevel(level)
        ours.propagate = True
        ours.removeHandler(handler)
        handler.close()


@contextmanager
def _termination_interrupts() -> Iterator[None]:
    """Let SIGTERM raise KeyboardInterrupt, as Ctrl-C does."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
