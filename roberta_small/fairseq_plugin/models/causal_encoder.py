"""RoBERTa's packed encoder with causal attention: a token attends to itself and to earlier tokens.

Parameters and their names are those of the packed encoder (`packed.py`). Only attention and positions differ.

Shapes: B sentences, L length of the longest, T tokens of the packed sequence, C embedding size, E = 3 * C,
P positions.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.data import Dictionary
from torch import Tensor, nn

from roberta_small.fairseq_plugin.models.attention import attend
from roberta_small.fairseq_plugin.models.packed import PackedTransformerEncoder, Packing


class CausalEncoder(PackedTransformerEncoder):
    """`PackedTransformerEncoder` with causal attention: features do not depend on later tokens."""

    def __init__(self, args: Any, dictionary: Dictionary, embed_tokens: nn.Embedding) -> None:
        super().__init__(args, dictionary, embed_tokens)
        self.eos_idx = dictionary.eos()
        if not args.encoder_learned_pos:
            width = embed_tokens.embedding_dim
            self.embed_positions = SinusoidalPositions(args.max_positions, width, self.padding_idx)

    def pooled(
        self,
        src_tokens: Tensor,
        pooling: str,
        token_embeddings: Tensor | None = None,
        packing: Packing | None = None,
    ) -> Tensor:
        """One vector per sentence, as in the packed encoder: (B, L) -> (B, C).

        The additional `pooling` "last-piece" is the last token, ignoring the `</s>` at the end of a text: in
        pre-training another text follows `</s>`, so its vector need not represent the text. A GPU waits for
        the lengths without it.
        """
        if pooling == "last-piece":
            src_tokens, pooling, packing = self.without_eos(src_tokens), "last", None
        return super().pooled(src_tokens, pooling, token_embeddings, packing)

    def without_eos(self, src_tokens: Tensor) -> Tensor:
        """Replace `</s>` at the end of each row by padding, unless it is the only token: (B, L) -> (B, L)."""
        lengths_B1 = src_tokens.ne(self.padding_idx).sum(dim=1, keepdim=True)
        last_B1 = (lengths_B1 - 1).clamp(min=0)
        token_B1 = src_tokens.gather(1, last_B1)
        is_eos_B1 = token_B1.eq(self.eos_idx) & lengths_B1.gt(1)
        return src_tokens.scatter(1, last_B1, token_B1.masked_fill(is_eos_B1, self.padding_idx))

    def attend(self, qkv_TE: Tensor, packing: Packing, heads: int, p: float) -> Tensor:
        """Causal attention within each sentence."""
        return attend(qkv_TE, packing.lengths, heads, p, causal=True, offsets=packing.offsets)


class SinusoidalPositions(nn.Module):
    """The fixed positions of Vaswani et al. 2017, section 3.5: sines at even, cosines at odd dimensions.

    `weight` (P + padding_idx + 1, C) has the layout of fairseq's learned positions: the first token of a
    sentence has row padding_idx + 1. It is neither trained nor saved.
    """

    weight: Tensor

    def __init__(self, positions: int, width: int, padding_idx: int) -> None:
        super().__init__()
        angles = torch.arange(positions).unsqueeze(1) * torch.exp(
            torch.arange(0, width, 2) * (-math.log(10000.0) / width)
        )
        table_PC = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :width]
        self.register_buffer("weight", F.pad(table_PC, (0, 0, padding_idx + 1, 0)), persistent=False)
