"""Which arithmetic the matrix products use: fp32, or bf16 with fp32 weights and optimizer."""

from __future__ import annotations

import contextlib

import torch

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
