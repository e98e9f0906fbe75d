"""The update of `fused_adam` on a GPU, from the gradient norm to the weights, which may be a CUDA graph.

Calling these operations takes longer than computing them for a small model. Where forward and backward pass
are a CUDA graph (`graphs`), their gradients are the same tensors each time, and the update is replayed as one
graph, too. It is separate from those of the passes because it does not depend on the size of the batch, and
because fairseq sets the scale of the gradients after the passes.

A graph repeats the numbers with which its kernels were launched. So those that change are tensors on the GPU,
also where the operations are called one by one: the scale of the gradients and the learning rate with the
corrections of bias. With the moments m, v and the corrections c1, c2 of `optimizer`,

    p -= lr * weight_decay * p
    p -= rate * m / (sqrt(v) + eps)        rate = lr * sqrt(c2) / c1

The second line is torch's kernel without its own corrections, which are 1 after infinitely many updates.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

logger = logging.getLogger(__name__)
LARGEST = 1 << 27
"""Number of weights above which an update takes longer than its launch; comparing it would take 2 GB."""
SAME_NORM, SAME_WEIGHT, SAME_STEP = 1e-4, 1e-6, 1e-2
"""Differences that are rounding: of the norm and of a weight, relative; of a weight, by its learning rate."""
Result = TypeVar("Result")


class Recorder(Protocol):
    """The graphs of a model (`graphs.Graphs`)."""

    gradients: dict[torch.nn.Parameter, Tensor]
    """The tensors to which they write."""

    def record(self, function: Callable[[], Result]) -> tuple[Any, Result]:
        """A graph of the kernels that the function launches, which are not executed, and its result."""


class Scaling(NamedTuple):
    """What is known of the gradients of an update; scalars on the GPU, fp32."""

    norm: Tensor
    """2-norm of the scaled gradients, before clipping."""
    divisor: Tensor
    """The update divides the gradients by it."""
    skip: Tensor
    """1 if the norm is not finite, and the update changes nothing; else 0."""


class Group(NamedTuple):
    """The parameters of a group that have a gradient, in fp32, and their state."""

    parameters: list[Tensor]
    gradients: list[Tensor]
    first: list[Tensor]
    second: list[Tensor]
    steps: list[Tensor]
    """Numbers of updates, scalars."""

    def copy(self) -> Group:
        """The same values in other tensors."""
        return Group(*([tensor.detach().clone() for tensor in tensors] for tensors in self))


class GpuUpdate:
    """The update of an optimizer whose parameters are on a GPU.

    Attributes:
        factor: what the gradients are multiplied with.
        recorder: the graphs of the model, if it has any.
    """

    def __init__(self, optimizer: torch.optim.AdamW) -> None:
        self.optimizer = optimizer
        self.factor: float | Tensor = 1.0
        self.recorder: Recorder | None = None
        device = optimizer.param_groups[0]["params"][0].device
        self._factor, self._infinity = torch.ones((), device=device), torch.full((), math.inf, device=device)
        self._rates = [torch.zeros((), device=device) for _ in optimizer.param_groups]
        self._decays = [torch.zeros((), device=device) for _ in optimizer.param_groups]
        self._max_norm = 0.0
        self._scaling: Scaling | None = None
        self._graph: Any = None
        self._graph_norm: Tensor | None = None
        self._recorded: tuple[int, float] | None = None
        """For how many gradients and for which maximum norm the graph was recorded."""
        self._works, self._replays = True, False

    def reset(self) -> None:
        """Forget what is known of the gradients."""
        self.factor, self._scaling, self._replays = 1.0, None, False

    def forget_graph(self) -> None:
        """The state of the optimizer is in other tensors now."""
        self._graph = self._graph_norm = self._recorded = None

    def clip(
        self, gradients: Sequence[Tensor], max_norm: float, aggregate: Callable[[Tensor], Tensor] | None
    ) -> Tensor:
        """Prepare an update that scales the gradients to `max_norm` > 0 if they exceed it.

        Returns their norm, a scalar on the GPU. If the update is a graph, it has this value after it.
        """
        self._max_norm = max_norm
        self._replays = aggregate is None and self.repeats()
        if self._replays:
            assert self._graph_norm is not None
            return self._graph_norm
        self._factor.fill_(self.factor)
        self._scaling = self._scaled(gradients, aggregate)
        return self._scaling.norm

    def step(self, updates: Sequence[int]) -> None:
        """Update the parameters that have a gradient; `updates` are the numbers of this update by group."""
        for group, number, rate, decay in zip(
            self.optimizer.param_groups, updates, self._rates, self._decays, strict=True
        ):
            first, second = (1 - beta**number for beta in group["betas"])
            rate.fill_(group["lr"] * math.sqrt(second) / first)
            decay.fill_(group["lr"] * group["weight_decay"])
        if self._replays:
            self._factor.fill_(self.factor)
            self._graph.replay()
            return
        groups = self._groups()
        if self._scaling is None:  # the norm was not asked for
            self._factor.fill_(self.factor)
            none = torch.zeros_like(self._factor)
            self._update(groups, Scaling(none, 1.0 / self._factor, none))
        elif self._repeatable(groups):
            self._record(groups, self._scaling)
        else:
            self._update(groups, self._scaling)

    def _scaled(
        self, gradients: Sequence[Tensor], aggregate: Callable[[Tensor], Tensor] | None = None
    ) -> Scaling:
        norm = torch.nn.utils.get_total_norm(gradients) * self._factor
        if aggregate is not None:
            norm = aggregate(norm)
        factor = self._factor
        if self._max_norm > 0:
            factor = factor * (self._max_norm / (norm + 1e-6)).clamp(max=1.0)
        return Scaling(norm, 1.0 / factor, norm.isfinite().logical_not().float())

    def _update(self, groups: Sequence[Group], scaling: Scaling) -> None:
        kept = 1.0 - scaling.skip
        for settings, tensors, rate, decay in zip(
            self.optimizer.param_groups, groups, self._rates, self._decays, strict=True
        ):
            if not tensors.parameters:
                continue
            if settings["weight_decay"]:
                torch._foreach_mul_(tensors.parameters, 1.0 - decay * kept)
            torch._foreach_add_(tensors.steps, [kept] * len(tensors.steps))
            torch._fused_adamw_(
                tensors.parameters,
                tensors.gradients,
                tensors.first,
                tensors.second,
                [],
                [self._infinity] * len(tensors.steps),
                lr=rate,
                beta1=settings["betas"][0],
                beta2=settings["betas"][1],
                weight_decay=0.0,
                eps=settings["eps"],
                amsgrad=False,
                maximize=False,
                grad_scale=scaling.divisor,
                found_inf=scaling.skip,
            )

    def _groups(self) -> list[Group]:
        """The tensors of each group; the state of a parameter begins with its first update."""
        found = []
        for settings in self.optimizer.param_groups:
            parameters = [parameter for parameter in settings["params"] if parameter.grad is not None]
            for parameter in parameters:
                if not self.optimizer.state[parameter]:
                    self.optimizer.state[parameter] = {
                        "step": torch.zeros((), device=parameter.device),
                        "exp_avg": torch.zeros_like(parameter),
                        "exp_avg_sq": torch.zeros_like(parameter),
                    }
            states = [self.optimizer.state[parameter] for parameter in parameters]
            names = ("exp_avg", "exp_avg_sq", "step")
            moments = ([state[name] for state in states] for name in names)
            found.append(Group(list(parameters), [p.grad for p in parameters], *moments))
        return found

    # The update as a graph.

    def _shared(self) -> Mapping[torch.nn.Parameter, Tensor]:
        """The gradients, if they are those to which the graphs of the passes write; else nothing."""
        written = self.recorder.gradients if self.recorder is not None else {}
        parameters = (p for group in self.optimizer.param_groups for p in group["params"])
        return written if all(p.grad is written.get(p) for p in parameters) else {}

    def repeats(self) -> bool:
        """Whether there is a graph that repeats this update."""
        shared = self._shared() if self._graph is not None else {}
        return bool(shared) and self._recorded == (len(shared), self._max_norm)

    def _repeatable(self, groups: Sequence[Group]) -> bool:
        """Whether this update can be recorded."""
        if not self._works:
            return False
        weights = sum(parameter.numel() for group in groups for parameter in group.parameters)
        return weights <= LARGEST and bool(self._shared())

    def _record(self, groups: list[Group], scaling: Scaling) -> None:
        """Record an update, and replay it; if it cannot be, or if its results differ, call its operations."""
        assert self.recorder is not None

        def update() -> Tensor:
            scaled = self._scaled([gradient for group in groups for gradient in group.gradients])
            self._update(groups, scaled)
            return scaled.norm

        try:
            copies = [group.copy() for group in groups]
            self._graph, self._graph_norm = self.recorder.record(update)
        except Exception as error:  # recording can fail in any way
            self._give_up(error.__context__ or error)
            self._update(groups, scaling)
            return
        self._recorded = len(self.recorder.gradients), self._max_norm
        self._graph.replay()
        self._update(copies, scaling)
        if not self._same(groups, copies, scaling.norm):
            for group, copy in zip(groups, copies, strict=True):
                for tensors, values in zip(group, copy, strict=True):
                    torch._foreach_copy_([tensor.detach() for tensor in tensors], values)
            self._give_up(RuntimeError("its weights or its norm differ"))

    def _same(self, groups: Sequence[Group], expected: Sequence[Group], norm: Tensor) -> bool:
        """Whether the graph has computed what its operations compute; with an infinite norm, nothing."""
        assert self._graph_norm is not None
        same = torch.isclose(self._graph_norm, norm, rtol=SAME_NORM, equal_nan=True)
        for group, other, rate in zip(groups, expected, self._rates, strict=True):
            for one, two in zip(group.parameters, other.parameters, strict=True):
                same = same & ((one - two).abs() <= SAME_WEIGHT * two.abs() + SAME_STEP * rate).all()
        return bool(same)

    def _give_up(self, failure: BaseException) -> None:
        reason = (str(failure) or repr(failure)).splitlines()[0]
        self._works = False
        self.forget_graph()
        logger.warning("updates of the weights continue without a CUDA graph: %s", reason)
