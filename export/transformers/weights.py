"""A fairseq RoBERTa checkpoint, read for Transformers: its weights under today's names, and how it was built.

Shapes: V types with `<mask>`, P positions, C embedding, F feed-forward, K classes.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import torch
from fairseq.data import Dictionary
from fairseq.models.roberta.model import RobertaModel
from torch import Tensor

import fairseq_plugin  # noqa: F401  registers what a checkpoint names
from common.errors import UserError
from eval.loading.checkpoint import architecture
from fairseq_plugin.checkpoints.loading import load_checkpoint
from fairseq_plugin.models.roberta import RobertaSmall

HEADS = "classification_heads."
TOKENS = "encoder.sentence_encoder.embed_tokens.weight"
SPECIALS = 4  # <s> <pad> </s> <unk>
ARCHITECTURES = ("roberta_small", "roberta", "roberta_base", "roberta_large")
# What Transformers' RoBERTa has no place for: argument -> the value it must have, and why.
REQUIRED = {
    "encoder_normalize_before": (False, "layer norms before the blocks (--encoder-normalize-before)"),
    "untie_weights_roberta": (False, "an LM head of its own weights (--untie-weights-roberta)"),
    "pooling": ("first", "the mean of all tokens' vectors as its head's input (--pooling mean)"),
    "pooler_activation_fn": ("tanh", "another activation than tanh in its head (--pooler-activation-fn)"),
}


@dataclass(frozen=True)
class Source:
    """What a file says of the RoBERTa in it."""

    path: Path
    arguments: argparse.Namespace
    """The model's, as fairseq builds it from them."""
    weights: dict[str, Tensor]
    """As a model of today's fairseq names them."""
    head: str | None
    """Name of the classification head; None for a masked language model."""

    @property
    def vocabulary(self) -> int:
        """V."""
        return len(self.weights[TOKENS])

    @property
    def classes(self) -> int | None:
        """K; None for a masked language model."""
        return None if self.head is None else len(self.weights[f"{HEADS}{self.head}.out_proj.weight"])

    def model(self) -> RobertaModel:
        """fairseq's own model with these weights, padded, fp32, in evaluation mode: (B, L) ids -> logits."""
        model = model_of(self.arguments, self.vocabulary, self.head, self.classes)
        model.load_state_dict(self.weights)
        return model.eval()


def read_source(path: str | os.PathLike[str]) -> Source:
    """Read a masked language model or a sentence classifier.

    Raises `UserError` for what is no checkpoint (see `load_checkpoint`), for another architecture than
    RoBERTa, for one that Transformers' RoBERTa cannot express, and for weights that do not fit their own
    settings.
    """
    path = Path(path)
    state = load_checkpoint(path)
    arguments = _arguments(path, state)
    weights: dict[str, Tensor] = state["model"]
    tokens = next((value for key, value in weights.items() if key.endswith(".embed_tokens.weight")), None)
    if tokens is None:
        raise UserError(f"{path}: no token embeddings, so not a RoBERTa; give one that fairseq trained")
    head, classes = _head(path, weights)
    try:
        model = model_of(arguments, len(tokens), head, classes)
        weights = dict(weights)
        model.upgrade_state_dict(weights)
        model.load_state_dict(weights)
    except (RuntimeError, AttributeError, KeyError, TypeError, ValueError, AssertionError) as error:
        raise UserError(
            f"{path}: its weights do not fit its own settings ({first_lines(error)}); "
            "give a file that fairseq wrote"
        ) from None
    return Source(path, model.args, weights, head)


def first_lines(error: BaseException) -> str:
    """What torch says, without the list of everything."""
    return " ".join(str(error).split())[:200]


def _arguments(path: Path, state: dict) -> argparse.Namespace:
    cfg = state.get("cfg")
    found = cfg["model"] if cfg is not None else state.get("args")
    arguments = argparse.Namespace(**(vars(found) if hasattr(found, "__dict__") else dict(found or {})))
    if (name := architecture(arguments)) not in ARCHITECTURES:
        raise UserError(f"{path}: a model of architecture '{name}', not one of {', '.join(ARCHITECTURES)}")
    for name, (value, what) in REQUIRED.items():
        if getattr(arguments, name, value) != value:
            raise UserError(f"{path}: trained with {what}, which Transformers' RoBERTa cannot express")
    return arguments


def _head(path: Path, weights: dict[str, Tensor]) -> tuple[str | None, int | None]:
    names = sorted({key.removeprefix(HEADS).split(".")[0] for key in weights if key.startswith(HEADS)})
    if len(names) > 1:
        raise UserError(
            f"{path}: {len(names)} classification heads ({', '.join(names)}); give a file with one"
        )
    if not names:
        return None, None
    out = weights.get(f"{HEADS}{names[0]}.out_proj.weight")
    if out is None:
        raise UserError(f"{path}: its head '{names[0]}' has no {HEADS}{names[0]}.out_proj.weight; cut short?")
    return names[0], len(out)


def model_of(
    arguments: argparse.Namespace, vocabulary: int, head: str | None, classes: int | None
) -> RobertaModel:
    """fairseq's own RoBERTa with random weights, built from a checkpoint's arguments."""
    arguments = argparse.Namespace(**vars(arguments) | {"encoder_kind": "padded", "precision": "fp32"})
    dictionary = Dictionary()
    for number in range(vocabulary - SPECIALS):
        dictionary.add_symbol(f"piece{number}")
    positions = getattr(arguments, "max_positions", None) or getattr(arguments, "tokens_per_sample", 512)
    arguments.max_positions = positions
    task = SimpleNamespace(source_dictionary=dictionary, max_positions=lambda: positions)
    with torch.random.fork_rng(devices=[]):
        model = RobertaSmall.build_model(arguments, task)
        if head is not None:
            model.register_classification_head(head, num_classes=classes)
    return model


