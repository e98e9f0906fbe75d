"""Floating-point operations of the model's mathematics, and parameters, by formula.

Symbols: L layers, C embedding, F feed-forward, V types, K classes, n tokens of a sentence.
A product of matrices takes 2 FLOPs for each weight and token, its backward pass twice as many: 6 in all
(Chowdhery et al. 2022, PaLM, appendix B). Attention's two products take 4 C n^2 forward, 12 C n^2
in all, in each layer. What is small is left out: norms, activations, softmax, embeddings, optimizer.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .settings import Sizes

TRAIN = "6 * tokens * L * (4 C^2 + 2 C F) + 12 L C * sum of n^2"
CLASSIFIER = f"{TRAIN} + 6 * sentences * (C^2 + K C)"
MASKED_LM = f"{TRAIN} + 6 * masked * (C^2 + V C)"


def encoder(sizes: Sizes, lengths: NDArray[np.integer]) -> float:
    """FLOPs of forward and backward pass of the encoder on sentences of so many tokens each."""
    lengths = lengths.astype(np.float64)
    weights = sizes.layers * (4 * sizes.embed**2 + 2 * sizes.embed * sizes.ffn)
    return float(6 * weights * lengths.sum() + 12 * sizes.layers * sizes.embed * (lengths**2).sum())


def classifier(sizes: Sizes, lengths: NDArray[np.integer], classes: int) -> float:
    """FLOPs of an update on these sentences (real tokens only), see `CLASSIFIER`."""
    return encoder(sizes, lengths) + 6 * len(lengths) * (sizes.embed**2 + classes * sizes.embed)


def masked_lm(sizes: Sizes, lengths: NDArray[np.integer], vocabulary: int, masked: float) -> float:
    """FLOPs of an update whose LM head computes the masked share of the tokens, see `MASKED_LM`."""
    head = sizes.embed**2 + vocabulary * sizes.embed
    return encoder(sizes, lengths) + 6 * masked * float(lengths.sum()) * head


def parameters(sizes: Sizes, vocabulary: int, positions: int, classes: int) -> int:
    """Parameters of fairseq's RoBERTa with both heads, one matrix tied."""
    c, f = sizes.embed, sizes.ffn
    embeddings = (vocabulary + positions + 2) * c + 2 * c
    layer = 4 * (c * c + c) + (2 * c * f + f + c) + 4 * c
    lm_head = c * c + c + 2 * c + vocabulary
    return embeddings + sizes.layers * layer + lm_head + (c * c + c) + classes * c + classes
