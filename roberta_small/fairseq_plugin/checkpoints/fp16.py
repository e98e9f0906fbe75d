"""Export the weights of a fairseq checkpoint in fp16, as safetensors with fairseq's configuration.

A checkpoint of a small model has 90 MB and is a pickle. The exported file has 46 MB, cannot contain code, and
loads wherever fairseq takes a checkpoint (`--restore-file`, `train --pretrained`, `from_pretrained`). Its
metadata contain the configuration as JSON, of paths the last component, and a checksum of both. Rounding to
IEEE 754 binary16 changes a weight by at most 1 part in 2,048.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
from enum import Enum
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf
from safetensors.torch import save
from torch import Tensor

from roberta_small.common.errors import UserError
from roberta_small.common.files import atomic_write
from roberta_small.fairseq_plugin.checkpoints.architecture import model_arguments
from roberta_small.fairseq_plugin.checkpoints.loading import (
    FORMAT,
    LM_HEAD,
    NAMESPACE,
    checksum,
    load_checkpoint,
)
from roberta_small.fairseq_plugin.models.roberta import LAYER_NORM_EPS

logger = logging.getLogger(__name__)
FP16_MAX = torch.finfo(torch.float16).max
ENCODER = "encoder.sentence_encoder."
EMBEDDINGS = (f"{ENCODER}embed_tokens.weight", f"{ENCODER}embed_positions.weight")
NORM = f"{ENCODER}layernorm_embedding.weight"


def write(
    source: str | os.PathLike[str], target: str | os.PathLike[str], embedding_scale: float = 1.0
) -> None:
    """Write weights and configuration of the checkpoint `source` to the safetensors file `target`.

    If a dict.txt is next to `source`, it is copied next to `target`, so that data can be compared with it
    later; an existing dict.txt is not overwritten. For `embedding_scale` see `scale_embeddings`. Raises
    `UserError` as `load_checkpoint` and `scale_embeddings` do, and for weights outside the range of fp16.
    """
    state = load_checkpoint(source, optimizer=False)
    if embedding_scale != 1.0:
        eps = getattr(model_arguments(state), "layer_norm_eps", LAYER_NORM_EPS)
        state["model"] = scale_embeddings(state["model"], embedding_scale, eps)
    weights: dict[str, Tensor] = {}
    tied: dict[str, str] = {}
    first_names: dict[Any, str] = {}
    for name, weight in state["model"].items():
        if not weight.isfinite().all() or weight.abs().max() > FP16_MAX:
            raise UserError(
                f"{source}: {name} has values outside the range of fp16; use the checkpoint itself"
            )
        first = first_names.setdefault((weight.data_ptr(), weight.shape), name)
        if first == name:
            weights[name] = weight.half().contiguous()
        else:
            tied[name] = first
    settings = _plain({"args": state.get("args"), "cfg": state.get("cfg")})
    configuration = json.dumps(settings | {"tied": tied})
    metadata = {"format": "pt", "kind": FORMAT, "configuration": configuration}
    metadata["sha256"] = checksum(configuration, weights)
    atomic_write(target, save(weights, metadata))
    dictionary, copy = Path(source).with_name("dict.txt"), Path(target).with_name("dict.txt")
    if dictionary.is_file() and not copy.exists():
        atomic_write(copy, dictionary.read_bytes())
    elif dictionary.is_file() and copy.read_bytes() != dictionary.read_bytes():
        logger.warning("%s: differs from the dictionary of %s; not overwritten", copy, source)


def scale_embeddings(
    weights: dict[str, Tensor], scale: float, layer_norm_eps: float = LAYER_NORM_EPS
) -> dict[str, Tensor]:
    """Multiply the embeddings of a RoBERTa by `scale`; `layer_norm_eps` is that of the model.

    The LayerNorm after the embeddings cancels the factor, up to its epsilon. If the LM head is tied to the
    token embeddings, the norm before it is divided by `scale`, so that its scores stay the same too.

    Returns a new dictionary in which tied weights are still tied; `weights` is not modified. Raises
    `UserError` if `scale` is not a positive number or is so small that the epsilon would dominate, and for a
    model without learned positions or without a norm after its embeddings, where scaling would change the
    model.
    """
    if not 0.0 < scale < math.inf:
        raise UserError(f"--embedding-scale {scale}: must be above 0")
    missing = [name for name in (*EMBEDDINGS, NORM) if name not in weights]
    if missing:
        raise UserError(
            f"--embedding-scale: scaling would change the model's predictions, because the checkpoint has no "
            f"{missing[0]}; omit the flag"
        )
    variance = sum(float(weights[name].float().var(1).mean()) for name in EMBEDDINGS)
    smallest = math.sqrt(layer_norm_eps / variance)
    if scale < smallest:
        raise UserError(
            f"--embedding-scale {scale}: LayerNorm's epsilon would dominate; use {smallest:.2g} or more"
        )
    tokens = weights[EMBEDDINGS[0]]
    factors = dict.fromkeys(EMBEDDINGS, scale)
    tied = [name for name, weight in weights.items() if weight.data_ptr() == tokens.data_ptr()]
    if f"{LM_HEAD}weight" in tied:
        factors |= {f"{LM_HEAD}layer_norm.{part}": 1 / scale for part in ("weight", "bias")}
    scaled = {name: weights[name] * factor for name, factor in factors.items()}
    return weights | scaled | dict.fromkeys(tied, scaled[EMBEDDINGS[0]])


def _plain(value: Any) -> Any:
    """A configuration as JSON has it, of absolute paths the last component: `/home/ann/text` -> `text`."""
    if isinstance(value, argparse.Namespace):
        return {NAMESPACE: _plain(vars(value))}
    if OmegaConf.is_config(value):
        value = OmegaConf.to_container(value, resolve=True, enum_to_str=True)
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    value = value.value if isinstance(value, Enum) else value
    return os.path.basename(value) if isinstance(value, str) and os.path.isabs(value) else value
