"""A from_pretrained folder, read: RoBERTa classifiers and masked language models with weights in
safetensors."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import RobertaForMaskedLM, RobertaForSequenceClassification

from common.errors import UserError
from common.files import atomic_write

from .origin import Origin
from .weights import leftover

Model = RobertaForSequenceClassification | RobertaForMaskedLM
MODELS = {kind.__name__: kind for kind in (RobertaForSequenceClassification, RobertaForMaskedLM)}
WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
SHOWN = 3
REMEDY = "give a folder that save_pretrained or python -m hf convert wrote"


def load_folder(folder: str | os.PathLike[str], *, attention: str = "sdpa") -> Model:
    """The model of a folder, fp32, on the CPU, in evaluation mode; `attention` is Transformers'
    implementation.

    Pickled weights are never read. Raises `UserError` where the folder or a part of it is missing or damaged,
    where the model is of another kind, and where weights are missing that would otherwise be random.
    """
    folder = Path(folder)
    kind = MODELS[_architecture(folder)]
    if not any((folder / name).is_file() for name in WEIGHTS):
        raise UserError(
            f"{folder}: no model.safetensors; pickled weights are not read, so save the model again with "
            "save_pretrained of a current Transformers"
        )
    try:
        model, report = kind.from_pretrained(
            folder,
            local_files_only=True,
            use_safetensors=True,
            dtype=torch.float32,
            attn_implementation=attention,
            output_loading_info=True,
        )
    except (SafetensorError, OSError, RuntimeError, ValueError, TypeError, KeyError) as error:
        reason = " ".join(str(error).split())[:160]
        raise UserError(f"{folder}: the model cannot be loaded ({reason}); write the folder again") from None
    if missing := sorted(report["missing_keys"]):
        more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
        raise UserError(
            f"{folder}: weights are missing: {', '.join(missing[:SHOWN])}{more}; write the folder again"
        )
    return model.eval()


def class_names(model: RobertaForSequenceClassification) -> list[str]:
    """Names of the classes, in the order of the logits."""
    return [model.config.id2label[k] for k in range(model.config.num_labels)]


def _architecture(folder: Path) -> str:
    path = folder / "config.json"
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; {REMEDY}")
    if not path.is_file():
        raise UserError(f"{path}: no such file; {REMEDY}")
    try:
        config: Any = json.loads(path.read_text(encoding="utf-8"))
        names = config.get("architectures") or [None]
    except (ValueError, AttributeError):
        raise UserError(f"{path}: not the configuration of a model; write the folder again") from None
    if config.get("model_type") != "roberta" or names[0] not in MODELS:
        raise UserError(
            f"{path}: {names[0] or 'a model'} of type '{config.get('model_type')}', not one of "
            f"{', '.join(MODELS)}; give a RoBERTa"
        )
    return names[0]


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
