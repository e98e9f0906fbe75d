"""Small models without a trainer, with the same weights each time, and ids for them."""

import argparse
from types import SimpleNamespace

import torch
from fairseq.data import Dictionary

HEAD = "sentence_classification_head"
PAD = 1
LENGTHS = (20, 3, 11, 1, 14)
# Rounding of fp32 sums in another order; logits and gradients are of size 0.1 to 10.
TOLERANCE = {"rtol": 1e-4, "atol": 2e-5}
SIZES = {
    "encoder_layers": 3, "encoder_embed_dim": 24, "encoder_ffn_embed_dim": 40, "encoder_attention_heads": 4,
    "max_positions": 32, "precision": "fp32",
}  # fmt: skip


def dictionary(tokens=50):
    result = Dictionary()
    for i in range(tokens):
        result.add_symbol(f"token{i}")
    return result


def build(kind, classes=None, **changes):
    """A model in evaluation mode, with a classification head if there are classes."""
    torch.manual_seed(0)
    task = SimpleNamespace(source_dictionary=dictionary())
    model = kind.build_model(argparse.Namespace(**{**SIZES, **changes}), task)
    if classes is not None:
        model.register_classification_head(HEAD, num_classes=classes)
    return model.eval()


def sentences(lengths=LENGTHS):
    """Token ids (B, L), padded on the right."""
    torch.manual_seed(1)
    tokens = torch.full((len(lengths), max(lengths)), PAD)
    for row, length in zip(tokens, lengths, strict=True):
        row[:length] = torch.randint(4, 50, (length,))
    return tokens
