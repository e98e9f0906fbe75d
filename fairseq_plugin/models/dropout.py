"""Dropout on a CPU with a quarter of the random numbers."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

DROPOUT_LEVELS = 1 << 15
"""Dropout probabilities are rounded to multiples of 1 / DROPOUT_LEVELS."""
ONE_BF16 = 0x3F80
"""The bits of 1.0 in bfloat16."""


def dropout(x: Tensor, p: float, training: bool = True) -> Tensor:
    """Set elements of `x`, of any shape, to zero with probability p; scale the others by 1 / (1 - p)."""
    if not training or p == 0.0:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, p)
    return _BulkDropout.apply(x, p)


def keep_mask(shape: torch.Size, p: float) -> tuple[Tensor, float]:
    """A dropout mask, bfloat16 zeros and ones of `shape`, and the factor of the elements that are kept.

    Each random int64 gives the decisions of four elements.
    """
    dropped = round(p * DROPOUT_LEVELS)
    if dropped >= DROPOUT_LEVELS:
        return torch.zeros(shape, dtype=torch.bfloat16), 0.0
    count = shape.numel()
    draws = torch.empty((count + 3) // 4, dtype=torch.int64).random_()
    bits = draws.view(torch.int16)[:count].bitwise_and_(DROPOUT_LEVELS - 1)
    # (dropped - 1 - bits) is negative where bits >= dropped; the shift turns that into 0xFFFF, else into 0.
    bits.neg_().add_(dropped - 1).bitwise_right_shift_(15).bitwise_and_(ONE_BF16)
    return bits.view(torch.bfloat16).view(shape), DROPOUT_LEVELS / (DROPOUT_LEVELS - dropped)


class _BulkDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        mask, ctx.scale = keep_mask(x.shape, p)
        ctx.save_for_backward(mask)
        return (x * mask.to(x.dtype)).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        return (gradient * mask.to(gradient.dtype)).mul_(ctx.scale), None
