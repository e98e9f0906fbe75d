"""Weights to give away: safetensors in half precision, with fairseq's configuration beside them.

A fairseq checkpoint of a small model is 90 MB and a pickle; this file is 46 MB, cannot hold code, and
loads wherever fairseq takes a checkpoint (`--restore-file`, `train.sh --pretrained`, `from_pretrained`).
The metadata of the file holds the configuration as JSON, without the folders of the machine that trained
it, and a checksum of both. Rounding to 16 bits (IEEE 754 binary16) moves a weight by at most 1 part in 2,048.

    python -m fairseq_plugin.checkpoints.fp16 pretrained/run/model.pt pretrained/mine/model.safetensors
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import math
import os
import sys
from enum import Enum
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from common.errors import UserError, report_errors
from common.files import atomic_write

from .loading import SUFFIX, load_checkpoint

logger = logging.getLogger(__name__)
FORMAT = "fairseq-roberta"
NAMESPACE = "argparse.Namespace"
LARGEST = torch.finfo(torch.float16).max


def write(
    source: str | os.PathLike[str], target: str | os.PathLike[str], embedding_scale: float = 1.0
) -> None:
    """Copy the weights and the configuration of a fairseq checkpoint, and the dict.txt beside it, if any.

    By that it is told later whether data fit. A dict.txt that lies beside `target` stays. An
    `embedding_scale` other than 1 makes the embeddings smaller or larger, in nearly the same model.

    Raises `UserError` for what `load_checkpoint` and `scale_embeddings` refuse, and weights beyond 16 bits.
    """
    state = load_checkpoint(source)
    if embedding_scale != 1.0:
        state["model"] = scale_embeddings(state["model"], embedding_scale)
    weights: dict[str, torch.Tensor] = {}
    tied: dict[str, str] = {}
    places: dict[Any, str] = {}
    for name, weight in state["model"].items():
        if not weight.isfinite().all() or weight.abs().max() > LARGEST:
            raise UserError(f"{source}: {name} has values that 16 bits cannot hold; keep the checkpoint")
        first = places.setdefault((weight.data_ptr(), weight.shape), name)
        if first == name:
            weights[name] = weight.half().contiguous()
        else:
            tied[name] = first
    kept = json.loads(json.dumps({"args": state.get("args"), "cfg": state.get("cfg")}, default=_as_json))
    configuration = json.dumps(_without_folders(kept) | {"tied": tied})
    metadata = {"format": "pt", "kind": FORMAT, "configuration": configuration}
    metadata["sha256"] = _digest(configuration, weights)
    atomic_write(target, save(weights, metadata))
    dictionary, copied = Path(source).with_name("dict.txt"), Path(target).with_name("dict.txt")
    if dictionary.is_file() and not copied.exists():
        atomic_write(copied, dictionary.read_bytes())
    elif dictionary.is_file() and copied.read_bytes() != dictionary.read_bytes():
        logger.warning("%s: not the dictionary of %s; it stays", copied, source)


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """A checkpoint's state as fairseq knows it, weights in float32.

    Raises `UserError` for a file that is missing, damaged, or not written by `write`.
    """
    if not Path(path).is_file():
        raise UserError(f"{path}: no such checkpoint")
    try:
        with safe_open(path, framework="pt") as stored:
            metadata = stored.metadata() or {}
            weights = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
        if metadata.get("kind") != FORMAT:
            raise UserError(
                f"{path}: not written by fairseq_plugin.checkpoints.fp16; convert it with python -m hf"
            )
        if metadata.get("sha256") not in (None, _digest(metadata["configuration"], weights)):
            raise ValueError("other weights")
        kept = json.loads(metadata["configuration"], object_hook=_from_json)
        weights = {name: weight.float() for name, weight in weights.items()}
        weights |= {name: weights[first] for name, first in kept.pop("tied").items()}
    except (SafetensorError, OSError, LookupError, ValueError, TypeError, AttributeError):
        raise UserError(f"{path}: damaged or cut short; copy it again") from None
    # fairseq looks at the last two of every checkpoint, even where it resets them.
    history = [{"criterion_name": "", "lr_scheduler_state": {}, "num_updates": 0}]
    return {
        **kept,
        "model": weights,
        "optimizer_history": history,
        "extra_state": {"train_iterator": {"epoch": 1}},
    }


def _digest(configuration: str, weights: dict[str, torch.Tensor]) -> str:
    """SHA-256 of what the file says; the format has no checksum of its own."""
    digest = hashlib.sha256(configuration.encode())
    for name in sorted(weights):
        digest.update(f"{name} {weights[name].dtype} {tuple(weights[name].shape)}".encode())
        digest.update(weights[name].numpy().tobytes())
    return digest.hexdigest()


def _as_json(value: Any) -> Any:
    if isinstance(value, argparse.Namespace):
        return {NAMESPACE: vars(value)}
    if OmegaConf.is_config(value):
        return OmegaConf.to_container(value, resolve=True, enum_to_str=True)
    if isinstance(value, Enum):
        return value.value
    raise TypeError(f"{type(value).__name__} in a configuration of fairseq")


def _without_folders(value: Any) -> Any:
    """The same with `corpus` in the place of `/home/ann/data/corpus`."""
    if isinstance(value, dict):
        return {name: _without_folders(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_without_folders(inner) for inner in value]
    return os.path.basename(value) if isinstance(value, str) and os.path.isabs(value) else value


def _from_json(value: dict[str, Any]) -> Any:
    return argparse.Namespace(**value[NAMESPACE]) if set(value) == {NAMESPACE} else value


@report_errors
def main(argv: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m fairseq_plugin.checkpoints.fp16",
        description="Write the weights of a fairseq checkpoint in half precision, as safetensors.",
        epilog="example: python -m fairseq_plugin.checkpoints.fp16 pretrained/run/model.pt "
        "pretrained/mine/model.safetensors --embedding-scale 0.125",
    )
    parser.add_argument("checkpoint", type=Path, help="checkpoint of fairseq")
    parser.add_argument("output", type=Path, help=f"file to write, NAME{SUFFIX}")
    parser.add_argument(
        "--embedding-scale", type=float, default=1.0, metavar="F",
        help="multiply the embeddings by F, below 1 for a short fine-tuning at a small rate to move them "
        "further; what the model computes stays nearly the same (default: 1)",
    )  # fmt: skip
    args = parser.parse_args(argv)
    if args.output.suffix != SUFFIX:
        raise UserError(f"{args.output}: must end in {SUFFIX}, by which it is known again")
    write(args.checkpoint, args.output, args.embedding_scale)
    print(f"written to {args.output}")
    return 0


ENCODER, HEAD = "encoder.sentence_encoder.", "encoder.lm_head."
EMBEDDINGS = (f"{ENCODER}embed_tokens.weight", f"{ENCODER}embed_positions.weight")
NORM = f"{ENCODER}layernorm_embedding.weight"
EPSILON = 1e-5
"""Of that norm, as torch and fairseq have it."""


def scale_embeddings(weights: dict[str, Tensor], scale: float) -> dict[str, Tensor]:
    """The weights of a RoBERTa with its embeddings times `scale`; tied ones stay tied, the argument as it is.

    Raises `UserError` for a scale that is not a positive number or too small for the norm to take back, and
    for a model without learned positions or without a norm after its embeddings: there a scale is another
    function.
    """
    if not 0.0 < scale < math.inf:
        raise UserError(f"--embedding-scale {scale}: must be above 0")
    missing = [name for name in (*EMBEDDINGS, NORM) if name not in weights]
    if missing:
        raise UserError(
            f"--embedding-scale: it would change what the model computes, which has no {missing[0]}"
        )
    smallest = math.sqrt(EPSILON / sum(float(weights[name].float().var(1).mean()) for name in EMBEDDINGS))
    if scale < smallest:
        raise UserError(
            f"--embedding-scale {scale}: the norm's epsilon would outweigh the embeddings; "
            f"take {smallest:.2g} or more"
        )
    tokens = weights[EMBEDDINGS[0]]
    factors = dict.fromkeys(EMBEDDINGS, scale)
    tied = [name for name, weight in weights.items() if weight.data_ptr() == tokens.data_ptr()]
    if f"{HEAD}weight" in tied:
        factors |= {f"{HEAD}layer_norm.{part}": 1 / scale for part in ("weight", "bias")}
    scaled = {name: weights[name] * factor for name, factor in factors.items()}
    return weights | scaled | dict.fromkeys(tied, scaled[EMBEDDINGS[0]])


if __name__ == "__main__":
    sys.exit(main())
