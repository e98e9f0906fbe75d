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

import math
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

LARGEST = 1 << 27
"""Number of weights above which an update takes longer than its launch (an estimate) and its copies 2 GB."""
SAME_NORM, SAME_MOMENT, SAME_WEIGHT, SAME_STEP = 1e-4, 1e-4, 1e-6, 1e-2
"""Differences that are rounding: relative ones, and that of a weight as a part of the learning rate."""
Result = TypeVar("Result")


class Recorder(Protocol):
    """The graphs of a model (`graphs.Graphs`)."""

    gradients: dict[torch.nn.Parameter, Tensor]
    """The tensors to which they write; none if there are no graphs any more."""

    def record(self, function: Callable[[], Result]) -> tuple[Any, Result]:
        """A graph of the kernels that the function launches, which are not executed, and its result."""

    def give_up(self, failure: BaseException) -> None:
        """Continue without graphs, with a warning."""


class Scaling(NamedTuple):
    """What is known of the gradients of an update; scalars on the GPU, fp32."""

    norm: Tensor  # 2-norm of the scaled gradients, before clipping
    divisor: Tensor  # the update divides the gradients by it
    skip: Tensor  # 1 if the norm is not finite, and the update changes nothing; else 0


class Group(NamedTuple):
    """The parameters of a group that have a gradient, in fp32, and their state."""

    parameters: list[Tensor]
    gradients: list[Tensor]
    first: list[Tensor]
    second: list[Tensor]
    steps: list[Tensor]  # numbers of updates, scalars; the same, unless one is new

    def copy(self) -> Group:
        """The same values in other tensors."""
        return Group(*([tensor.detach().clone() for tensor in tensors] for tensors in self))


class Recorded(NamedTuple):
    """An update as a graph."""

    graph: Any
    norm: Tensor  # of its gradients
    gradients: int  # their number
    max_norm: float


