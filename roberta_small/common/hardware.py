"""The cores of this process, what makes a training on a CPU fast, and sizes that depend on the device.

What a CPU computes at a time fits into its caches, a GPU needs more work. The sizes of a GPU are estimates:
nothing has been measured on one.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")
STATISTICS = Path("/proc/stat")
TASKS = Path("/proc/self/task")
PROCESSES = Path("/proc")

# malloc: a training step frees and allocates the same hundreds of MB. By default glibc returns large blocks
# to the kernel at once, and faulting their pages in again takes a third of a step. 32 MiB is the largest
# mmap threshold that glibc accepts; the trim threshold limits the memory that is kept. Larger blocks use
# huge pages, which cause a twentieth of the page faults (glibc 2.35 and later).
#
# OpenMP: waiting threads spin for some 50 microseconds, the time between two operations, and then sleep.
# Without spinning, each small operation waits for threads to wake up; unlimited spinning, libgomp's default,
# halves the speed of other processes on the machine (or of a second run).
TUNING = {
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(512 << 20),
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    "GOMP_SPINCOUNT": "20000",
}
"""Read when a process starts: they have no effect if it sets them itself."""
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Environment variables that limit the threads of torch."""
FOLLOW = "RS_FOLLOW_LOAD"
"""Environment variable, 1 where the number of threads is not the user's choice and may follow the load."""


def environment(threads: int) -> dict[str, str]:
    """Environment variables of a trainer; values of `TUNING` that the user has set are kept."""
    tuning = {name: os.environ.get(name, value) for name, value in TUNING.items()}
    follow = {} if threads_are_given() else {FOLLOW: "1"}
    return {"PYTHONIOENCODING": "utf-8"} | tuning | dict.fromkeys(THREADS, str(threads)) | follow


def threads_are_given() -> bool:
    """Whether the user has chosen the number of threads."""
    return os.environ.get(FOLLOW) != "1" and any(os.environ.get(name) for name in THREADS)


@dataclass(frozen=True)
class Usage:
    """What a process has used so far, its ended children included in the time."""

    seconds: float
    """Of CPU time, of all its threads."""
    peak_bytes: int
    """The largest resident memory."""


def usage(process: int) -> Usage | None:
    """The usage of a process by its number; None if it has ended, or where there is no /proc."""
    folder = PROCESSES / str(process)
    try:
        times = (folder / "stat").read_text().rpartition(")")[2].split()[11:15]
        peak = re.search(r"VmHWM:\s*(\d+) kB", (folder / "status").read_text())
    except OSError:
        return None
    if peak is None or len(times) < 4:  # a process that has ended and was not waited for
        return None
    return Usage(sum(map(int, times)) / os.sysconf("SC_CLK_TCK"), int(peak[1]) << 10)


def usable_cores() -> int:
    """The number of cores that this process may use: those of its affinity, and at most its cgroup's quota.

    A quota (`docker run --cpus 2`, a Kubernetes limit) does not hide the other cores. More threads than the
    quota has cores stop each other for the rest of each period (100 ms).
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min([cores, *(max(1, math.ceil(quota)) for quota in _quotas())])


def siblings() -> int:
    """The number of processes with the parent of this one, itself included; 1 if that is unknown."""
    return max(1, len(children(os.getppid())))


def children(process: int) -> list[int]:
    """The IDs of a process's children; none if they are unknown (proc_tid_children(5))."""
    try:
        files = list(Path(f"/proc/{process}/task").glob("*/children"))
        return [int(word) for file in files for word in file.read_text(encoding="ascii").split()]
    except OSError:
        return []


def idle_cores(seconds: float = 0.2) -> float | None:
    """How many of this process's cores are idle while it sleeps for `seconds`.

    None if that is unknown, for example because a thread ended meanwhile.
    """
    meter = LoadMeter()
    time.sleep(seconds)
    load = meter.measure()
    return None if load is None else load.idle


@dataclass(frozen=True)
class Load:
    """Means over a period, in cores."""

    waiting: float
    """Time that threads of this process were ready to run, but had no core."""
    idle: float
    """Time that cores of this process were idle."""


