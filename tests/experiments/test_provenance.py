import ctypes
import subprocess
from types import SimpleNamespace

import pytest
import torch

from roberta_small.common.errors import UserError
from roberta_small.common.files import ROOT
from roberta_small.experiments import provenance
from roberta_small.experiments.provenance import Gpu


def test_threads_per_run(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(provenance, "usable_cores", lambda: 8)
    assert provenance.machine("cpu", jobs=3, runs=6) == provenance.Machine((), threads=2, slots=3)
    assert provenance.machine("cpu", jobs=16, runs=16).threads == 1
    assert provenance.machine("cpu", jobs=16, runs=2) == provenance.Machine((), threads=4, slots=2)
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert provenance.machine("cpu", jobs=3, runs=6).threads == 5


@pytest.mark.parametrize(
    ("cores", "gigabytes", "threads", "runs", "slots"),
    [(2, 24, "", 6, 2), (2, 24, "2", 6, 1), (64, 24, "", 6, 6), (64, 10, "", 6, 3), (1, 1, "", 6, 1)],
    ids=["one per core", "OMP_NUM_THREADS", "at most the runs", "limited by memory", "at least one"],
)
def test_concurrent_runs_follow_from_the_machine(monkeypatch, cores, gigabytes, threads, runs, slots):
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    monkeypatch.setattr(provenance, "usable_cores", lambda: cores)
    monkeypatch.setattr(provenance, "_memory_bytes", lambda: gigabytes << 30)
    assert provenance.machine("cpu", jobs=None, runs=runs).slots == slots


@pytest.mark.parametrize(
    ("gigabytes", "cores", "processes", "slots"),
    [(80, 16, 1, 8), (17, 16, 1, 4), (6, 16, 1, 2), (80, 5, 1, 5), (80, 1, 1, 2), (80, 16, 2, 1)],
    ids=["several per GPU", "its memory", "little memory", "cores", "one core", "processes"],
)
def test_small_runs_share_a_gpu(monkeypatch, gigabytes, cores, processes, slots):
    monkeypatch.setattr(provenance, "_gpus", lambda: (Gpu("A", gigabytes << 30), Gpu("B", gigabytes << 30)))
    monkeypatch.setattr(provenance, "usable_cores", lambda: cores)
    monkeypatch.setattr(provenance, "_memory_bytes", lambda: 128 << 30)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert provenance.machine("auto", jobs=None, runs=9, processes=processes).slots == slots
    assert provenance.machine("auto", jobs=4, runs=6).slots == 4


@pytest.mark.parametrize(("gigabytes_of_weights", "cpu", "gpu"), [(0.1, 6, 4), (1, 2, 4), (4, 1, 2)])
def test_runs_of_large_models_need_more_memory(monkeypatch, gigabytes_of_weights, cpu, gpu):
    monkeypatch.setattr(provenance, "_gpus", lambda: (Gpu("A", 80 << 30),))
    monkeypatch.setattr(provenance, "usable_cores", lambda: 16)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    for device, memory, slots in (("cpu", 24, cpu), ("cuda", 128, gpu)):
        monkeypatch.setattr(provenance, "_memory_bytes", lambda memory=memory: memory << 30)
        weights = int(gigabytes_of_weights * (1 << 30))
        assert provenance.machine(device, jobs=None, runs=6, checkpoint_bytes=weights).slots == slots


def test_a_gpu_in_exclusive_mode_has_one_run(monkeypatch):
    monkeypatch.setattr(provenance, "_gpus", lambda: (Gpu("A", 80 << 30, exclusive=True),) * 2)
    monkeypatch.setattr(provenance, "usable_cores", lambda: 16)
    monkeypatch.setattr(provenance, "_memory_bytes", lambda: 128 << 30)
    assert provenance.machine("auto", jobs=None, runs=6).slots == 2
    assert provenance.machine("auto", jobs=4, runs=6).slots == 4  # with CUDA's MPS, they can share it


@pytest.mark.parametrize("library", [True, False], ids=["NVIDIA", "AMD"])
def test_the_probe_prints_a_line_for_each_gpu(monkeypatch, capsys, library):
    class Driver:
        def cuDeviceGetAttribute(self, value, attribute, device):  # noqa: N802  the driver's name
            value._obj.value = {0: 0, 1: 3}[device] if attribute == 20 else 9

    def load(name):
        if name != "libcuda.so.1" or not library:
            raise OSError(name)
        return Driver()

    monkeypatch.setattr(ctypes, "CDLL", load)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda number: (7 + number, 99))
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda number: SimpleNamespace(name=f"NVIDIA H{number}")
    )
    exec(provenance.PROBE, {})
    printed = capsys.readouterr().out
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setattr(
        subprocess, "run", lambda *words, **options: SimpleNamespace(returncode=0, stdout=printed)
    )
    assert provenance._gpus() == (Gpu("NVIDIA H0", 7), Gpu("NVIDIA H1", 8, exclusive=library))


