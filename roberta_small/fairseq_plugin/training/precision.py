"""The precision of matrix products (`--precision`): fp32, or bf16 with weights and optimizer in fp32.

fairseq's own `--fp16` and `--bf16`, which also convert the weights, crash on devices without support for
them. Here they are checked before training.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import Any

import torch
from fairseq.modules import layer_norm
from fairseq.trainer import Trainer
from torch import Tensor, nn

from roberta_small.common.errors import UserError
from roberta_small.fairseq_plugin.training.distributed import broadcast

logger = logging.getLogger(__name__)
CHOICES = ("auto", "fp32", "bf16")
MIN_SPEEDUP = 1.2
"""Speedup of bf16 over fp32 above which `auto` chooses bf16."""
ROUNDS, TOKENS, WIDTH = 7, 256, 512
"""The measurement: repetitions, and the size of the matrix product."""
_resolved: dict[str, str] = {}
"""Device type -> what `auto` resolved to, in this process or before the run was interrupted."""


@functools.cache
def resolve(precision: str, device: torch.device) -> str:
    """Resolve `auto` to `bf16` if it is fast on the device, else to `fp32`, and log the result.

    A resumed run keeps the precision it started with, even if the machine is faster or slower now.
    """
    reason = "as requested"
    if precision == "auto" and device.type in _resolved:
        precision, reason = _resolved[device.type], "as at the start of the run"
    elif precision == "auto":
        fast, reason = broadcast(bf16_is_fast(device))
        precision = _resolved[device.type] = "bf16" if fast else "fp32"
    if precision == "bf16" and device.type == "cuda" and not bf16_is_fast(device)[0]:
        raise UserError("--precision bf16: the GPU does not support bf16; use --precision fp32")
    # experiments/progress.py reads this line from the log for the manifest.
    logger.info("precision: %s (%s)", precision, reason)
    return precision


def resolved() -> dict[str, str]:
    """What `auto` resolved to, by device type; saved in checkpoints."""
    return dict(_resolved)


def restore(saved: dict[str, str]) -> None:
    """Restore what `resolved` returned when the checkpoint was saved."""
    _resolved.update(saved)
    resolve.cache_clear()


def bf16_is_fast(device: torch.device) -> tuple[bool, str]:
    """Whether bf16 matrix products are fast on the device, and the reason.

    On a CPU it is measured, in about 15 ms: with AMX or AVX512-BF16 a product is several times as fast in
    bf16 as in fp32; emulated bf16 is slower.
    """
    if device.type == "cuda":
        fast = torch.cuda.is_bf16_supported(including_emulation=False)
        return fast, "the GPU supports bf16" if fast else "the GPU does not support bf16"
    if device.type != "cpu":
        return False, f"bf16 is not used on {device.type}"
    speedup = bf16_speedup()
    return speedup > MIN_SPEEDUP, f"measured: bf16 matrix products are {speedup:.1f} times as fast as fp32"


def bf16_speedup() -> float:
    """Time of an fp32 matrix product on a CPU divided by that of a bf16 one; the minimum of each counts."""
    fp32 = torch.ones(TOKENS, WIDTH), torch.ones(WIDTH, WIDTH)
    bf16 = tuple(matrix.bfloat16() for matrix in fp32)
    seconds: dict[torch.dtype, list[float]] = {torch.float32: [], torch.bfloat16: []}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # with more, a process on one of the cores would delay both by the same time
    try:
        for _ in range(ROUNDS):
            for a, b in (fp32, bf16):
                start = time.perf_counter()
                torch.mm(a, b)
                seconds[a.dtype].append(time.perf_counter() - start)
    finally:
        torch.set_num_threads(threads)
    return min(seconds[torch.float32]) / min(seconds[torch.bfloat16])


@contextlib.contextmanager
def computing(model: Any, device: torch.device) -> Iterator[None]:
    """The context for a forward pass of a model of this plugin on a device, in its `--precision`."""
    if resolve(model.args.precision, device) != "bf16":
        yield
        return
    casts = cast_at_once(model) if casts_at_once(device) else contextlib.nullcontext()
    with torch.autocast(device.type, dtype=torch.bfloat16), casts:
        yield


def casts_at_once(device: torch.device) -> bool:
    """Whether `cast_at_once` saves time: a GPU waits for the launch of each cast."""
    return device.type == "cuda"


@contextlib.contextmanager
def cast_at_once(model: nn.Module) -> Iterator[None]:
    """A context in which the linear layers of a model have bf16 copies of their weights.

    autocast casts each weight where it is used, and its gradient in the backward pass: some hundred kernels.
    Here it is one call for all weights, and one for all gradients. The values are the same.
    """
    places = [
        (module, name, value)
        for module in model.modules()
        if type(module) is nn.Linear  # LM heads, which are subclasses, have a loss that needs their weight
        for name, value in module._parameters.items()
        if value is not None and value.dtype == torch.float32  # not within another such context
    ]
    trained = [weight for _, _, weight in places if weight.requires_grad]
    copies = iter(_Casts.apply(*trained) if trained else ())
    frozen = iter(_copies([weight for _, _, weight in places if not weight.requires_grad], torch.bfloat16))
    for module, name, weight in places:
        parameters: dict[str, Any] = module._parameters
        parameters[name] = next(copies if weight.requires_grad else frozen)
    try:
        yield
    finally:
        for module, name, weight in places:
            module._parameters[name] = weight


class _Casts(torch.autograd.Function):
    """bf16 copies of fp32 tensors."""

    @staticmethod
    def forward(ctx: Any, *weights: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)  # a weight that is not used has no gradient
        return tuple(_copies(weights, torch.bfloat16))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        copies = iter(_copies([grad for grad in grads if grad is not None], torch.float32))
        return tuple(None if grad is None else next(copies) for grad in grads)


def _copies(tensors: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    copies = [torch.empty_like(tensor, dtype=dtype) for tensor in tensors]
    if copies:
        torch._foreach_copy_(copies, list(tensors))
    return copies


def checking_flags(
    original: Callable[..., None],
    trainer: Trainer,
    cfg: Any,
    task: Any,
    model: Any,
    *args: Any,
    **kwargs: Any,
) -> None:
    """Replace `Trainer.__init__`: a clear error for --fp16 and --bf16 on devices where they crash."""
    ours = getattr(getattr(model, "args", None), "precision", None)
    check_flags(cfg.common, getattr(cfg.optimizer, "_name", None), ours)
    original(trainer, cfg, task, model, *args, **kwargs)


def check_flags(common: Any, optimizer: str | None = None, precision: str | None = None) -> None:
    """Raise `UserError` for a precision flag that the device, the optimizer or the model does not support.

    `common` is fairseq's `CommonConfig`, and `precision` that of a model of this plugin. On the command line
    `--bf16` implies a TPU even if there is a GPU (fairseq/options.py, `parse_args_and_arch`), and the
    optimizer of `--fp16` needs a CUDA device.
    """
    on_gpu = torch.cuda.is_available() and not common.cpu
    place = "on a GPU" if on_gpu else "on a CPU"
    if common.bf16 and (common.tpu or not on_gpu) and find_spec("torch_xla") is None:
        raise UserError(f"--bf16 {place}: fairseq supports it only on TPUs; use --precision bf16")
    if common.fp16 and not on_gpu:
        raise UserError(f"--fp16 {place}: fairseq supports it only on GPUs; use --precision bf16")
    if precision is not None and on_gpu and layer_norm.has_fused_layernorm:
        raise UserError(
            "apex is installed: fairseq would take its LayerNorm, with which this model is not tested; "
            "uninstall apex"
        )
    scaled = "--fp16" if common.fp16 else "--amp" if getattr(common, "amp", False) else None
    if scaled and optimizer == "fused_adam":
        raise UserError(
            f"{scaled}: --optimizer fused_adam does not support loss scaling; use --precision bf16, or "
            "--optimizer adam"
        )
    if scaled and precision in ("auto", "bf16"):
        raise UserError(
            f"{scaled} with --precision {precision}: two precisions; add --precision fp32, or omit {scaled}"
        )
