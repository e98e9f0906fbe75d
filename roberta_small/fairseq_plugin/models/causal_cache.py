"""Generation with a key-value cache: each step computes only the new tokens.

In a left-to-right model the features of a token do not depend on later tokens, so keys and values of earlier
tokens stay valid when a sentence grows.

Shapes: B sentences, N new tokens of each, S positions in the cache, C embedding size, H heads, D size of a
head, V vocabulary size.
"""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from fairseq.modules import MultiheadAttention
from torch import Tensor

from roberta_small.fairseq_plugin.models.causal import CausalEncoder, CausalRobertaSmall
from roberta_small.fairseq_plugin.models.packed import encode_layer, project
from roberta_small.fairseq_plugin.training import precision


class Cache:
    """Keys and values of each layer, (B, H, S, D) each, zero at positions without a token.

    Each token is stored at its position in the sentence. Padding after a shorter sentence is overwritten by
    its next tokens before any token attends to it.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._layers: dict[int, tuple[Tensor, Tensor]] = {}

    def add(
        self, layer: int, k_BHND: Tensor, v_BHND: Tensor, positions_BN: Tensor, used: int
    ) -> tuple[Tensor, Tensor]:
        """Store keys and values of new tokens; returns those of the layer's first `used` positions."""
        if layer not in self._layers:
            batch, heads, _, size = k_BHND.shape
            empty = k_BHND.new_zeros(batch, heads, self.capacity, size)
            self._layers[layer] = empty, torch.zeros_like(empty)
        index_BHND = positions_BN[:, None, :, None].expand_as(k_BHND)
        keys, values = (
            kept.scatter_(2, index_BHND, new)[:, :, :used]
            for kept, new in zip(self._layers[layer], (k_BHND, v_BHND), strict=True)
        )
        return keys, values


def next_scores(
    model: CausalRobertaSmall, tokens_BN: Tensor, positions_BN: Tensor, lengths_B: Tensor, cache: Cache
) -> Tensor:
    """Scores (B, V), fp32, of the token that follows the new tokens of each sentence; evaluation mode only.

    The new tokens, int64, are padded on the right; `lengths_B` are their numbers, at least 1, and
    `positions_BN` their positions in their sentences, from 0. They are added to the cache.
    """
    with precision.computing(model, tokens_BN.device):
        x_BNC = advance(model.encoder.sentence_encoder, tokens_BN, positions_BN, cache)
        x_BC = x_BNC[torch.arange(len(x_BNC), device=x_BNC.device), lengths_B - 1]
        return model.encoder.lm_head(x_BC).float()


def advance(encoder: CausalEncoder, tokens_BN: Tensor, positions_BN: Tensor, cache: Cache) -> Tensor:
    """Features of the new tokens, (B, N, C)."""
    x_BNC = encoder.embed_tokens(tokens_BN) * encoder.embed_scale
    rows_BN = positions_BN + encoder.padding_idx + 1
    x_BNC = x_BNC + F.embedding(rows_BN, encoder.embed_positions.weight)
    if encoder.layernorm_embedding is not None:
        x_BNC = encoder.layernorm_embedding(x_BNC)
    used = int(positions_BN.max()) + 1
    for number, layer in enumerate(encoder.layers):
        gather = partial(attend_cached, layer.self_attn, number, positions_BN, used, cache)
        x_BNC = encode_layer(layer, x_BNC, gather)
    return encoder.final_norm(x_BNC)


def attend_cached(
    attention: MultiheadAttention, layer: int, positions_BN: Tensor, used: int, cache: Cache, x_BNC: Tensor
) -> Tensor:
    """Attention of the new tokens to all tokens up to their own position: (B, N, C) -> (B, N, C)."""
    qkv_BNE = project(attention, x_BNC)
    q, k, v = qkv_BNE.unflatten(-1, (3, attention.num_heads, -1)).permute(2, 0, 3, 1, 4)
    keys_BHSD, values_BHSD = cache.add(layer, k, v, positions_BN, used)
    positions_S = torch.arange(used, device=x_BNC.device)
    visible_B1NS = (positions_S <= positions_BN[:, :, None])[:, None]
    out_BHND = F.scaled_dot_product_attention(q, keys_BHSD, values_BHSD, attn_mask=visible_B1NS)
    return out_BHND.transpose(1, 2).flatten(2)