# Modules, fairseq's name and Transformers'; `weight` and `bias` are called the same in both.
ENCODER = {
    "encoder.sentence_encoder.embed_tokens": "roberta.embeddings.word_embeddings",
    "encoder.sentence_encoder.embed_positions": "roberta.embeddings.position_embeddings",
    "encoder.sentence_encoder.layernorm_embedding": "roberta.embeddings.LayerNorm",
}
LAYER = {  # of encoder.sentence_encoder.layers.N and roberta.encoder.layer.N
    "self_attn.q_proj": "attention.self.query",
    "self_attn.k_proj": "attention.self.key",
    "self_attn.v_proj": "attention.self.value",
    "self_attn.out_proj": "attention.output.dense",
    "self_attn_layer_norm": "attention.output.LayerNorm",
    "fc1": "intermediate.dense",
    "fc2": "output.dense",
    "final_layer_norm": "output.LayerNorm",
}
LM_HEAD = {"encoder.lm_head.dense": "lm_head.dense", "encoder.lm_head.layer_norm": "lm_head.layer_norm"}
# The LM head's matrix is the token embeddings', in both; Transformers has its bias twice.
TIED = "encoder.lm_head.weight"
LM_OUTPUT = {TIED: ("lm_head.decoder.weight",)}
LM_OUTPUT["encoder.lm_head.bias"] = ("lm_head.bias", "lm_head.decoder.bias")
TOKEN_TYPES = "roberta.embeddings.token_type_embeddings.weight"
POSITIONS = "encoder.sentence_encoder.embed_positions.weight"
FAIRSEQ_LAYER = re.compile(r"encoder\.sentence_encoder\.layers\.(\d+)\.(.+)")
TRANSFORMERS_LAYER = re.compile(r"roberta\.encoder\.layer\.(\d+)\.(.+)")


def to_transformers(weights: Mapping[str, Tensor], *, head: str | None, lm_head: bool) -> dict[str, Tensor]:
    """The state dict of a Transformers RoBERTa.

    With `head`, the name of a classification head, that of `RobertaForSequenceClassification`; with `lm_head`
    that of `RobertaForMaskedLM`; with neither the encoder's part of both. What fairseq has beyond that
    (`leftover`) is left out.
    """
    names = _fairseq_modules(head, lm_head)
    found: dict[str, Tensor] = {}
    for key, tensor in weights.items():
        if lm_head and key in LM_OUTPUT:
            found |= dict.fromkeys(LM_OUTPUT[key], tensor)
        elif (name := _translated(key, names, FAIRSEQ_LAYER, LAYER, "roberta.encoder.layer")) is not None:
            found[name] = tensor
    found[TOKEN_TYPES] = torch.zeros(1, found["roberta.embeddings.word_embeddings.weight"].shape[1])
    return found


def to_fairseq(weights: Mapping[str, Tensor], *, head: str | None) -> dict[str, Tensor]:
    """The inverse: a Transformers state dict under fairseq's names, without what fairseq has beyond it.

    fairseq has no token types. A row (1, C) that is not zero, as training with Transformers makes it, is
    added to every position, which gives the same sum for every token.
    """
    names = {theirs: ours for ours, theirs in _fairseq_modules(head, lm_head=True).items()}
    layer = {theirs: ours for ours, theirs in LAYER.items()}
    outputs = {names[0]: key for key, names in LM_OUTPUT.items()}
    found: dict[str, Tensor] = {}
    for key, tensor in weights.items():
        if key in outputs:
            found[outputs[key]] = tensor
            continue
        name = _translated(key, names, TRANSFORMERS_LAYER, layer, "encoder.sentence_encoder.layers")
        if name is not None:
            found[name] = tensor
    token_type_1C = weights.get(TOKEN_TYPES)
    if token_type_1C is not None and token_type_1C.any():
        found[POSITIONS] = found[POSITIONS] + token_type_1C
    return found


def leftover(weights: Mapping[str, Tensor], *, head: str | None, lm_head: bool) -> dict[str, Tensor]:
    """What `to_transformers` has no place for: the LM head of a classifier, and fairseq's version number.

    Not the LM head's matrix, which is the token embeddings'.
    """
    names = _fairseq_modules(head, lm_head)
    placed = {TIED, *(LM_OUTPUT if lm_head else ())}
    return {
        key: tensor
        for key, tensor in weights.items()
        if key not in placed and _translated(key, names, FAIRSEQ_LAYER, LAYER, "") is None
    }


def _fairseq_modules(head: str | None, lm_head: bool) -> dict[str, str]:
    modules = ENCODER | (LM_HEAD if lm_head else {})
    if head is not None:
        for part in ("dense", "out_proj"):
            modules[f"classification_heads.{head}.{part}"] = f"classifier.{part}"
    return modules


def _translated(
    key: str,
    modules: Mapping[str, str],
    layer_pattern: re.Pattern[str],
    layer: Mapping[str, str],
    layers: str,
) -> str | None:
    """The other side's name of a weight; None where it has none."""
    if matched := layer_pattern.fullmatch(key):
        number, rest = matched.groups()
        module, _, kind = rest.rpartition(".")
        return f"{layers}.{number}.{layer[module]}.{kind}" if module in layer else None
    module, _, kind = key.rpartition(".")
    return f"{modules[module]}.{kind}" if module in modules else None
