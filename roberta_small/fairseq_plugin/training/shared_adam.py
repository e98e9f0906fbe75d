"""The optimizer `shared_adam`: Adam with one second moment for all outputs of a linear layer.

Adam divides each weight's step by the root mean square of that weight's own gradients. In a linear classifier
of rare features with many classes this is harmful: a feature's gradient is large for the true class and
small for the others, and after the division the steps have the same size. Here the second moment of a
feature is the mean over the classes, so that the proportions remain. With two classes the gradients differ
only in sign, and the updates are those of Adam (Kingma & Ba 2015, algorithm 1). Adam-mini (Zhang et al. 2024,
arXiv:2406.16793) also shares second moments, by blocks of weights.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, List

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.optim import FairseqOptimizer, register_optimizer
from omegaconf import II

from roberta_small.fairseq_plugin.training.optimizer import parse_betas


@dataclass
class SharedAdamConfig(FairseqDataclass):
    """The flags of fairseq's `adam`, without weight decay."""

    adam_betas: Any = field(default="(0.9, 0.999)", metadata={"help": "betas for Adam optimizer"})
    adam_eps: float = field(default=1e-8, metadata={"help": "epsilon for Adam optimizer"})
    lr: List[float] = II("optimization.lr")


@register_optimizer("shared_adam", dataclass=SharedAdamConfig)
class FairseqSharedAdam(FairseqOptimizer):
    """`--optimizer shared_adam`; raises `UserError` for invalid --adam-betas."""

    def __init__(self, cfg: SharedAdamConfig, params: Iterable[torch.nn.Parameter]) -> None:
        super().__init__(cfg)
        self._optimizer = SharedAdam(params, **self.optimizer_config)

    @property
    def optimizer_config(self) -> dict[str, Any]:
        """The settings, which override those of a checkpoint when a run resumes."""
        lr = self.cfg.lr
        return {
            "lr": lr if isinstance(lr, float) else lr[0],
            "betas": parse_betas(self.cfg.adam_betas),
            "eps": self.cfg.adam_eps,
        }


class SharedAdam(torch.optim.Optimizer):
    """Adam whose second moment is the mean over the first dimension of a parameter (outputs of a layer)."""

    def __init__(self, params: Any, lr: float, betas: tuple[float, float], eps: float) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]  # not called
        """Update all parameters that have a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, self.state[parameter], group)

    @staticmethod
    def _update(parameter: torch.nn.Parameter, state: dict[str, Any], group: dict[str, Any]) -> None:
        gradient, (beta1, beta2) = parameter.grad, group["betas"]
        assert gradient is not None
        if not state:
            state["step"] = 0
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter[:1])
        state["step"] += 1
        square = gradient.square().mean(dim=0, keepdim=True)
        state["exp_avg"].lerp_(gradient, 1 - beta1)
        state["exp_avg_sq"].lerp_(square, 1 - beta2)
        correction1, correction2 = (1 - beta ** state["step"] for beta in (beta1, beta2))
        scale = state["exp_avg_sq"].sqrt().div_(math.sqrt(correction2)).add_(group["eps"])
        parameter.addcdiv_(state["exp_avg"], scale.expand_as(parameter), value=-group["lr"] / correction1)
