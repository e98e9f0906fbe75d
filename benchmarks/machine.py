"""What a reader needs to know about the machine to judge a time."""

from __future__ import annotations

import os
from importlib import metadata
from pathlib import Path
from typing import Any

from experiments import provenance
from experiments.provenance import Machine

CAPABILITIES = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16", "amx_int8")
VARIABLES = ("OMP_", "MKL_", "KMP_", "GOMP_", "ONEDNN_", "DNNL_", "MALLOC_", "GLIBC_", "LD_PRELOAD", "TORCH")
"""How the names of environment variables begin that change the speed."""
PACKAGES = ("transformers", "accelerate", "sentencepiece", "pandas", "tbparse", "tensorboard-reducer")


def describe(machine: Machine) -> dict[str, Any]:
    """Commit, packages, CPU with its matrix instructions, cores, memory, GPU, the user's variables."""
    found = provenance.static(machine)
    for name in PACKAGES:
        try:
            found["packages"][name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    found["hardware"]["capabilities"] = capabilities()
    found["environment"] = {
        name: value for name, value in sorted(os.environ.items()) if name.startswith(VARIABLES)
    }
    return found


def capabilities(cpuinfo: Path = Path("/proc/cpuinfo")) -> list[str]:
    """Those of `CAPABILITIES` that the first CPU has; none where the kernel does not tell."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), [])
    return [name for name in CAPABILITIES if name in flags]
