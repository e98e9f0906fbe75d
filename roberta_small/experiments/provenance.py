"""The hardware for a sweep, and the manifest keys that record hardware, packages and code."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from roberta_small.common.errors import UserError
from roberta_small.common.files import ROOT
from roberta_small.common.hardware import GPU_RUN_BYTES, RUNS_PER_GPU, usable_cores

CPUINFO = Path("/proc/cpuinfo")
PROBE = """
import contextlib, ctypes, torch.cuda
COMPUTE_MODE = 20  # CU_DEVICE_ATTRIBUTE_COMPUTE_MODE; torch does not have it
for number in range(torch.cuda.device_count()):
    mode = ctypes.c_int()
    free, _ = torch.cuda.mem_get_info(number)
    with contextlib.suppress(OSError):  # no such library with AMD's GPUs
        ctypes.CDLL("libcuda.so.1").cuDeviceGetAttribute(ctypes.byref(mode), COMPUTE_MODE, number)
    print(free, mode.value, torch.cuda.get_device_properties(number).name)
"""
"""Prints a line for each GPU: free bytes, compute mode and name."""
EXCLUSIVE = 3
"""CU_COMPUTEMODE_EXCLUSIVE_PROCESS: a second process cannot use the GPU, except with CUDA's MPS."""
RUN_BYTES = 3 << 30
"""Memory reserved per run: twice its measured peak (results/benchmarks)."""
CHECKPOINT_COPIES = 10
"""Memory reserved per run in sizes of its initial checkpoint, for large ones: weights, gradients, two moments
of Adam, and activations of about the same size."""


@dataclass(frozen=True)
class Gpu:
    """A GPU as `PROBE` finds it."""

    name: str
    free_bytes: int
    exclusive: bool = False
    """Whether only one process at a time can use it."""


@dataclass(frozen=True)
class Machine:
    """The resources of a sweep."""

    gpus: tuple[str, ...]
    """Names of the GPUs; empty for runs on CPU."""
    threads: int
    """Threads of each process."""
    slots: int = 1
    """Number of runs at a time."""
    processes: int = 1
    """Data-parallel processes of a run; each has its own GPU, or a part of the CPU threads."""

    @property
    def cpu(self) -> bool:
        """Whether the runs use the CPU only."""
        return not self.gpus

    def visible_gpu(self, slot: int) -> str:
        """CUDA_VISIBLE_DEVICES of the run in a slot: one GPU per process, because more enlarge the batch."""
        if self.cpu:
            return ""
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        names = visible if visible != [""] else [str(i) for i in range(len(self.gpus))]
        first = slot * self.processes
        return ",".join(names[(first + i) % len(self.gpus)] for i in range(self.processes))


def machine(
    device: str, jobs: int | None = 1, runs: int = 1, processes: int = 1, checkpoint_bytes: int = 0
) -> Machine:
    """The resources for `runs` runs of `processes` processes, `jobs` runs at a time.

    With `jobs` None there is one run per CPU core as far as memory allows: on two cores, two concurrent runs
    are about 1.4 times as fast as one after the other. A GPU has up to `RUNS_PER_GPU` runs, with a core and
    memory for each; a run of several processes, and any run in exclusive mode, has its GPUs alone.
    `checkpoint_bytes` is the size of the largest initial checkpoint. Raises `UserError` if `device` is cuda
    and there is no GPU, if a GPU cannot be used, or if there are more processes than GPUs.
    """
    found = () if device == "cpu" else _gpus()
    gpus = tuple(gpu.name for gpu in found)
    if device == "cuda" and not gpus:
        raise UserError("--device cuda: PyTorch does not detect a GPU; check nvidia-smi, or use --device cpu")
    if gpus and processes > len(gpus):
        raise UserError(
            f"--processes {processes}: PyTorch finds {len(gpus)} GPU(s), and each process needs one; "
            "use fewer processes, or --device cpu"
        )
    words = os.environ.get("OMP_NUM_THREADS", "")
    threads = int(words) if words.isdigit() else 0
    if jobs is None:
        needed = CHECKPOINT_COPIES * checkpoint_bytes
        jobs = min(usable_cores() // max(1, threads), _memory_bytes() // max(RUN_BYTES, needed))
        if gpus and (processes > 1 or any(gpu.exclusive for gpu in found)):
            jobs = len(gpus) // processes
        elif gpus:
            each = min(RUNS_PER_GPU, *(gpu.free_bytes // max(GPU_RUN_BYTES, needed) for gpu in found))
            jobs = max(len(gpus), min(jobs, each * len(gpus)))
    slots = max(1, min(jobs, runs))
    return Machine(gpus, threads or max(1, usable_cores() // (slots * processes)), slots, processes)


def static(where: Machine, packages: Sequence[str]) -> dict[str, Any]:
    """The manifest keys that all runs of a sweep share; `packages` are the names of packages to record."""
    versions = {"python": platform.python_version()}
    for name in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return {
        "git_commit": _git("rev-parse", "HEAD"),
        "git_changed": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "packages": versions,
        "hardware": {
            "cpu": _cpu_model(),
            "cores": usable_cores(),
            "threads": where.threads,
            "memory_bytes": _memory_bytes(),
            "gpu": where.gpus[0] if where.gpus else None,
        },
    }


def now() -> str:
    """The current time in UTC, in ISO 8601 with seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _gpus() -> tuple[Gpu, ...]:
    """The visible GPUs; raises `UserError` if one of them cannot be used."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":  # CUDA's own way to hide all GPUs
        return ()
    # In a separate process, because torch takes seconds to import and CUDA keeps memory once initialized.
    probe = subprocess.run([sys.executable, "-P", "-c", PROBE], capture_output=True, text=True)
    if probe.returncode != 0:
        # CUDA's errors have lines of hints after their first one.
        errors = [line for line in probe.stderr.splitlines() if re.match(r"[\w.]+: ", line)]
        reason = (errors or [f"exit code {probe.returncode}"])[-1]
        raise UserError(f"the GPU cannot be used: {reason}; check nvidia-smi, or use --device cpu")
    lines = [line.split(" ", 2) for line in probe.stdout.splitlines() if line]
    return tuple(Gpu(name, int(free), int(mode) == EXCLUSIVE) for free, mode, name in lines)


def _git(*words: str) -> str | None:
    if not (ROOT / ".git").exists():
        return None  # an unpacked archive, which may be inside another repository
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _cpu_model() -> str:
    """The processor's name; cloud machines hide parts of it, so its family and model number follow."""
    try:
        text = CPUINFO.read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    fields = {
        key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())
    }
    name = fields.get("model name", platform.machine())
    if "cpu family" not in fields or "model" not in fields:  # not an x86 processor
        return name
    return f"{name} (family {fields['cpu family']}, model {fields['model']})"
