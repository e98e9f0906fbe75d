"""Which arithmetic the matrix products use: fp32, or bf16 with fp32 weights and optimizer.

That is `--precision`. fairseq's own `--fp16` and `--bf16`, which convert the weights too, end in a
traceback where its devices for them are missing: here they are refused before training.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from fairseq.trainer import Trainer

from common.errors import UserError

from .distributed import of_first

logger = logging.getLogger(__name__)
CHOICES = ("auto", "fp32", "bf16")


WORTH_IT = 1.2
"""How many times faster bf16 must be for `auto` to choose it."""
ROUNDS, TOKENS, WIDTH = 7, 1024, 512
"""Of the measurement: products of the size that a batch of reviews has."""
_chosen: dict[str, str] = {}
"""Kind of device -> what `auto` has become there, in this process or before the run was interrupted."""


@functools.cache
def resolve(precision: str, device: torch.device) -> str:
    """`auto` becomes `bf16` where that is fast, else `fp32`; the log says which.

    A run that goes on keeps what it began with, however fast the machine is now.
    """
    why = "as asked"
    if precision == "auto" and device.type in _chosen:
        precision, why = _chosen[device.type], "as the run began"
    elif precision == "auto":
        fast, why = of_first(bf16_is_fast(device))
        precision = _chosen[device.type] = "bf16" if fast else "fp32"
    # The sweep reads this line (experiments/progress.py) and writes it into the manifest.
    logger.info("precision: %s (%s)", precision, why)
    return precision


def chosen() -> dict[str, str]:
    """What a checkpoint remembers: kind of device -> what `auto` has become there."""
    return dict(_chosen)


def go_on_with(remembered: dict[str, str]) -> None:
    """Take what a checkpoint remembers for what `auto` means from now on."""
    _chosen.update(remembered)
    resolve.cache_clear()


def bf16_is_fast(device: torch.device) -> tuple[bool, str]:
    """Whether the device multiplies bf16 matrices in hardware, and how that is known.

    On a CPU it is measured, in some 20 ms: with AMX or AVX512-BF16 a product of this model's size is
    several times as fast in bf16 as in fp32; emulated, it is slower.
    """
    if device.type == "cuda":
        fast = torch.cuda.is_bf16_supported(including_emulation=False)
        return fast, "the GPU has bf16" if fast else "the GPU lacks bf16"
    if device.type != "cpu":
        return False, f"bf16 is not used on {device.type}"
    speedup = bf16_speedup()
    return speedup > WORTH_IT, f"measured: a matrix product in bf16 is {speedup:.1f} times as fast as in fp32"


def bf16_speedup() -> float:
    """Time of a matrix product on the CPU in fp32 over that in bf16 (the fastest of some, interleaved)."""
    fp32 = torch.ones(TOKENS, WIDTH), torch.ones(WIDTH, WIDTH)
    bf16 = tuple(matrix.bfloat16() for matrix in fp32)
    seconds: dict[torch.dtype, list[float]] = {torch.float32: [], torch.bfloat16: []}
    for _ in range(ROUNDS):
        for a, b in (fp32, bf16):
            start = time.perf_counter()
            torch.mm(a, b)
            seconds[a.dtype].append(time.perf_counter() - start)
    return min(seconds[torch.float32]) / min(seconds[torch.bfloat16])


def autocast(precision: str, device: torch.device) -> contextlib.AbstractContextManager:
    """The context in which a forward pass of the given precision runs."""
    if resolve(precision, device) == "bf16":
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return contextlib.nullcontext()


def checking_flags(original: Callable[..., None]) -> Callable[..., None]:
    """`Trainer.__init__`, the first to act on `--fp16` and `--bf16`, with `check_flags` before it."""

    @functools.wraps(original)
    def build(trainer: Trainer, cfg: Any, *args: Any, **kwargs: Any) -> None:
        check_flags(cfg.common, getattr(cfg.optimizer, "_name", None))
        original(trainer, cfg, *args, **kwargs)

    return build


def check_flags(common: Any, optimizer: str | None = None) -> None:
    """Raise `UserError` for a flag that lacks its device or its optimizer; `common` is a `CommonConfig`.

    On the command line `--bf16` means a TPU even where there is a GPU (fairseq/options.py,
    `parse_args_and_arch`), and the optimizer of `--fp16` asks for a CUDA device.
    """
    on_gpu = torch.cuda.is_available() and not common.cpu
    place = "on a GPU" if on_gpu else "on a CPU"
    if common.bf16 and (common.tpu or not on_gpu) and find_spec("torch_xla") is None:
        raise UserError(f"--bf16 {place}: fairseq takes it for a TPU's; use --precision bf16")
    if common.fp16 and not on_gpu:
        raise UserError(f"--fp16 {place}: fairseq has it for GPUs alone; use --precision bf16")
    scaled = {"--fp16": common.fp16, "--amp": getattr(common, "amp", False)}
    if optimizer == "fused_adam" and (given := [flag for flag, on in scaled.items() if on]):
        raise UserError(
            f"{given[0]}: --optimizer fused_adam does not scale losses; use --precision bf16, or "
            "--optimizer adam"
        )
