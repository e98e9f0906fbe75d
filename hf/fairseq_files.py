"""What a from_pretrained folder carries so that it can become a fairseq checkpoint again, bit for bit.

    fairseq.json                settings that Transformers' configuration cannot hold
    fairseq_extra.safetensors   weights that its model has no place for: the LM head of a classifier

Both may be missing: Transformers does not copy them when it saves a model that it went on training.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from common.errors import UserError
from common.files import atomic_write

from .origin import Origin
from .weights import leftover

SETTINGS = "fairseq.json"
EXTRA = "fairseq_extra.safetensors"
KEYS = {"head": lambda head: head and str(head), "activation_dropout": float, "task": dict}


@dataclass(frozen=True)
class Carried:
    """The content of both files."""

    head: str | None = None
    """Name of the classification head."""
    activation_dropout: float = 0.0
    task: dict[str, Any] = field(default_factory=dict)
    """`shorten_method` and `keep_eos` of a classifier."""
    weights: dict[str, Tensor] = field(default_factory=dict)


def write_carried(folder: Path, origin: Origin) -> None:
    """Write both files into a folder."""
    source = origin.source
    task = {}
    if origin.checkpoint is not None:
        config = origin.checkpoint.task_config()
        task = {"shorten_method": str(config.shorten_method), "keep_eos": config.keep_eos}
    dropout = float(source.arguments.activation_dropout)
    content = {"head": source.head, "activation_dropout": dropout, "task": task}
    atomic_write(folder / SETTINGS, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    extra = leftover(source.weights, head=source.head, lm_head=source.head is None)
    save_file({name: tensor.clone().contiguous() for name, tensor in extra.items()}, folder / EXTRA)
    # safetensors makes files that only their owner may read.
    for path in folder.glob("*.safetensors"):
        shutil.copymode(folder / SETTINGS, path)


def read_carried(folder: Path) -> Carried:
    """Both files, or what they would say if there are none; raises `UserError` where one is malformed."""
    content: dict[str, Any] = {}
    weights: dict[str, Tensor] = {}
    if (path := folder / SETTINGS).is_file():
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            content = {key: kind(content[key]) for key, kind in KEYS.items()}
        except (ValueError, KeyError, TypeError):
            raise UserError(
                f"{path}: not the settings that python -m hf convert writes; remove it, or convert again"
            ) from None
    if (path := folder / EXTRA).is_file():
        try:
            weights = load_file(path)
        except (SafetensorError, OSError):
            raise UserError(f"{path}: damaged or cut short; remove it, or convert again") from None
    return Carried(**content, weights=weights)
