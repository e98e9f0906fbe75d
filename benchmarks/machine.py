"""What a reader needs to know about the machine to judge a time."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Any

from sweep import record
from sweep.record import Machine

CAPABILITIES = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16", "amx_int8")
PACKAGES = ("transformers", "accelerate", "sentencepiece", "pandas", "tbparse", "tensorboard-reducer")


def describe(machine: Machine) -> dict[str, Any]:
    """Commit, package versions, CPU, its matrix instructions, cores, memory and GPU."""
    found = record.static(machine)
    for name in PACKAGES:
        try:
            found["packages"][name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    found["hardware"]["capabilities"] = capabilities()
    return found


def capabilities(cpuinfo: Path = Path("/proc/cpuinfo")) -> list[str]:
    """Those of `CAPABILITIES` that the first CPU has; none where the kernel does not tell."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), [])
    return [name for name in CAPABILITIES if name in flags]
