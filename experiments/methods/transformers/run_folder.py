"""A run that is trained in this process, written as `common/manifest.py` says."""

from __future__ import annotations

import logging
import resource
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch.utils.tensorboard import SummaryWriter
from transformers import TrainingArguments

from common import manifest
from common.errors import UserError
from common.run import LOG, TENSORBOARD

from ...provenance import now

FORMAT = "%(asctime)s | %(levelname)s | %(name)s | %(message)s"
TIME = "%Y-%m-%d %H:%M:%S"
METHODS = "experiments.methods"
"""The logger above those of all methods."""
PACKAGES = ("transformers", "accelerate", "peft", "safetensors")


@contextmanager
def recorded(folder: Path, content: manifest.Manifest) -> Iterator[manifest.Manifest]:
    """Keep the manifest and `train.log` of a run while the block trains it.

    `content` says which run it is (`common/manifest.py`); what the block adds to the mapping that it is given
    stands in the manifest too. An error leaves the status failed, Ctrl-C and SIGTERM leave interrupted.
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


def versions() -> dict[str, str]:
    """What a manifest's `packages` has beside those of fairseq."""
    found = (*PACKAGES, "bitsandbytes") if find_spec("bitsandbytes") else PACKAGES
    return {name: metadata.version(name) for name in found}


def on_one_device(arguments: TrainingArguments) -> None:
    """Keep Trainer from sharing each batch, times their number, among all GPUs that it sees."""
    arguments._n_gpu = min(1, arguments.n_gpu)


def peak_memory_bytes(device: torch.device) -> int:
    """The most memory that this process has held so far: of the GPU, or resident on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def write_scalars(folder: Path, subset: str, values: dict[str, float], step: int) -> None:
    """One event file of a subset with one step in it, tags as fairseq has them."""
    with SummaryWriter(folder / TENSORBOARD / subset) as writer:
        for tag, value in values.items():
            writer.add_scalar(tag, value, step)


@contextmanager
def _log_file(path: Path) -> Iterator[None]:
    handler = logging.FileHandler(path, mode="w", encoding="utf-8")
    handler.setFormatter(logging.Formatter(FORMAT, TIME))
    ours, level = logging.getLogger(METHODS), logging.getLogger(METHODS).level
    ours.setLevel(logging.INFO)
    ours.addHandler(handler)
    ours.propagate = False  # the terminal has a bar, and an error in one line
    try:
        yield
    finally:
        ours.setLevel(level)
        ours.propagate = True
        ours.removeHandler(handler)
        handler.close()


@contextmanager
def _termination_interrupts() -> Iterator[None]:
    """SIGTERM raises KeyboardInterrupt, as Ctrl-C does."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
