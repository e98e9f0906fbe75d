"""Run folders of the methods that train with the Transformers Trainer.

Importing this module does not import torch.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from transformers import TrainingArguments

MODEL = "model"
"""Folder of the best model, for `from_pretrained`."""
CHECKPOINTS = "trainer"
"""Folder of the Trainer's own checkpoints, removed when the run is finished."""
MEASURED = "measured.json"
"""What a run measured of itself; copied into its manifest when it is finished."""
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
