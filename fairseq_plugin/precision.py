"""Which arithmetic the matrix products use: fp32, or bf16 with fp32 weights and optimizer.

That is `--precision`. fairseq's own `--fp16` and `--bf16`, which convert the weights too, end in a
traceback where its devices for them are missing: here they are refused before training.
"""

from __future__ import annotations

import contextlib
import functools
from importlib.util import find_spec
from typing import Any

import torch
from fairseq.trainer import Trainer

from common.errors import UserError

CHOICES = ("auto", "fp32", "bf16")


def bf16_is_fast(device: torch.device) -> bool:
    """Whether the device multiplies bf16 matrices in hardware.

    On a CPU without AMX or AVX512-BF16, bf16 is emulated and slower than fp32.
    """
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type == "cpu":
        cpu = torch.cpu.get_capabilities()
        return bool(cpu.get("amx_bf16") or cpu.get("avx512_bf16"))
    return False


def resolve(precision: str, device: torch.device) -> str:
    """`auto` becomes `bf16` where that is fast, else `fp32`."""
    if precision == "auto":
        return "bf16" if bf16_is_fast(device) else "fp32"
    return precision


def autocast(precision: str, device: torch.device) -> contextlib.AbstractContextManager:
    """The context in which a forward pass of the given precision runs."""
    if resolve(precision, device) == "bf16":
        return torch.autocast(device.type, dtype=torch.bfloat16)
    return contextlib.nullcontext()


def check_before_training() -> None:
    """Put `check_flags` in front of fairseq's `Trainer`, the first to act on `--fp16` and `--bf16`."""
    original = Trainer.__init__
    if hasattr(original, "checks_first"):
        return

    @functools.wraps(original)
    def build(trainer: Trainer, cfg: Any, *args: Any, **kwargs: Any) -> None:
        check_flags(cfg.common)
        original(trainer, cfg, *args, **kwargs)

    build.checks_first = True
    Trainer.__init__ = build


def check_flags(common: Any) -> None:
    """Raise `UserError` for a flag that lacks its device; `common` is fairseq's `CommonConfig`.

    On the command line `--bf16` means a TPU even where there is a GPU (fairseq/options.py,
    `parse_args_and_arch`), and the optimizer of `--fp16` asks for a CUDA device.
    """
    on_gpu = torch.cuda.is_available() and not common.cpu
    place = "on a GPU" if on_gpu else "on a CPU"
    if common.bf16 and (common.tpu or not on_gpu) and find_spec("torch_xla") is None:
        raise UserError(f"--bf16 {place}: fairseq takes it for a TPU's; use --precision bf16")
    if common.fp16 and not on_gpu:
        raise UserError(f"--fp16 {place}: fairseq has it for GPUs alone; use --precision bf16")
