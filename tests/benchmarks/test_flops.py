import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import RobertaConfig, RobertaForMaskedLM, RobertaForSequenceClassification

from benchmarks import flops
from benchmarks.settings import Sizes
from roberta_small.fairseq_plugin.models.parameters import build

SIZES = Sizes(layers=3, embed=32, ffn=48, heads=4)
VOCABULARY, CLASSES = 100, 5


def counted(kind, ids):
    """What torch counts in a forward and a backward pass on one sentence."""
    config = RobertaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=3,
        num_attention_heads=4, num_labels=CLASSES, max_position_embeddings=66, attn_implementation="eager",
    )  # fmt: skip
    model = kind(config)
    with FlopCounterMode(display=False) as counter:
        model(ids).logits.sum().backward()
    return counter.get_total_flops()


def test_the_classifier_does_what_torch_counts():
    length = 24
    expected = counted(RobertaForSequenceClassification, torch.randint(4, VOCABULARY, (1, length)))
    found = flops.classifier(SIZES, np.array([length]), CLASSES)
    assert found == expected


def test_the_language_model_does_what_torch_counts():
    length = 24
    expected = counted(RobertaForMaskedLM, torch.randint(4, VOCABULARY, (1, length)))
    assert flops.masked_lm(SIZES, np.array([length]), VOCABULARY, masked=1.0) == expected


def test_sentences_add_up_and_only_masked_tokens_reach_the_head():
    one, two = np.array([10]), np.array([20])
    both = np.concatenate([one, two])
    assert flops.encoder(SIZES, both) == flops.encoder(SIZES, one) + flops.encoder(SIZES, two)
    head = flops.masked_lm(SIZES, both, VOCABULARY, 1.0) - flops.encoder(SIZES, both)
    masked = flops.masked_lm(SIZES, both, VOCABULARY, 0.15) - flops.encoder(SIZES, both)
    assert masked == pytest.approx(0.15 * head)


def test_parameters_are_those_of_the_model():
    sizes = {f"encoder_{name}": value for name, value in (("layers", 3), ("embed_dim", 32))}
    sizes |= {"encoder_ffn_embed_dim": 48, "encoder_attention_heads": 4}
    args = SimpleNamespace(arch="roberta_small", vocabulary=VOCABULARY, num_classes=CLASSES, max_positions=64)
    vars(args).update(sizes)
    model = build(args)
    model.register_classification_head("head", num_classes=CLASSES)
    total = sum(parameter.numel() for parameter in model.parameters())
    assert flops.parameters(SIZES, VOCABULARY, 64, CLASSES) == total
    assert flops.parameters(dataclasses.replace(SIZES, layers=2), VOCABULARY, 64, CLASSES) < total
