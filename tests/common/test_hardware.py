import itertools
import os
import subprocess
import sys

import pytest

from roberta_small.common import hardware


def test_the_environment_keeps_the_users_allocator_settings(monkeypatch):
    monkeypatch.delenv("MALLOC_MMAP_THRESHOLD_", raising=False)
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "1")
    variables = hardware.environment(3)
    assert variables["OMP_NUM_THREADS"] == variables["MKL_NUM_THREADS"] == "3"
    assert variables["MALLOC_MMAP_THRESHOLD_"] == str(32 * 1024 * 1024)
    assert variables["MALLOC_TRIM_THRESHOLD_"] == "1"


@pytest.fixture
def cgroups(monkeypatch, tmp_path):
    """Write the files of /sys/fs/cgroup, and this process's line of /proc/self/cgroup."""

    def write(own, files):
        (tmp_path / "own").write_text(own)
        for name, text in files.items():
            path = tmp_path / "cgroup" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    monkeypatch.setattr(hardware, "CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(hardware, "OWN_CGROUPS", tmp_path / "own")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)))
    return write


PERIOD = "100000\n"


@pytest.mark.parametrize(
    ("own", "files", "cores"),
    [
        ("0::/\n", {}, 64),
        ("0::/\n", {"cpu.max": "max 100000\n"}, 64),
        ("0::/\n", {"cpu.max": "250000 100000\n"}, 3),  # rounded up
        ("0::/\n", {"cpu.max": "20000 100000\n"}, 1),  # at least one
        ("0::/\n", {"cpu.max": "9900000 100000\n"}, 64),  # more than there are
        ("0::/a/b\n", {"a/cpu.max": "400000 100000\n", "a/b/cpu.max": "max 100000\n"}, 4),
        ("0::/host/path\n", {"cpu.max": "200000 100000\n"}, 2),  # the path of the host
        ("0::/\n", {"cpu.max": "broken\n"}, 64),
        (
            "4:memory:/a\n3:cpu,cpuacct:/a\n",
            {"cpu/a/cpu.cfs_quota_us": "200000\n", "cpu/a/cpu.cfs_period_us": PERIOD},
            2,
        ),
        ("3:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": PERIOD}, 64),
    ],
)
def test_usable_cores_are_limited_by_the_cgroup(cgroups, own, files, cores):
    cgroups(own, files)
    assert hardware.usable_cores() == cores


def test_usable_cores_without_cgroups_and_with_an_affinity(cgroups, monkeypatch):
    assert hardware.usable_cores() == 64
    cgroups("0::/\n", {"cpu.max": "800000 100000\n"})
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {1, 5})
    assert hardware.usable_cores() == 2


def test_waiting_threads_and_idle_cores_are_measured(monkeypatch, tmp_path):
    monkeypatch.setattr(hardware, "TASKS", tmp_path)
    monkeypatch.setattr(hardware, "STATISTICS", tmp_path / "stat")
    monkeypatch.setattr(hardware.os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    clock = itertools.count(10.0, 2.0)
    monkeypatch.setattr(hardware.time, "monotonic", lambda: next(clock))

    def now(waited, busy, idle):
        """Nanoseconds that each of two threads has waited; ticks of two of three cores."""
        for thread, value in enumerate(waited):
            (tmp_path / str(thread)).mkdir(exist_ok=True)
            (tmp_path / str(thread) / "schedstat").write_text(f"5000 {value} 7\n")
        cores = zip(busy, idle, strict=True)
        lines = [f"cpu{n} {ticks} 0 0 {rest} {rest} 0 0 0 {ticks} 0" for n, (ticks, rest) in enumerate(cores)]
        others = ["cpu 90 0 0 90", f"cpu2 0 0 0 {sum(idle) * 9} 0 0 0 0 0 0", "intr 1 2 3"]
        (tmp_path / "stat").write_text("\n".join([others[0], *lines, *others[1:]]) + "\n")

    now((0, 1_000_000_000), (100, 100), (0, 0))
    meter = hardware.LoadMeter()
    now((0, 2_500_000_000), (300, 150), (0, 75))
    load = meter.measure()
    assert load.waiting == pytest.approx(1.5 / 2)
    assert load.idle == pytest.approx(2 * 150 / 400)
    monkeypatch.setattr(hardware.time, "sleep", lambda seconds: now((0, 0), (315, 150), (5, 80)))
    assert hardware.idle_cores() == pytest.approx(2 * 20 / 35)
    (tmp_path / "1" / "schedstat").write_text("unknown\n")
    assert meter.measure() is None
    assert hardware.idle_cores() is None


def test_the_usage_of_a_process():
    code = "import time\nblock = bytearray(64 << 20)\nend = time.process_time() + 0.3\n"
    code += "while time.process_time() < end: pass\nprint(flush=True)\ninput()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as process:
        process.stdout.readline()
        found = hardware.usage(process.pid)
        assert 0.25 <= found.seconds < 5
        assert 64 << 20 < found.peak_bytes < 1 << 30
        process.communicate(b"\n")
        assert hardware.usage(process.pid) is None
