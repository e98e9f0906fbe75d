"""The optimizers `fused_adam`, fairseq's `adam` in one pass over memory, and `shared_adam`.

fairseq's `Adam` (`fairseq/optim/adam.py`) makes about ten passes over parameters and moments in Python;
torch's fused AdamW makes one, on CPU and CUDA. They differ in the use of epsilon. With the moments m, v and
the bias corrections c1, c2 (1 - beta^t),

    fairseq   p -= lr * sqrt(c2) / c1 * m / (sqrt(v) + eps)
    torch     p -= lr / c1 * m / (sqrt(v) / sqrt(c2) + eps')

which are equal for eps' = eps / sqrt(c2). On a CPU, `FusedAdam.step` sets this value, so that the updates
agree up to rounding; on a GPU, see `gpu_update`. Weight decay is decoupled (Loshchilov & Hutter 2019) and
scaled by lr.

On a CPU, embeddings have sparse gradients: the rows of the tokens in the batch, a few hundred of 32,000.
Writing, scaling and measuring zeros for the other rows would cost more than the update. For the update, the
rows are copied to a buffer of zeros; it is dense, so that the moments of all rows decay.

Adam changes every weight by about the learning rate per update, whatever its size. `--embedding-lr-factor`
sets another learning rate for the token embeddings, which are most of a small model's weights and of which
each occurs in few batches.
"""

import ast
import contextlib
import inspect
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, List

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.optim import FairseqOptimizer, register_optimizer
from omegaconf import II
from torch import Tensor

from roberta_small.common.errors import UserError
from roberta_small.fairseq_plugin.training import distributed
from roberta_small.fairseq_plugin.training.gpu_update import GpuUpdate, Recorder

LARGE = 1 << 23
"""Elements above which malloc would unmap the memory of a gradient and map it again at each update."""


def leave_out_compiler() -> None:
    """Let torch's optimizers not import torch's compiler, which takes a second and is not used in training.

    They import it to exclude these methods from compilation, unless a method has the result already
    (`torch._compile._disable_dynamo`).
    """
    if "torch._dynamo" in sys.modules:
        return
    for name in ("add_param_group", "load_state_dict", "state_dict", "zero_grad"):
        method = inspect.unwrap(getattr(torch.optim.Optimizer, name))
        method.__dynamo_disable = method


@dataclass
class SharedAdamConfig(FairseqDataclass):
    """The flags of fairseq's `adam`, without weight decay."""

    adam_betas: Any = field(default="(0.9, 0.999)", metadata={"help": "betas for Adam optimizer"})
    adam_eps: float = field(default=1e-8, metadata={"help": "epsilon for Adam optimizer"})
    lr: List[float] = II("optimization.lr")


@dataclass
class FusedAdamConfig(SharedAdamConfig):
    """The flags of fairseq's `adam`, and one more."""

    weight_decay: float = field(default=0.0, metadata={"help": "weight decay"})
    embedding_lr_factor: float = field(
        default=1.0,
        metadata={"help": "learning rate of the token embeddings, as a multiple of --lr (default: 1.0)"},
    )


@register_optimizer("shared_adam", dataclass=SharedAdamConfig)
class FairseqSharedAdam(FairseqOptimizer):
    """`--optimizer shared_adam`; raises `UserError` for invalid --adam-betas."""

    _optimizer: torch.optim.Optimizer

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
    """Adam whose second moment is the mean over the first dimension of a parameter (outputs of a layer).

    Adam divides each weight's step by the root mean square of that weight's own gradients. In a linear
    classifier of rare features with many classes this is harmful: a feature's gradient is large for the true
    class and small for the others, and after the division the steps have the same size. Here the proportions
    remain. With two classes the updates are those of Adam (Kingma & Ba 2015, algorithm 1). Adam-mini (Zhang
    et al. 2024, arXiv:2406.16793) also shares second moments, by blocks of weights.
    """

    def __init__(self, params: Any, lr: float, betas: tuple[float, float], eps: float) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]  # not called
        """Update all parameters that have a gradient."""
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for parameter in group["params"]:
                if (gradient := parameter.grad) is None:
                    continue
                state = self.state[parameter]
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
                rate = group["lr"] / correction1
                parameter.addcdiv_(state["exp_avg"], scale.expand_as(parameter), value=-rate)


