"""The sizes of a RoBERTa and Transformers' configuration for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import RobertaConfig, RobertaForMaskedLM, RobertaForSequenceClassification

from common.errors import UserError

from .weights import TOKENS, Source, to_transformers

BOS, PAD, EOS, UNK = range(4)  # fairseq's special ids, which are RoBERTa's
LAYER_NORM_EPS = 1e-5  # fairseq has no flag for it
ACTIVATIONS = {"gelu": "gelu", "relu": "relu", "tanh": "tanh", "gelu_accurate": "gelu_new"}
"""fairseq's name -> Transformers'; `gelu` is the exact one in both."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What determines the shapes of a RoBERTa and how much it drops; the defaults are `roberta_small`."""

    vocabulary: int
    """Types of the dictionary, `<mask>` included."""
    layers: int = 4
    embed: int = 512
    ffn: int = 512
    heads: int = 8
    positions: int = 256
    """The longest input in tokens."""
    dropout: float = 0.1
    attention_dropout: float = 0.1
    pooler_dropout: float = 0.0
    """In the classification head."""
    activation: str = "gelu"
    """Transformers' name."""


def sizes_of(source: Source) -> Sizes:
    """The sizes of a fairseq checkpoint, counted on its weights.

    Raises `UserError` for an activation that Transformers does not have.
    """
    encoder = TOKENS.removesuffix("embed_tokens.weight")
    arguments, weights = source.arguments, source.weights
    if arguments.activation_fn not in ACTIVATIONS:
        raise UserError(
            f"{source.path}: --activation-fn {arguments.activation_fn}, but Transformers' RoBERTa has "
            f"{', '.join(ACTIVATIONS)}"
        )
    return Sizes(
        vocabulary=source.vocabulary,
        layers=len({key.split(".")[3] for key in weights if key.startswith(f"{encoder}layers.")}),
        embed=weights[TOKENS].shape[1],
        ffn=len(weights[f"{encoder}layers.0.fc1.weight"]),
        heads=arguments.encoder_attention_heads,
        positions=len(weights[f"{encoder}embed_positions.weight"]) - (PAD + 1),
        dropout=arguments.dropout,
        attention_dropout=arguments.attention_dropout,
        pooler_dropout=arguments.pooler_dropout,
        activation=ACTIVATIONS[arguments.activation_fn],
    )


def roberta_config(sizes: Sizes, classes: Sequence[str] | None = None) -> RobertaConfig:
    """Transformers' configuration; `classes` names the logits of a classifier, in their order.

    fairseq counts positions from the padding index + 1, as Transformers does: `max_position_embeddings` is
    two more than the longest input. The one token type, which fairseq does not have, is a row of zeros.
    """
    labels = {} if classes is None else {"id2label": dict(enumerate(classes))}
    if classes is not None:
        labels["label2id"] = {name: k for k, name in enumerate(classes)}
    return RobertaConfig(
        vocab_size=sizes.vocabulary,
        hidden_size=sizes.embed,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        intermediate_size=sizes.ffn,
        hidden_act=sizes.activation,
        hidden_dropout_prob=sizes.dropout,
        attention_probs_dropout_prob=sizes.attention_dropout,
        classifier_dropout=sizes.pooler_dropout,
        max_position_embeddings=sizes.positions + PAD + 1,
        type_vocab_size=1,
        layer_norm_eps=LAYER_NORM_EPS,
        bos_token_id=BOS,
        pad_token_id=PAD,
        eos_token_id=EOS,
        **labels,
    )


def random_classifier(sizes: Sizes, classes: Sequence[str]) -> RobertaForSequenceClassification:
    """Random weights as Transformers draws them, from torch's generator; `classes` names the K logits."""
    return RobertaForSequenceClassification(roberta_config(sizes, classes))


def converted(
    source: Source, classes: Sequence[str] | None = None
) -> RobertaForSequenceClassification | RobertaForMaskedLM:
    """All of a checkpoint, in evaluation mode: same weights, same logits (B, K), or LM scores (B, L, V).

    `classes` names the logits of a classifier.
    """
    with torch.random.fork_rng(devices=[]):
        if source.head is not None:
            model = RobertaForSequenceClassification(roberta_config(sizes_of(source), classes))
        else:
            model = RobertaForMaskedLM(roberta_config(sizes_of(source)))
    is_lm = source.head is None
    model.load_state_dict(to_transformers(source.weights, head=source.head, lm_head=is_lm))
    return model.eval()