class GpuUpdate:
    """The update of an optimizer whose parameters are on a GPU."""

    def __init__(self, optimizer: torch.optim.AdamW) -> None:
        self.recorder: Recorder | None = None  # the graphs of the model, if it has any
        self._optimizer = weakref.proxy(optimizer)  # a cycle would keep its memory on the GPU for a while
        device = optimizer.param_groups[0]["params"][0].device
        self._scale = torch.ones((), device=device)
        self._rates = [torch.zeros((), device=device) for _ in optimizer.param_groups]
        self._decays = [torch.zeros((), device=device) for _ in optimizer.param_groups]
        self._infinity = torch.full((), math.inf, device=device)
        self._recorded: Recorded | None = None
        self._max_norm = 0.0
        self.reset()

    def reset(self) -> None:
        """Forget what is known of the gradients."""
        self._factor: float | Tensor = 1.0
        self._scaling: Scaling | None = None
        self._replays: Recorded | None = None

    def forget_graph(self) -> None:
        """The state of the optimizer is in other tensors now."""
        self._recorded = None

    def multiply(self, c: float | Tensor) -> None:
        """Scale the gradients, in the update."""
        self._factor = self._factor * c
        if self._scaling is not None:
            self._scaling = self._scaling._replace(divisor=self._scaling.divisor / c)

    def clip(self, max_norm: float, aggregate: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Prepare an update that scales the gradients to `max_norm` > 0 if they exceed it.

        Returns their norm, a scalar on the GPU. If the update is a graph, it has this value after it.
        """
        self._max_norm = max_norm
        self._replays = self._recorded if aggregate is None and self.repeats() else None
        if self._replays is not None:
            return self._replays.norm
        self._scale.fill_(self._factor)
        self._scaling = self._scaled(aggregate)
        return self._scaling.norm

    def step(self, updates: Sequence[int]) -> None:
        """Update the parameters that have a gradient; `updates` are the numbers of this update by group."""
        if self._scaling is None and self._replays is None:
            self.clip(0.0)
        settings = self._optimizer.param_groups
        for group, number, rate, decay in zip(settings, updates, self._rates, self._decays, strict=True):
            first, second = (1 - beta**number for beta in group["betas"])
            rate.fill_(group["lr"] * math.sqrt(second) / first)
            decay.fill_(group["lr"] * group["weight_decay"])
        if self._replays is not None:
            self._scale.fill_(self._factor)
            self._replays.graph.replay()
            return
        assert self._scaling is not None
        groups = self._groups()
        if self._shared() and sum(p.numel() for p in self._shared()) <= LARGEST:
            self._record(groups, self._scaling)
        else:
            self._update(groups, self._scaling)

    def _scaled(self, aggregate: Callable[[Tensor], Tensor] | None = None) -> Scaling:
        gradients = [p.grad for p in self._parameters() if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients) * self._scale
        if aggregate is not None:
            norm = aggregate(norm)
        factor = self._scale
        if self._max_norm > 0:
            factor = factor * (self._max_norm / (norm + 1e-6)).clamp(max=1.0)
        return Scaling(norm, 1.0 / factor, norm.isfinite().logical_not().float())

    def _update(self, groups: Sequence[Group], scaling: Scaling) -> None:
        kept = 1.0 - scaling.skip
        settings = self._optimizer.param_groups
        for group, tensors, rate, decay in zip(settings, groups, self._rates, self._decays, strict=True):
            if not tensors.parameters:
                continue
            if group["weight_decay"]:
                torch._foreach_mul_(tensors.parameters, 1.0 - decay * kept)
            torch._foreach_add_(tensors.steps, [kept] * len(tensors.steps))  # it would wait for one scalar
            torch._fused_adamw_(
                tensors.parameters,
                tensors.gradients,
                tensors.first,
                tensors.second,
                [],
                [self._infinity] * len(tensors.steps),
                lr=rate,
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                weight_decay=0.0,
                eps=group["eps"],
                amsgrad=False,
                maximize=False,
                grad_scale=scaling.divisor,
                found_inf=scaling.skip,
            )

    def _groups(self) -> list[Group]:
        """The tensors of each group; the state of a parameter begins with its first update."""
        found = []
        for group in self._optimizer.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            states = [self._optimizer.state[parameter] for parameter in parameters]
            for parameter, state in zip(parameters, states, strict=True):
                if not state:
                    state["step"] = torch.zeros((), device=parameter.device)
                    state["exp_avg"], state["exp_avg_sq"] = (torch.zeros_like(parameter) for _ in range(2))
            moments = ([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq", "step"))
            found.append(Group(parameters, [parameter.grad for parameter in parameters], *moments))
        return found

    def _parameters(self) -> Iterator[torch.nn.Parameter]:
        return (parameter for group in self._optimizer.param_groups for parameter in group["params"])

    # The update as a graph.

    def repeats(self) -> bool:
        """Whether there is a graph that repeats this update."""
        if self._recorded is None or not self._shared():
            return False
        return self._recorded[2:] == (len(self._shared()), self._max_norm)

    def _shared(self) -> Mapping[torch.nn.Parameter, Tensor]:
        """The gradients, if they are those to which the graphs of the passes write; else nothing."""
        written = self.recorder.gradients if self.recorder is not None else {}
        return written if all(p.grad is written.get(p) for p in self._parameters()) else {}

    def _record(self, groups: list[Group], scaling: Scaling) -> None:
        """Record this update, and replay it; if that fails, or if its results differ, call its operations."""
        assert self.recorder is not None

        def update() -> Tensor:
            scaled = self._scaled()
            self._update(groups, scaled)
            return scaled.norm

        try:
            copies = [group.copy() for group in groups]
            graph, norm = self.recorder.record(update)
        except Exception as error:  # recording can fail in any way
            self.recorder.give_up(error.__context__ or error)
            self._update(groups, scaling)
            return
        self._scale.fill_(self._factor)
        graph.replay()
        self._update(copies, scaling)
        try:
            self._check(groups, norm, copies, scaling.norm)
        except RuntimeError as error:  # memory may not suffice to compare them
            for group, copy in zip(groups, copies, strict=True):
                for tensors, values in zip(group, copy, strict=True):
                    for tensor, value in zip(tensors, values, strict=True):
                        tensor.detach().copy_(value)
            self.recorder.give_up(error)
        else:
            self._recorded = Recorded(graph, norm, len(self.recorder.gradients), self._max_norm)

    def _check(
        self, groups: Sequence[Group], norm: Tensor, expected: Sequence[Group], expected_norm: Tensor
    ) -> None:
        """Raise `RuntimeError` if a graph has not computed what its operations compute."""
        same = torch.isclose(norm, expected_norm, rtol=SAME_NORM, equal_nan=True)
        for group, other, rate in zip(groups, expected, self._rates, strict=True):
            for one, two in zip(group.parameters, other.parameters, strict=True):
                same = same & ((one - two).abs() <= SAME_WEIGHT * two.abs() + SAME_STEP * rate).all()
            for one, two in zip(group.first + group.second, other.first + other.second, strict=True):
                same = same & ((one - two).abs().max() <= SAME_MOMENT * two.abs().max())
        if not same:
            raise RuntimeError("the updated weights or the norm of the gradients differ")
