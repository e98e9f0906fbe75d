import pytest
import torch

from benchmarks.timed.clock import Clock
from benchmarks.timed.fairseq_profile import operators


def test_updates_after_the_warm_up_are_timed():
    clock = Clock()
    for tokens in (10, 20, 30, 40):
        clock.start(tokens)
        clock.loss(tokens / 10)
    found = clock.result(1)
    assert len(found["seconds"]) == 2
    assert found["tokens"] == [20, 30]
    assert found["losses"] == [1.0, 2.0, 3.0, 4.0]
    assert "gpu_bytes" not in found or torch.cuda.is_available()
    with pytest.raises(SystemExit, match=r"\b4\b.*\b3\b"):
        clock.result(3)


def test_the_peak_on_a_gpu_is_kept_though_fairseq_forgets_it(monkeypatch):
    peak = 5
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: peak)
    clock = Clock()
    clock.start(1)
    peak = 9
    clock.note_memory()
    peak = 2
    clock.start(1)
    assert clock.result(0)["gpu_bytes"] == 9


class Event:
    """As torch.profiler has them on a GPU: an operator, and the kernel that it starts."""

    count = 1
    self_cpu_time_total = 1000

    def __init__(self, key, device_type):
        self.key, self.device_type, self.self_device_time_total = key, device_type, 7000


def test_a_kernel_counts_once_in_the_profile():
    kinds = torch.autograd.DeviceType
    events = [Event("aten::mm", kinds.CPU), Event("gemm_kernel", kinds.CUDA)]
    profiler = type("Profiler", (), {"key_averages": lambda self: events})()
    assert operators(profiler, "cuda") == [{"operator": "aten::mm", "calls": 1, "ms": 7.0}]
    assert [row["operator"] for row in operators(profiler, "cpu")] == ["aten::mm"]