@register_optimizer("fused_adam", dataclass=FusedAdamConfig)
class FairseqFusedAdam(FairseqSharedAdam):
    """`--optimizer fused_adam`, with the flags of `adam` and `--embedding-lr-factor`."""

    _optimizer: "FusedAdam"

    def __init__(self, cfg: FusedAdamConfig, params: Iterable[torch.nn.Parameter]) -> None:
        FairseqOptimizer.__init__(self, cfg)
        params = list(params)
        for parameter in params:
            sparse = parameter.device.type == "cpu" and not distributed.active()
            setattr(parameter, "sparse_gradient", sparse)  # noqa: B010  Parameter declares no such attribute
        self._optimizer = FusedAdam(groups(params, cfg.embedding_lr_factor), **self.optimizer_config)

    @property
    def optimizer_config(self) -> dict[str, Any]:
        """The settings, with the weight decay."""
        return super().optimizer_config | {"weight_decay": self.cfg.weight_decay}

    def set_lr(self, lr: float) -> None:
        """Set the learning rate of each group; `get_lr` returns that of the first group, which is `lr`."""
        for group in self.param_groups:
            group["lr"] = lr * group["lr_factor"]

    def load_state_dict(
        self, state_dict: dict[str, Any], optimizer_overrides: dict[str, Any] | None = None
    ) -> None:
        """Load a checkpoint's state; raises `UserError` if only one of the two has an embedding factor."""
        factors = [group["lr_factor"] for group in self.param_groups]
        if len(state_dict["param_groups"]) != len(factors):
            raise UserError(
                "the checkpoint was trained with another --embedding-lr-factor setting: resume with the same "
                "flags, or add --reset-optimizer"
            )
        super().load_state_dict(state_dict, optimizer_overrides)
        for group, factor in zip(self.param_groups, factors, strict=True):
            group["lr_factor"] = factor  # the command line overrides the checkpoint

    def zero_grad(self) -> None:
        """Delete the gradients; the memory of large ones is kept for reuse as `parameter.spare_grad`."""
        if self._optimizer.on_gpu is not None:
            self._optimizer.on_gpu.reset()
        for parameter in self.params:
            gradient = parameter.grad
            large = gradient is not None and not gradient.is_sparse and gradient.numel() >= LARGE
            if large and gradient.device.type == "cpu":  # CUDA's allocator caches memory itself
                parameter.spare_grad = gradient
            parameter.grad = None

    def multiply_grads(self, c: float | Tensor) -> None:
        """Scale all gradients; on a GPU, the update does it."""
        if self._optimizer.on_gpu is not None:
            self._optimizer.on_gpu.multiply(c)
        else:
            torch._foreach_mul_(self._gradients(), c)

    def clip_grad_norm(
        self, max_norm: float, aggregate_norm_fn: Callable[[Tensor], Tensor] | None = None
    ) -> Tensor:
        """Return the 2-norm of all gradients; if it exceeds `max_norm` > 0, scale the gradients to it.

        On a GPU, no weight is changed if the norm is not finite: fairseq reads it after the update.
        """
        if self._optimizer.on_gpu is not None:
            return self._optimizer.on_gpu.clip(max_norm, aggregate_norm_fn)
        norm = torch.nn.utils.get_total_norm(self._gradients())
        if aggregate_norm_fn is not None:
            norm = aggregate_norm_fn(norm)
        if max_norm > 0:
            self.multiply_grads((max_norm / (norm + 1e-6)).clamp(max=1.0))
        return norm

    def repeat_update(self, recorder: Recorder) -> None:
        """On a GPU, record updates of the gradients to which recorded passes write."""
        if self._optimizer.on_gpu is not None:
            self._optimizer.on_gpu.recorder = recorder

    def _gradients(self) -> list[Tensor]:
        """All gradients; of sparse ones the values, with the rows of repeated tokens summed."""
        gradients = []
        for parameter in self.params:
            if parameter.grad is not None and parameter.grad.is_sparse:
                parameter.grad = parameter.grad.coalesce()
                gradients.append(parameter.grad.values())
            elif parameter.grad is not None:
                gradients.append(parameter.grad)
        return gradients


