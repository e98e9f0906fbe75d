"""Which piece comes next, given the scores of all: the best, or one drawn at random.

Shapes: B sentences, V types.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from common.errors import UserError


@dataclass(frozen=True)
class Sampling:
    """How a piece is drawn; the restrictions apply one after the other, `top_k` first.

    Attributes:
        temperature: scores are divided by it; below 1 likely pieces become likelier still.
        top_k: only the k most probable pieces; None for all.
        top_p: only the most probable pieces that together reach p (Holtzman et al. 2020, section 3.1).
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.temperature < math.inf:
            raise UserError(
                f"--temperature {self.temperature:g}: give a number above 0; greedy is without --sample"
            )
        if not 0 < self.top_p <= 1:
            raise UserError(f"--top-p {self.top_p:g}: give more than 0 and at most 1")
        if self.top_k is not None and self.top_k < 1:
            raise UserError(f"--top-k {self.top_k}: give at least 1")


def best(scores_BV: Tensor) -> Tensor:
    """The piece with the highest score, int64 (B,); the first of equal ones."""
    return scores_BV.argmax(dim=-1)


def draw(scores_BV: Tensor, sampling: Sampling, uniform_B: Tensor) -> Tensor:
    """A piece of each sentence, int64 (B,); `uniform_B`, float64 in [0, 1), decides which.

    Pieces stand in the order of their probability, and the first is drawn at which their sum exceeds
    `uniform_B`: one random number gives one piece, whatever else is in the batch.
    """
    ordered_BV, order_BV = (scores_BV / sampling.temperature).sort(dim=-1, descending=True, stable=True)
    if sampling.top_k is not None:
        ordered_BV[:, sampling.top_k :] = -torch.inf
    probs_BV = ordered_BV.double().softmax(dim=-1)
    before_BV = probs_BV.cumsum(dim=-1) - probs_BV
    probs_BV = probs_BV.masked_fill(before_BV >= sampling.top_p, 0.0)
    sums_BV = probs_BV.cumsum(dim=-1)
    chosen_B1 = torch.searchsorted(sums_BV, uniform_B[:, None] * sums_BV[:, -1:], right=True)
    # Rounding must not choose a piece beyond the last that has a probability.
    last_B1 = probs_BV.gt(0).sum(dim=-1, keepdim=True) - 1
    return order_BV.gather(1, chosen_B1.minimum(last_B1)).squeeze(1)
