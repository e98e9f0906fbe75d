"""The criterion `fast_lm`: next-token cross-entropy, without a tensor of all its scores.

The loss, perplexity and logs of fairseq's `cross_entropy` on the task `language_modeling`, computed a few
positions at a time like `fast_masked_lm` (see `masked_lm.py`): of a left-to-right model every position has
a target.
"""

from __future__ import annotations

from typing import Any

from fairseq.criterions import register_criterion
from fairseq.models import BaseFairseqModel
from torch import Tensor

from common.errors import UserError

from .masked_lm import FastMaskedLmCriterion


@register_criterion("fast_lm")
class FastLmCriterion(FastMaskedLmCriterion):
    """Cross-entropy in nats, summed; logged in bits a token, with the perplexity 2^bits.

    The model FLOPs that it logs count attention as if every token saw its whole sentence (the convention of
    Chowdhery et al. 2022, appendix B).
    """

    def forward(
        self, model: BaseFairseqModel, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """The loss of a batch, the number of targets, and what is logged."""
        if "future" not in getattr(model, "supported_targets", ()):
            raise UserError("--criterion fast_lm needs --arch causal_lm_small or causal_roberta_small")
        return super().forward(model, sample, reduce)

    def _flops(self, model: BaseFairseqModel, tokens_BL: Tensor, scored: int) -> float:
        """As of masked models, but for a linear head, which lacks their product of C by C."""
        total = super()._flops(model, tokens_BL, scored)
        if not total or hasattr(model.encoder.lm_head, "dense"):
            return total
        return total - 6.0 * scored * model.args.encoder_embed_dim**2
