"""The names of RoBERTa's weights in fairseq and in Transformers; the tensors themselves are the same.

C is the embedding.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

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
