"""Dropout on a CPU, whose random numbers and masks are computed by vector instructions on all threads.

torch's generator for the CPU is serial: drawing a number for each element would take a tenth of an update.
Here it draws only a few, from which the others are computed as a hash.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

DROPOUT_LEVELS = 1 << 15
"""Dropout probabilities are rounded to multiples of 1 / DROPOUT_LEVELS."""
COLUMNS = 1024
"""Columns of the matrix of numbers in `random_bits`."""
INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Bytes -> integer type."""


def dropout(x: Tensor, p: float, training: bool = True) -> Tensor:
    """Set elements of `x`, of any shape, to zero with probability p; scale the others by 1 / (1 - p)."""
    if not training or p == 0.0:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, p)
    return _Dropout.apply(x, p)


def add_dropout(residual: Tensor, x: Tensor, p: float, training: bool) -> Tensor:
    """`residual + dropout(x)`, with fewer passes over memory on a CPU.

    `residual` has the dtype of `x` or one of higher precision, which is that of the result.
    """
    if not training or p == 0.0 or x.device.type != "cpu":
        return residual + dropout(x, p, training)
    return _Dropout.apply(x, p, residual)


def keep_mask(shape: torch.Size, p: float) -> tuple[Tensor, float]:
    """A dropout mask for `keep`, int16 of `shape`, all bits set or none, and the factor of what is kept.

    Raises `ValueError` if p is not a probability.
    """
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout: {p} is not a probability")
    kept = DROPOUT_LEVELS - round(p * DROPOUT_LEVELS)
    if kept == 0:
        return torch.zeros(shape, dtype=torch.int16), 0.0
    bits = random_bits(shape.numel()).bitwise_and_(DROPOUT_LEVELS - 1)
    # (bits - kept) is negative with probability 1 - p; the shift copies the sign to all bits.
    return bits.sub_(kept).bitwise_right_shift_(15).view(shape), DROPOUT_LEVELS / kept


def keep(x: Tensor, mask: Tensor, out: Tensor | None = None) -> Tensor:
    """`x` with zeros where nothing is kept, also written to `out` (which can be `x`).

    This takes half the time of a product with zeros and ones, which torch computes in fp32.
    """
    integer = INTEGERS[x.element_size()]
    target = None if out is None else out.view(integer)
    return torch.bitwise_and(x.view(integer), mask.to(integer), out=target).view(x.dtype)


def random_bits(count: int) -> Tensor:
    """int16 (count,): the lower 15 bits of each element are random, the highest is not.

    Each pair of elements is the hash of the exclusive or of two random int32, that of its row and that of its
    column, drawn from torch's generator. The hash is `lowbias32` (Chris Wellons, "Prospecting for Hash
    Functions", 2018) without its first shift, which only counters need. torch's shifts repeat the sign, which
    leaves 31 random bits.
    """
    rows = -(-count // (2 * COLUMNS))
    drawn = torch.empty(rows + COLUMNS, dtype=torch.int32).random_(-(1 << 31), 1 << 31)
    x = (drawn[:rows, None] ^ drawn[rows:]).flatten().mul_(0x7FEB352D)
    shifted = x >> 15
    x.bitwise_xor_(shifted).mul_(0x846CA68B - (1 << 32))
    torch.bitwise_right_shift(x, 16, out=shifted)
    return x.bitwise_xor_(shifted).view(torch.int16)[:count]


class _Dropout(torch.autograd.Function):
    """Dropout of `x`, added to `residual` if there is one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float, residual: Tensor | None = None) -> Tensor:
        mask, ctx.scale = keep_mask(x.shape, p)
        ctx.save_for_backward(mask)
        ctx.dtype, ctx.added = x.dtype, residual is not None
        kept = keep(x, mask)
        if residual is None:
            return kept.mul_(ctx.scale)
        kept = kept.to(residual.dtype)
        return torch.add(residual, kept, alpha=ctx.scale, out=kept)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, Tensor | None]:
        (mask,) = ctx.saved_tensors
        grad_x = keep(gradient.to(ctx.dtype), mask).mul_(ctx.scale)
        return grad_x, None, gradient if ctx.added else None
