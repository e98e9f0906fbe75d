"""One token more at the price of one: keys and values of earlier tokens are kept from step to step.

What a token of a left-to-right model becomes does not depend on later ones, so that nothing that was
computed for a sentence changes when it grows.

Shapes: B sentences, N new tokens of each, S places in the cache, C embedding size, H heads, D size of a
head, V types.
"""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from fairseq.modules import MultiheadAttention
from torch import Tensor

from ..training import precision
from .causal import CausalRobertaSmall
from .causal_encoder import CausalEncoder
from .packed import encode_layer, project


class Cache:
    """Keys and values of each layer, (B, H, S, D) each; places that no token has taken yet hold zeros.

    Sentences of different lengths stand side by side, each token at the place of its position. Where a
    shorter one is filled up with pads, the tokens that come overwrite them before anything sees them.
    """

    def __init__(self, places: int) -> None:
        self.places = places
        self._layers: dict[int, tuple[Tensor, Tensor]] = {}

    def add(
        self, layer: int, k_BHND: Tensor, v_BHND: Tensor, positions_BN: Tensor, used: int
    ) -> tuple[Tensor, Tensor]:
        """Put new tokens to their places; keys and values of the layer in the `used` places taken so far."""
        if layer not in self._layers:
            batch, heads, _, size = k_BHND.shape
            self._layers[layer] = tuple(k_BHND.new_zeros(batch, heads, self.places, size) for _ in range(2))
        index_BHND = positions_BN[:, None, :, None].expand_as(k_BHND)
        keys, values = (
            kept.scatter_(2, index_BHND, new)[:, :, :used]
            for kept, new in zip(self._layers[layer], (k_BHND, v_BHND), strict=True)
        )
        return keys, values


def next_scores(
    model: CausalRobertaSmall, tokens_BN: Tensor, positions_BN: Tensor, lengths_B: Tensor, cache: Cache
) -> Tensor:
    """Scores of what follows the last new token of each sentence, fp32 (B, V); evaluation mode only.

    Args:
        model: a language model.
        tokens_BN: new tokens, int64, padded on the right.
        positions_BN: their positions in their sentences, int64, counted from 0.
        lengths_B: how many of them are real, int64, at least 1.
        cache: of the sentences' earlier tokens; the new ones are added.
    """
    with precision.autocast(model.args.precision, tokens_BN.device):
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
    return encoder.normalised(x_BNC)


def attend_cached(
    attention: MultiheadAttention,
    layer: int,
    positions_BN: Tensor,
    used: int,
    cache: Cache,
    x_BNC: Tensor,
) -> Tensor:
    """The new tokens attend to all tokens up to their own position: (B, N, C) -> (B, N, C)."""
    qkv_BNE = project(attention, x_BNC)
    q, k, v = qkv_BNE.unflatten(-1, (3, attention.num_heads, -1)).permute(2, 0, 3, 1, 4)
    keys_BHSD, values_BHSD = cache.add(layer, k, v, positions_BN, used)
    places_S = torch.arange(used, device=x_BNC.device)
    seen_B1NS = (places_S <= positions_BN[:, :, None])[:, None]
    out_BHND = F.scaled_dot_product_attention(q, keys_BHSD, values_BHSD, attn_mask=seen_B1NS)
    return out_BHND.transpose(1, 2).flatten(2)
