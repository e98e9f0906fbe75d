"""Floating-point operations of the model's mathematics, by formula.

Symbols: L layers, C embedding, F feed-forward, V types, K classes, n tokens of a sentence.
A product of matrices takes 2 FLOPs for each weight and token, its backward pass twice as many: 6 in all
(Chowdhery et al. 2022, PaLM, appendix B). Attention's two products take 4 C n^2 forward, 12 C n^2
in all, in each layer. What is small is left out: norms, activations, softmax, embeddings, optimizer.
"""

from __future__ import annotations

TRAIN = "6 * tokens * L * (4 C^2 + 2 C F) + 12 L C * sum of n^2"
CLASSIFIER = f"{TRAIN} + 6 * sentences * (C^2 + K C)"
MASKED_LM = f"{TRAIN} + 6 * masked * (C^2 + V C)"


def encoder(layers: int, embed: int, ffn: int, tokens: float, squares: float) -> float:
    """FLOPs of forward and backward pass on so many tokens; `squares` is the sum of n^2."""
    return 6.0 * layers * (4 * embed**2 + 2 * embed * ffn) * tokens + 12.0 * layers * embed * squares


def classifier_head(embed: int, classes: int, sentences: float) -> float:
    """FLOPs of the head on `<s>` of each sentence, forward and backward."""
    return 6.0 * sentences * (embed**2 + classes * embed)


def masked_lm_head(embed: int, vocabulary: int, masked: float) -> float:
    """FLOPs of the LM head on the masked tokens, forward and backward."""
    return 6.0 * masked * (embed**2 + vocabulary * embed)
