"""RoBERTa's packed encoder read from left to right: a token attends to itself and those before it.

Parameters and their names are those of the packed encoder (`packed.py`), and like it this one computes no
padding. One function, `causal_layer`, is a layer wherever it runs: over the packed tokens of a batch, over
the last tokens of its sentences alone, or over new tokens beside a cache of old ones (`causal_cache.py`).

Shapes: B sentences, L length of the longest, T tokens of the packed sequence, l tokens of one sentence,
C embedding size, H heads, D size of a head (C = H * D), E = 3 * C, P positions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.data import Dictionary
from fairseq.modules import MultiheadAttention
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from torch import Tensor, nn

from .attention import attend_from_first
from .dropout import dropout
from .packed import PackedTransformerEncoder, Packing

POOLINGS = ("last", "mean")


class CausalEncoder(PackedTransformerEncoder):
    """`PackedTransformerEncoder` with attention to the left; what a token becomes depends on no later one."""

    def __init__(self, args: Any, dictionary: Dictionary, embed_tokens: nn.Embedding) -> None:
        super().__init__(args, dictionary, embed_tokens)
        if not args.encoder_learned_pos:
            width = embed_tokens.embedding_dim
            self.embed_positions = SinusoidalPositions(args.max_positions, width, self.padding_idx)

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None = None,
        return_all_hiddens: bool = False,
        token_embeddings: Tensor | None = None,
    ) -> dict[str, list[Tensor]]:
        """As `PackedTransformerEncoder.forward`: `src_tokens` (B, L) int64, padded on the right."""
        packing = Packing(src_tokens, self.padding_idx)
        x_TC = self.embed(src_tokens, packing, token_embeddings)
        states = [packing.unpack(x_TC)] if return_all_hiddens else []
        for layer in self.layers:
            x_TC = self._over_all(layer, x_TC, packing)
            if return_all_hiddens:
                states.append(packing.unpack(x_TC))
        return {
            "encoder_out": [packing.unpack(self.normalised(x_TC))],
            "encoder_padding_mask": [~packing.real_BL],
            "encoder_embedding": [],
            "encoder_states": states,
            "fc_results": [],
            "src_tokens": [],
            "src_lengths": [packing.lengths_B.reshape(-1, 1).int()],
        }

    def pooled(self, src_tokens: Tensor, pooling: str) -> Tensor:
        """One vector a sentence: its last real token's, or the mean of all real ones': (B, L) -> (B, C).

        Zeros for a row of pads alone. For `last` the last layer computes nothing else, which is the same
        (see `attend_from_first`: its query may be any token that sees the whole sentence).
        """
        packing = Packing(src_tokens, self.padding_idx)
        x_TC = self.embed(src_tokens, packing)
        if not packing.lengths:
            return x_TC.new_zeros(len(src_tokens), x_TC.size(-1))
        for layer in self.layers[:-1]:
            x_TC = self._over_all(layer, x_TC, packing)
        if pooling == "last":
            x_SC = self.normalised(self._over_last(self.layers[-1], x_TC, packing))
        else:
            x_TC = self.normalised(self._over_all(self.layers[-1], x_TC, packing))
            x_SC = torch.stack([x_lC.mean(0) for x_lC in x_TC[: packing.tokens].split(packing.lengths)])
        if len(x_SC) == len(src_tokens):
            return x_SC
        zeros_BC = x_SC.new_zeros(len(src_tokens), x_SC.size(-1))
        return zeros_BC.index_copy(0, packing.lengths_B.nonzero().squeeze(1), x_SC)

    def normalised(self, x: Tensor) -> Tensor:
        """The norm after the last layer, which pre-norm networks have: (..., C) -> (..., C)."""
        return x if self.layer_norm is None else self.layer_norm(x)

    def _over_all(self, layer: TransformerEncoderLayerBase, x_TC: Tensor, packing: Packing) -> Tensor:
        attention, p = layer.self_attn, attention_dropout(layer)

        def attend(x_TC: Tensor) -> Tensor:
            return attend_causal(project(attention, x_TC), packing.lengths, attention.num_heads, p)

        return causal_layer(layer, x_TC, attend)

    def _over_last(self, layer: TransformerEncoderLayerBase, x_TC: Tensor, packing: Packing) -> Tensor:
        """The layer at the last token of each sentence that has one: (T, C) -> (S, C)."""
        ends_S = torch.tensor(packing.lengths, device=x_TC.device).cumsum(0) - 1
        seen_TC = layer.self_attn_layer_norm(x_TC) if layer.normalize_before else x_TC

        def attend(last_SC: Tensor) -> Tensor:
            return attend_from_first(
                layer.self_attn, seen_TC, last_SC, packing.lengths, attention_dropout(layer)
            )

        return causal_layer(layer, x_TC.index_select(0, ends_S), attend)


class SinusoidalPositions(nn.Module):
    """The fixed positions of Vaswani et al. 2017, section 3.5: sines at even, cosines at odd dimensions.

    `weight` (P + padding_idx + 1, C), laid out as fairseq's learned positions: the first token of a sentence
    has row padding_idx + 1. Computed, so it is neither trained nor saved.
    """

    weight: Tensor

    def __init__(self, positions: int, width: int, padding_idx: int) -> None:
        super().__init__()
        angles = torch.arange(positions).unsqueeze(1) * torch.exp(
            torch.arange(0, width, 2) * (-math.log(10000.0) / width)
        )
        table_PC = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :width]
        self.register_buffer("weight", F.pad(table_PC, (0, 0, padding_idx + 1, 0)), persistent=False)


def causal_layer(layer: TransformerEncoderLayerBase, x: Tensor, attend: Callable[[Tensor], Tensor]) -> Tensor:
    """One layer, post-norm or pre-norm: (..., C) -> (..., C).

    `attend` takes the layer's input, normalised where the layer is pre-norm, to what attention gathers for
    each token, before the output projection.
    """
    p, training = layer.dropout_module.p, layer.training
    residual = x
    if layer.normalize_before:
        x = layer.self_attn_layer_norm(x)
    x = residual + dropout(layer.self_attn.out_proj(attend(x)), p, training)
    if not layer.normalize_before:
        x = layer.self_attn_layer_norm(x)

    residual = x
    if layer.normalize_before:
        x = layer.final_layer_norm(x)
    x = dropout(layer.activation_fn(layer.fc1(x)), layer.activation_dropout_module.p, training)
    x = residual + dropout(layer.fc2(x), p, training)
    return x if layer.normalize_before else layer.final_layer_norm(x)


def project(attention: MultiheadAttention, x: Tensor) -> Tensor:
    """Queries, keys and values side by side, in one product: (..., C) -> (..., E)."""
    projections = (attention.q_proj, attention.k_proj, attention.v_proj)
    weight_EC = torch.cat([projection.weight for projection in projections])
    return F.linear(x, weight_EC, torch.cat([projection.bias for projection in projections]))


def attention_dropout(layer: TransformerEncoderLayerBase) -> float:
    """Probability with which attention weights are dropped now."""
    return layer.self_attn.dropout_module.p if layer.training else 0.0


def attend_causal(qkv_TE: Tensor, lengths: Sequence[int], heads: int, p: float) -> Tensor:
    """Every token attends to itself and the earlier ones of its own sentence: (T, E) -> (T, C).

    Tokens beyond the sum of `lengths` are fillers and get zeros; `p` is the dropout probability of the
    attention weights. Sentences of one length, such as blocks of text, go through one call.
    """
    tokens = sum(lengths)
    sentences = [len(lengths)] if len(set(lengths)) == 1 else [1] * len(lengths)
    sizes = [tokens] if len(sentences) == 1 else list(lengths)
    parts = []
    for qkv_nE, count in zip(qkv_TE[:tokens].split(sizes), sentences, strict=True):
        q, k, v = qkv_nE.view(count, -1, 3, heads, qkv_nE.size(1) // (3 * heads)).permute(2, 0, 3, 1, 4)
        out_bHlD = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)
        parts.append(out_bHlD.transpose(1, 2).flatten(2).flatten(0, 1))
    out_TC = torch.cat(parts) if parts else qkv_TE.new_empty(0, qkv_TE.size(1) // 3)
    return F.pad(out_TC, (0, 0, 0, len(qkv_TE) - tokens))