class LoadMeter:
    """The load between two calls of `measure`."""

    def __init__(self) -> None:
        self._before = self._now()

    def measure(self) -> Load | None:
        """The load since the last call, or since this object was made; None if it is unknown."""
        before, self._before = self._before, self._now()
        if before is None or self._before is None:
            return None
        begin, waited, idle, ticks = before
        end, waited_now, idle_now, ticks_now = self._before
        if end <= begin or ticks_now <= ticks:
            return None
        cores = len(os.sched_getaffinity(0))
        return Load(
            max(0.0, waited_now - waited) / (end - begin), cores * (idle_now - idle) / (ticks_now - ticks)
        )

    @staticmethod
    def _now() -> tuple[float, float, int, int] | None:
        """Time and waiting time of this process's threads in seconds; idle ticks and ticks of its cores."""
        try:
            files = list(TASKS.glob("*/schedstat"))
            # proc_pid_schedstat: time on a core, time ready to run (ns), number of time slices
            waited = sum(int(file.read_text(encoding="ascii").split()[1]) for file in files) / 1e9
            idle = passed = 0
            for line in STATISTICS.read_text(encoding="ascii").splitlines():  # proc_stat(5)
                name, *values = line.split()
                if name.startswith("cpu") and name != "cpu" and int(name[3:]) in os.sched_getaffinity(0):
                    ticks = list(map(int, values[:8]))  # guest time, after them, is part of user time
                    idle, passed = idle + ticks[3] + ticks[4], passed + sum(ticks)  # idle and iowait; all
        except (OSError, ValueError, IndexError, AttributeError):
            return None
        return time.monotonic(), waited, idle, passed


def _quotas() -> Iterator[float]:
    """The quotas of this process's cgroup and of those above it, in cores (cgroups v1 and v2)."""
    try:
        lines = OWN_CGROUPS.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            mount = CGROUPS
        elif "cpu" in controllers.split(","):
            mount = CGROUPS / "cpu"
        else:
            continue
        folder = mount / path.lstrip("/")
        # In a container, the path may be that of the host; the container's own cgroup is then the root.
        for place in (folder, *folder.parents):
            with suppress(OSError, ValueError, ZeroDivisionError):  # no such file, or another format
                if (place / "cpu.max").is_file():
                    quota, period = (place / "cpu.max").read_text(encoding="ascii").split()
                else:
                    names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
                    quota, period = ((place / name).read_text(encoding="ascii") for name in names)
                if quota != "max" and int(quota) > 0:
                    yield int(quota) / int(period)
            if place == mount:
                break


@dataclass(frozen=True)
class Sizes:
    """The sizes of a device."""

    valid_sentences: int
    """Sentences of a validation batch: `--batch-size-valid` of the recipes."""
    valid_tokens: int
    """Its tokens, including padding: `--max-tokens-valid` of the recipes."""
    prediction_tokens: int
    """Tokens of a batch in prediction, including padding: default of `--max-tokens`."""
    teacher_tokens: int
    """Tokens of a batch of the teacher of a distillation."""
    loss_rows: int
    """Positions whose scores over the vocabulary have a softmax at a time."""
    loss_block_bytes: int
    """Size of the gradient of the scores that is kept for one matrix product."""
    loss_columns: int
    """Rows of the output matrix whose gradients are computed at a time."""
    copied_bytes: int
    """Size of a copy that measures the rate of the memory and not that of a cache."""


CPU = Sizes(
    valid_sentences=64,
    valid_tokens=4096,
    prediction_tokens=4096,
    teacher_tokens=8192,
    loss_rows=128,  # 16 MB of fp32 for 32,000 vocabulary entries
    # malloc maps larger tensors again each time, and the page faults cost more than the product.
    loss_block_bytes=32 << 20,
    loss_columns=8000,
    copied_bytes=65_000_000,
)
GPU = Sizes(
    valid_sentences=1024,
    valid_tokens=65536,
    prediction_tokens=65536,
    teacher_tokens=65536,
    loss_rows=2048,  # 262 MB
    loss_block_bytes=256 << 20,
    loss_columns=1 << 20,
    copied_bytes=1_000_000_000,  # 20 times the cache of an H100
)
RUNS_PER_GPU = 4
"""Runs that share a GPU: a small model's update has less work for it than a CPU needs time to launch it."""
GPU_RUN_BYTES = 8 << 30
"""Memory of a GPU reserved per run."""


def sizes_of(device_type: str) -> Sizes:
    """The sizes of a type of torch's devices."""
    return GPU if device_type == "cuda" else CPU
