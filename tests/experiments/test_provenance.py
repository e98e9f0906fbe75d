import ctypes
import subprocess
from types import SimpleNamespace

import pytest
import torch

from roberta_small.common.errors import UserError
from roberta_small.common.files import ROOT
from roberta_small.experiments import provenance
from roberta_small.experiments.provenance import Gpu


@pytest.fixture
def pretend(monkeypatch):
    """Set what the machine has: cores, memory in GB, GPUs and OMP_NUM_THREADS."""

    def change(cores, memory, gpus=(), threads=""):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        monkeypatch.setattr(provenance, "usable_cores", lambda: cores)
        monkeypatch.setattr(provenance, "_memory_bytes", lambda: memory << 30)
        monkeypatch.setattr(provenance, "_gpus", lambda: tuple(gpus))

    return change


def test_threads_per_run(pretend):
    pretend(8, 128)
    assert provenance.machine("cpu", jobs=3, runs=6) == provenance.Machine((), threads=2, slots=3)
    assert provenance.machine("cpu", jobs=16, runs=16).threads == 1
    assert provenance.machine("cpu", jobs=16, runs=2) == provenance.Machine((), threads=4, slots=2)
    assert provenance.machine("cpu", processes=4).threads == 2
    pretend(8, 128, threads="5")
    assert provenance.machine("cpu", jobs=3, runs=6).threads == 5


@pytest.mark.parametrize(
    ("cores", "memory", "threads", "weights", "slots"),
    [
        (2, 24, "", 0, 2),  # one per core
        (2, 24, "2", 0, 1),
        (64, 24, "", 0, 6),  # at most the runs
        (64, 10, "", 0, 3),  # limited by memory
        (1, 1, "", 0, 1),  # at least one
        (16, 24, "", 1, 2),  # large models
        (16, 24, "", 4, 1),
    ],
)
def test_concurrent_runs_follow_from_the_machine(pretend, cores, memory, threads, weights, slots):
    pretend(cores, memory, threads=threads)
    found = provenance.machine("cpu", jobs=None, runs=6, checkpoint_bytes=weights << 30)
    assert found.slots == slots


@pytest.mark.parametrize(
    ("memory", "exclusive", "cores", "processes", "weights", "slots"),
    [
        (80, False, 16, 1, 0, 8),  # several per GPU
        (17, False, 16, 1, 0, 4),
        (6, False, 16, 1, 0, 2),  # little memory
        (80, False, 5, 1, 0, 5),
        (80, False, 1, 1, 0, 2),
        (80, False, 16, 2, 0, 1),  # a run on both GPUs
        (80, False, 16, 1, 4, 3),  # large models
        (80, True, 16, 1, 0, 2),
    ],
)
def test_small_runs_share_a_gpu(pretend, memory, exclusive, cores, processes, weights, slots):
    pretend(cores, 128, [Gpu("A", memory << 30, exclusive=exclusive)] * 2)
    words = {"processes": processes, "checkpoint_bytes": weights << 30}
    assert provenance.machine("auto", jobs=None, runs=9, **words).slots == slots
    assert provenance.machine("auto", jobs=4, runs=6).slots == 4  # in exclusive mode, with CUDA's MPS


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


def test_each_run_gets_a_gpu_for_each_of_its_processes(pretend, monkeypatch):
    pretend(8, 128)
    assert provenance.machine("cpu").visible_gpu(0) == ""
    with pytest.raises(UserError, match="--device cuda"):
        provenance.machine("cuda")
    machine = provenance.Machine(("A", "B"), threads=1)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    assert [machine.visible_gpu(slot) for slot in range(3)] == ["3", "5", "3"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert [machine.visible_gpu(slot) for slot in range(3)] == ["0", "1", "0"]
    pretend(8, 128, [Gpu(name, 1) for name in "ABC"])
    assert provenance.machine("auto", processes=2).visible_gpu(0) == "0,1"
    with pytest.raises(UserError, match=r"--processes 4: .*3 GPU"):
        provenance.machine("auto", processes=4)
