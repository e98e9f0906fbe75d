"""Dropout with random bits in bulk.

torch draws one random number an element, on one thread, to decide what a CPU's dropout keeps: an
eighth of a training step. One draw of 64 bits holds four decisions of 15 bits each, which makes the
probability a multiple of 1/32,768 (0.1 becomes 0.10001; the scale makes up for it, so expected values
are exact). The numbers come from torch's generator: the same seed gives the same mask. On other
devices torch's own dropout is used.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

STEPS = 1 << 15
ONE_BF16 = 0x3F80
"""The bits of 1.0 in bfloat16."""


def dropout(x: Tensor, p: float, training: bool = True) -> Tensor:
    """Zero elements of `x`, of any shape, with probability p; scale the rest by 1 / (1 - p)."""
    if not training or p == 0.0:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, p)
    return _BulkDropout.apply(x, p)


def keep_mask(shape: torch.Size, p: float) -> tuple[Tensor, float]:
    """What to keep, as bfloat16 zeros and ones of `shape`, and the scale of what is kept."""
    dropped = round(p * STEPS)
    if dropped >= STEPS:
        return torch.zeros(shape, dtype=torch.bfloat16), 0.0
    count = shape.numel()
    draws = torch.empty((count + 3) // 4, dtype=torch.int64).random_()
    bits = draws.view(torch.int16)[:count].bitwise_and_(STEPS - 1)
    # (dropped - 1 - bits) is negative where bits >= dropped, and the shift makes that 0xFFFF, else 0.
    bits.neg_().add_(dropped - 1).bitwise_right_shift_(15).bitwise_and_(ONE_BF16)
    return bits.view(torch.bfloat16).view(shape), STEPS / (STEPS - dropped)


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
