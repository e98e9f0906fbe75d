"""Transformers' RoBERTa with random weights, or with those of a fairseq checkpoint.

B sentences, L tokens, K classes. All models take (B, L) ids padded with 1 and an attention mask.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import RobertaForMaskedLM, RobertaForSequenceClassification

from .config import Sizes, roberta_config, sizes_of
from .source import Source
from .weights import to_transformers


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
