"""FLOPs and parameters of the benchmarked model, by `fairseq_plugin/models/parameters.py`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.settings import Sizes
from roberta_small.fairseq_plugin.models import parameters as flops
from roberta_small.fairseq_plugin.models.parameters import CLASSIFIER, MASKED_LM

__all__ = ["CLASSIFIER", "MASKED_LM", "classifier", "encoder", "lm_head", "masked_lm", "parameters"]


def encoder(sizes: Sizes, lengths: NDArray[np.integer]) -> float:
    """FLOPs of forward and backward pass of the encoder on sentences of these lengths in tokens."""
    lengths = lengths.astype(np.float64)
    squares = float((lengths**2).sum())
    return flops.encoder(sizes.layers, sizes.embed, sizes.ffn, float(lengths.sum()), squares)


def classifier(sizes: Sizes, lengths: NDArray[np.integer], classes: int) -> float:
    """FLOPs of an update on these sentences (real tokens only), see `CLASSIFIER`."""
    return encoder(sizes, lengths) + flops.classifier_head(sizes.embed, classes, len(lengths))


def masked_lm(sizes: Sizes, lengths: NDArray[np.integer], vocabulary: int, masked: float) -> float:
    """FLOPs of an update with an LM head on the fraction `masked` of the tokens, see `MASKED_LM`."""
    return encoder(sizes, lengths) + lm_head(sizes, vocabulary, masked * float(lengths.sum()))


def lm_head(sizes: Sizes, vocabulary: int, positions: float) -> float:
    """FLOPs of the LM head at a number of positions, forward and backward."""
    return flops.masked_lm_head(sizes.embed, vocabulary, positions)


def parameters(sizes: Sizes, vocabulary: int, positions: int, classes: int) -> int:
    """Parameters of fairseq's RoBERTa with both heads, one matrix tied."""
    c, f = sizes.embed, sizes.ffn
    embeddings = (vocabulary + positions + 2) * c + 2 * c
    layer = 4 * (c * c + c) + (2 * c * f + f + c) + 4 * c
    lm_head = c * c + c + 2 * c + vocabulary
    return embeddings + sizes.layers * layer + lm_head + (c * c + c) + classes * c + classes
