"""Transformers' RoBERTa with random weights, with the encoder of a fairseq checkpoint, or with all of it.

B sentences, L tokens, K classes. All models take (B, L) ids padded with 1 and an attention mask.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import RobertaForMaskedLM, RobertaForSequenceClassification

from common.errors import UserError

from .config import Sizes, roberta_config, sizes_of
from .source import Source, read_source
from .weights import to_transformers


def random_classifier(sizes: Sizes, classes: Sequence[str]) -> RobertaForSequenceClassification:
    """Random weights as Transformers draws them, from torch's generator; `classes` names the K logits."""
    return RobertaForSequenceClassification(roberta_config(sizes, classes))


def pretrained_classifier(
    checkpoint: str | os.PathLike[str], classes: Sequence[str], *, vocabulary: int | None = None
) -> RobertaForSequenceClassification:
    """The encoder of a fairseq checkpoint (masked LM or classifier) under a new head with random weights.

    `vocabulary` is the number of types of the data, `<mask>` included, where there are data. Raises
    `UserError` for what `read_source` refuses and for a checkpoint of another vocabulary.
    """
    source = read_source(checkpoint)
    if vocabulary is not None and vocabulary != source.vocabulary:
        raise UserError(
            f"{checkpoint}: {source.vocabulary:,} types, but the dictionary of the data has {vocabulary:,}, "
            "<mask> included; binarize the data with the dictionary that it was trained with"
        )
    model = random_classifier(sizes_of(source), classes)
    model.roberta.load_state_dict(_without_prefix(to_transformers(source.weights, head=None, lm_head=False)))
    return model


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


def _without_prefix(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {key.removeprefix("roberta."): tensor for key, tensor in weights.items()}
