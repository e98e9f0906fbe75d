"""The optimizer `fused_adam`: fairseq's `adam` in one pass over memory.

fairseq's `Adam` (`fairseq/optim/adam.py`) makes about ten passes over parameters and moments in
Python; torch's fused AdamW makes one, on CPU and CUDA. The two differ in where epsilon enters.
With m, v the moments and c1, c2 the bias corrections 1 - beta^t,

    fairseq   p -= lr * sqrt(c2) / c1 * m / (sqrt(v) + eps)
    torch     p -= lr / c1 * m / (sqrt(v) / sqrt(c2) + eps')

which are equal for eps' = eps / sqrt(c2). That is what `step` sets, so that the updates agree up
to rounding. Weight decay is decoupled (Loshchilov & Hutter 2019) and scaled by lr in both.
"""

import ast
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, List

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.optim import FairseqOptimizer, register_optimizer
from omegaconf import II

from common.errors import UserError


@dataclass
class FusedAdamConfig(FairseqDataclass):
    """The flags of fairseq's `adam`."""

    adam_betas: Any = field(default="(0.9, 0.999)", metadata={"help": "betas for Adam optimizer"})
    adam_eps: float = field(default=1e-8, metadata={"help": "epsilon for Adam optimizer"})
    weight_decay: float = field(default=0.0, metadata={"help": "weight decay"})
    lr: List[float] = II("optimization.lr")


@register_optimizer("fused_adam", dataclass=FusedAdamConfig)
class FairseqFusedAdam(FairseqOptimizer):
    """`--optimizer fused_adam`, with the flags of `adam`."""

    def __init__(self, cfg: FusedAdamConfig, params: Iterable[torch.nn.Parameter]) -> None:
        super().__init__(cfg)
        self._optimizer = FusedAdam(list(params), **self.optimizer_config)

    @property
    def optimizer_config(self) -> dict[str, Any]:
        """Settings that override those of a checkpoint when a run resumes."""
        lr = self.cfg.lr
        return {
            "lr": lr if isinstance(lr, float) else lr[0],
            "betas": parse_betas(self.cfg.adam_betas),
            "eps": self.cfg.adam_eps,
            "weight_decay": self.cfg.weight_decay,
        }


class FusedAdam(torch.optim.AdamW):
    """torch's fused AdamW with fairseq's epsilon; groups keep fairseq's value under `eps`."""

    def __init__(self, params: Iterable[torch.nn.Parameter], **settings: Any) -> None:
        super().__init__(params, fused=True, **settings)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One update of all parameters that have a gradient."""
        eps = [group["eps"] for group in self.param_groups]
        for group in self.param_groups:
            group["eps"] /= math.sqrt(1 - group["betas"][1] ** self._next_step(group))
        try:
            return super().step(closure)
        finally:
            for group, value in zip(self.param_groups, eps, strict=True):
                group["eps"] = value

    def _next_step(self, group: dict[str, Any]) -> int:
        """The number t of the coming update (parameters of a group are updated together)."""
        steps = [self.state[p]["step"] for p in group["params"] if "step" in self.state.get(p, ())]
        return 1 + int(max(steps, default=0))


def parse_betas(betas: Any) -> tuple[float, float]:
    """`"(0.9, 0.98)"` or a pair -> a pair; raises `UserError` for anything else."""
    try:
        pair = ast.literal_eval(betas) if isinstance(betas, str) else betas
        first, second = (float(beta) for beta in pair)
    except (ValueError, SyntaxError, TypeError):
        raise UserError(f'--adam-betas {betas!r} is not a pair such as "(0.9, 0.98)"') from None
    return first, second