class FusedAdam(torch.optim.AdamW):
    """torch's fused AdamW with fairseq's epsilon, which is the value of `eps` in the groups.

    On a GPU the update itself scales the gradients, which saves two passes over them (`gpu_update`). On a CPU
    they are scaled before it, and some of them are sparse.
    """

    def __init__(self, params: Iterable[Any], **settings: Any) -> None:
        super().__init__(params, fused=True, **settings)
        self._dense: dict[torch.nn.Parameter, Tensor] = {}
        self._updates: list[int] | None = None
        on_gpu = updates_on_gpu(self.param_groups[0]["params"][0])
        self.on_gpu = GpuUpdate(self) if on_gpu else None

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a checkpoint."""
        super().load_state_dict(state_dict)
        self._updates = None
        if self.on_gpu is not None:
            self.on_gpu.forget_graph()

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters that have a gradient."""
        if self.on_gpu is not None:
            self.on_gpu.step(self._next_updates())
            self.on_gpu.reset()
            return None
        with self._dense_gradients():
            eps = [group["eps"] for group in self.param_groups]
            for group, number in zip(self.param_groups, self._next_updates(), strict=True):
                group["eps"] /= math.sqrt(1 - group["betas"][1] ** number)
            try:  # without its decorator, which imports the compiler
                return inspect.unwrap(torch.optim.AdamW.step)(self, closure)
            finally:
                for group, value in zip(self.param_groups, eps, strict=True):
                    group["eps"] = value

    @contextlib.contextmanager
    def _dense_gradients(self) -> Iterator[None]:
        """A context in which sparse gradients are replaced by dense ones, in buffers that are reused."""
        sparse = {
            parameter: parameter.grad.coalesce()
            for group in self.param_groups
            for parameter in group["params"]
            if parameter.grad is not None and parameter.grad.is_sparse
        }
        for parameter, gradient in sparse.items():
            if parameter not in self._dense:
                self._dense[parameter] = torch.zeros_like(parameter)
            parameter.grad = self._dense[parameter].index_copy_(0, gradient.indices()[0], gradient.values())
        try:
            yield
        finally:
            for parameter, gradient in sparse.items():
                self._dense[parameter].index_fill_(0, gradient.indices()[0], 0.0)
                parameter.grad = gradient

    def _next_updates(self) -> list[int]:
        """The number t of the next update of each group, whose parameters all have the same.

        They are counted here, because a GPU would have to finish its work to return its own count.
        """
        if self._updates is None:  # continue from the state
            states = [[self.state.get(p, {}) for p in group["params"]] for group in self.param_groups]
            steps = [[state["step"] for state in part if "step" in state] for part in states]
            self._updates = [int(torch.stack(part).max()) if part else 0 for part in steps]
        for index, group in enumerate(self.param_groups):
            self._updates[index] += any(parameter.grad is not None for parameter in group["params"])
        return [max(1, number) for number in self._updates]


def updates_on_gpu(parameter: Tensor) -> bool:
    """Whether a parameter is updated on a GPU."""
    return parameter.device.type == "cuda"


def groups(params: Sequence[torch.nn.Parameter], embedding_lr_factor: float) -> list[dict[str, Any]]:
    """Parameter groups with their `lr_factor`; the token embeddings are a separate group if theirs is not 1.

    Models of this plugin mark their token embeddings (`is_token_embedding`). Raises `UserError` for a factor
    of 0 or less, and if no trained parameter is marked.
    """
    if not 0.0 < embedding_lr_factor < math.inf:
        raise UserError(f"--embedding-lr-factor {embedding_lr_factor}: must be above 0")
    if embedding_lr_factor == 1.0:
        return [{"params": list(params), "lr_factor": 1.0}]
    marked = [parameter for parameter in params if getattr(parameter, "is_token_embedding", False)]
    if not marked:
        raise UserError(
            "--embedding-lr-factor: no trained token embeddings; it needs a model of this plugin, such as "
            "--arch roberta_small"
        )
    others = [parameter for parameter in params if not getattr(parameter, "is_token_embedding", False)]
    return [{"params": others, "lr_factor": 1.0}, {"params": marked, "lr_factor": embedding_lr_factor}]


def parse_betas(betas: Any) -> tuple[float, float]:
    """Parse `"(0.9, 0.98)"` or a pair of numbers; raises `UserError` for anything else."""
    try:
        pair = ast.literal_eval(betas) if isinstance(betas, str) else betas
        first, second = (float(beta) for beta in pair)
    except (ValueError, SyntaxError, TypeError):
        raise UserError(f'--adam-betas {betas!r} is not a pair such as "(0.9, 0.98)"') from None
    return first, second
