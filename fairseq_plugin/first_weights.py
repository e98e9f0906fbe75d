"""First weights of a language model: what is slow to learn from random ones, written down.

A post-norm encoder with random weights spends its first millions of tokens on finding out how frequent
each piece is, and then that the company of a masked piece says something about it. Given embeddings whose
products are the association of pieces (`warm_start.py`), the first layers of such a model can be written
down: a masked piece then gets the score that a naive Bayes model of its context gives it.

Four steps, each of which training is free to undo:

- the output bias is the logarithm of how often each piece occurs;
- the output transformation passes on what it gets (its GELU is nearly linear near 0);
- of every residual branch (attention, feed-forward) only a part is added, so that the network starts as
  little more than its own input: see Zhang et al. 2019 (Fixup) and Wang et al. 2022 (DeepNet, section 3);
- the first layer copies the context: all but two of its heads take the mean of all pieces, the two look
  one piece to the left and one to the right, by sinusoidal positions (Vaswani et al. 2017, section 3.5)
  that have a part of the dimensions to themselves. Trockman & Kolter 2023 ("Mimetic initialization of
  self-attention layers") start value and output projections near the identity for the same reason.

`causal_lm_small` has fixed positions, added to all dimensions, and a linear output layer of its own. All its
heads take the mean (the left neighbour of what is predicted is the piece itself), and the output layer
starts as a part of the embeddings: as the whole, a piece would predict little but itself.

C dimensions, H heads of D = C / H dimensions, V types.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

LINEAR = 0.1
"""What the output transformation scales its input by: GELU(0.1 x) is x / 20 within 8 % for |x| < 1."""
OUTPUT = 0.1
"""Part of the embeddings that a linear output layer starts as."""
BRANCH = 0.3
"""Part of a residual branch that is added."""
NOISE = 0.1
"""Part of the random weights that the first layer's attention keeps."""
MEAN_GAIN = 1.5
"""The mean of a context is much smaller than the vector of one piece: the mean heads' output gain."""
SHARPNESS = 1.6
"""Of the heads that look at a neighbour: the factor of queries and of keys."""
FASTEST, RANGE = 1.5, 300.0
"""Radians a position of the fastest sinusoid, and how many times slower the slowest one is."""
RARE = 0.1
"""Occurrences of a piece that never occurs."""


def content_dimensions(encoder: Any) -> int:
    """Dimensions of the embeddings that are the pieces' own: all but the last D, which tell positions.

    Fixed positions leave none to themselves.
    """
    attention = encoder.layers[0].self_attn
    return attention.embed_dim - (attention.head_dim if learns_positions(encoder) else 0)


def learns_positions(encoder: Any) -> bool:
    """Whether the table of positions is a weight."""
    return isinstance(encoder.embed_positions.weight, torch.nn.Parameter)


def write_weights(model: Any, occurrences_V: np.ndarray) -> None:
    """Write the first weights into fairseq's RoBERTa or one that reads from left to right.

    Their embeddings are given and use the first `content_dimensions`. `occurrences_V` counts each type.
    """
    encoder, head = model.encoder.sentence_encoder, model.encoder.lm_head
    with torch.no_grad():
        head.bias.copy_(torch.from_numpy(log_shares(occurrences_V)))
        if hasattr(head, "dense"):
            head.dense.weight.copy_(LINEAR * torch.eye(head.dense.in_features))
            head.dense.bias.zero_()
        else:
            head.weight.copy_(OUTPUT * encoder.embed_tokens.weight)
        for layer in encoder.layers:
            layer.self_attn.out_proj.weight.mul_(BRANCH)
            layer.fc2.weight.mul_(BRANCH)
        if learns_positions(encoder):
            write_positions(encoder)
        copy_context(encoder.layers[0].self_attn, content_dimensions(encoder))


def log_shares(occurrences_V: np.ndarray) -> np.ndarray:
    """Logarithm of each type's share of all occurrences, float32 (V,)."""
    counts_V = np.maximum(occurrences_V, RARE)
    return np.log(counts_V / counts_V.sum()).astype(np.float32)


def write_positions(encoder: Any) -> None:
    """Sinusoids in the last D dimensions of the position table, as large as the embeddings there would be."""
    pieces, positions = encoder.embed_tokens.weight, encoder.embed_positions.weight
    content = content_dimensions(encoder)
    angles = torch.arange(len(positions))[:, None] * frequencies(pieces.shape[1] - content)
    size = math.sqrt(2) * float(pieces[:, :content].std())  # a sine has the standard deviation 1 / sqrt(2)
    positions.zero_()
    positions[:, content:] = size * torch.cat([angles.sin(), angles.cos()], dim=1)
    positions[encoder.embed_positions.padding_idx] = 0


def frequencies(dimensions: int) -> torch.Tensor:
    """Radians a position of each sine and cosine pair, (dimensions / 2,)."""
    return FASTEST * torch.exp(-torch.linspace(0, math.log(RANGE), dimensions // 2))


def copy_context(attention: Any, content: int) -> None:
    """Let each head of the first layer copy D dimensions of the context.

    All but the last two of H heads take the mean of all pieces, each in its own D dimensions; the two
    look at the left and the right neighbour, in the first D. They need the dimensions that tell positions:
    where all are `content`, they take the mean as well.
    """
    heads, size = attention.num_heads, attention.head_dim
    for projection in (attention.q_proj, attention.k_proj, attention.v_proj, attention.out_proj):
        projection.weight.mul_(NOISE)
        projection.bias.zero_()
    identity, place = torch.eye(size), slice(content, None)
    offsets = {heads - 2: -1, heads - 1: 1} if content < heads * size else {}
    for head in range(heads):
        own = slice(head * size, (head + 1) * size)
        copied = slice(0, size) if head in offsets else own
        attention.v_proj.weight[own, copied] += identity
        attention.out_proj.weight[copied, own] += (1.0 if head in offsets else MEAN_GAIN) * identity
        if head in offsets:
            attention.q_proj.weight[own, place] += SHARPNESS * shift(size, offsets[head])
            attention.k_proj.weight[own, place] += SHARPNESS * identity


def shift(dimensions: int, offset: int) -> torch.Tensor:
    """The matrix (D, D) that turns the sinusoids of position i into those of position i + offset."""
    angles = frequencies(dimensions) * offset
    cosines, sines = torch.diag(angles.cos()), torch.diag(angles.sin())
    return torch.cat([torch.cat([cosines, sines], dim=1), torch.cat([-sines, cosines], dim=1)])
