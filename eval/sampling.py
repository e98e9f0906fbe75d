"""Choosing the next token from the scores of all tokens: greedy or by sampling.

Shapes: B sentences, V vocabulary entries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from roberta_small.common.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Sampling:
    """The distribution to sample from; the parameters apply in this order.

    Attributes:
        temperature: divisor of the logits; a value below 1 favors probable tokens.
        top_k: sample only from the k most probable tokens; None for all.
        top_p: sample only from the most probable tokens with a total probability of p (nucleus sampling,
            Holtzman et al. 2020, section 3.1).
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.temperature < math.inf:
            raise UserError(
                f"--temperature {self.temperature:g}: must be above 0; for greedy decoding, omit --sample"
            )
        if not 0 < self.top_p <= 1:
            raise UserError(f"--top-p {self.top_p:g}: must be above 0 and at most 1")
        if self.top_k is not None and self.top_k < 1:
            raise UserError(f"--top-k {self.top_k}: must be at least 1")


def make_chooser(numbers: Sequence[int], sampling: Sampling | None, seed: int) -> Callable[[Tensor], Tensor]:
    """A function from scores (B, V) to tokens (B,), int64; each prompt number has its own random stream."""
    if sampling is None:
        return choose_greedily
    import numpy as np
    import torch

    streams = [np.random.default_rng([seed, number]) for number in numbers]

    def choose(scores_BV: Tensor) -> Tensor:
        uniform = [stream.random() for stream in streams]
        return sample(
            scores_BV, sampling, torch.tensor(uniform, dtype=torch.float64, device=scores_BV.device)
        )

    return choose


def choose_greedily(scores_BV: Tensor) -> Tensor:
    """The token with the highest score, int64 (B,); the first one on a tie."""
    return scores_BV.argmax(dim=-1)


def sample(scores_BV: Tensor, sampling: Sampling, uniform_B: Tensor) -> Tensor:
    """Sample a token for each sentence, int64 (B,), from random numbers `uniform_B`, float64 in [0, 1).

    Inverse transform sampling: tokens are sorted by probability, and the first one whose cumulative
    probability exceeds `uniform_B` is returned. The result does not depend on the rest of the batch.
    """
    import torch

    ordered_BV, order_BV = (scores_BV / sampling.temperature).sort(dim=-1, descending=True, stable=True)
    if sampling.top_k is not None:
        ordered_BV[:, sampling.top_k :] = -math.inf
    probs_BV = ordered_BV.double().softmax(dim=-1)
    before_BV = probs_BV.cumsum(dim=-1) - probs_BV
    probs_BV = probs_BV.masked_fill(before_BV >= sampling.top_p, 0.0)
    sums_BV = probs_BV.cumsum(dim=-1)
    chosen_B1 = torch.searchsorted(sums_BV, uniform_B[:, None] * sums_BV[:, -1:], right=True)
    # Rounding must not select a token of probability 0.
    last_B1 = probs_BV.gt(0).sum(dim=-1, keepdim=True) - 1
    return order_BV.gather(1, chosen_B1.minimum(last_B1)).squeeze(1)
