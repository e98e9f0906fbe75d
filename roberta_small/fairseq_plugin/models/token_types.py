"""The token type of the second text of a pair (Devlin et al. 2019, section 3), for any encoder.

The type of all other tokens is part of the position embeddings, so that RoBERTa's encoder without types
computes the same for single texts.

Shapes: B sentences, L tokens, C embedding size.
"""

from __future__ import annotations

from typing import Any

from fairseq.models.transformer import TransformerEncoder
from torch import Tensor, nn


def add_token_types(encoder: TransformerEncoder, width: int) -> None:
    """Give an encoder the parameter `embed_second.weight` (1, C), which it adds to the second text."""
    encoder.embed_second = nn.Embedding(1, width)
    if not hasattr(encoder, "embed"):  # which adds them itself
        encoder.register_forward_pre_hook(_types_for_stock, with_kwargs=True)


def in_second(tokens_BL: Tensor, separator: int) -> Tensor:
    """Whether a token comes after the first separator: int64 (B, L) -> bool (B, L)."""
    ends_BL = tokens_BL == separator
    return (ends_BL.cumsum(dim=1) - ends_BL.long()) > 0


def _types_for_stock(
    encoder: TransformerEncoder, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Add the types to the token embeddings that fairseq's own encoder gets."""
    tokens_BL = args[0] if args else kwargs["src_tokens"]
    embedded_BLC = kwargs.get("token_embeddings")
    if embedded_BLC is None:
        embedded_BLC = encoder.embed_tokens(tokens_BL)
    second_BL = in_second(tokens_BL, encoder.dictionary.eos())
    types_BLC = second_BL.unsqueeze(-1).to(embedded_BLC.dtype) * encoder.embed_second.weight
    return args, kwargs | {"token_embeddings": embedded_BLC + types_BLC / encoder.embed_scale}