def test_a_gpu_that_cannot_be_used_is_an_error(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr(provenance, "PROBE", "raise RuntimeError('devices are busy\\nCompile with DSA.')")
    with pytest.raises(UserError, match=r"GPU cannot be used: RuntimeError: devices are busy.*--device cpu"):
        provenance.machine("auto")
    assert provenance.machine("cpu").cpu


def test_each_run_gets_one_gpu(monkeypatch):
    assert provenance.machine("cpu").visible_gpu(0) == ""
    machine = provenance.Machine(("A", "B"), threads=1)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [machine.visible_gpu(slot) for slot in range(3)] == ["0", "1", "0"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    assert [machine.visible_gpu(slot) for slot in range(3)] == ["3", "5", "3"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a GPU")
def test_device_cuda_without_a_gpu_raises():
    with pytest.raises(UserError, match="--device cuda"):
        provenance.machine("cuda")


@pytest.mark.parametrize(
    ("cpuinfo", "name"),
    [
        (
            "processor\t: 0\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\n",
            "AMD EPYC (family 25, model 17)",
        ),
        ("processor\t: 0\nmodel name\t: ARMv8\n", "ARMv8"),
    ],
)
def test_processors_of_the_same_name_are_distinguished(tmp_path, monkeypatch, cpuinfo, name):
    monkeypatch.setattr(provenance, "CPUINFO", tmp_path / "cpuinfo")
    (tmp_path / "cpuinfo").write_text(cpuinfo)
    static = provenance.static(provenance.Machine((), threads=2), ["torch", "no-such-package"])
    hardware = static["hardware"]
    assert (hardware["cpu"], hardware["threads"], hardware["gpu"]) == (name, 2, None)
    # The metadata of PyPI's package lack the build suffix: 2.13.0 for 2.13.0+cu130.
    assert static["packages"]["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
    assert set(static["packages"]) == {"python", "torch"}


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a clone")
def test_git_commit(monkeypatch, tmp_path):
    head = subprocess.run(
        ["git", "-C", ROOT, "log", "-1", "--format=%H"], capture_output=True, text=True
    ).stdout.strip()
    assert provenance.static(provenance.Machine((), 1), [])["git_commit"] == head
    monkeypatch.setattr(provenance, "ROOT", tmp_path)  # no clone
    assert provenance.static(provenance.Machine((), 1), [])["git_commit"] is None


def test_processes_of_a_run_share_threads_and_gpus(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(provenance, "usable_cores", lambda: 8)
    assert provenance.machine("cpu", processes=4).threads == 2
    monkeypatch.setattr(provenance, "_gpus", lambda: (Gpu("A", 1), Gpu("B", 1), Gpu("C", 1)))
    assert provenance.machine("auto", processes=2).visible_gpu(0) == "0,1"
    with pytest.raises(UserError, match=r"--processes 4: .*3 GPU"):
        provenance.machine("auto", processes=4)
