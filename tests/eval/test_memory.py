"""Memory does not grow with the number of texts."""

import ctypes
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from roberta_small.eval.texts import CACHES, CAPACITY, limit_kernels, return_free_memory


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc_trim is a function of glibc")
def test_free_blocks_between_used_ones_are_returned() -> None:
    blocks = [bytes(20_000) for _ in range(5000)]
    used = blocks[::50]
    del blocks
    before = resident_bytes()
    return_free_memory()
    assert before - resident_bytes() > 50e6
    assert len(used) == 100


GROWTH = """
import ctypes, sys
import torch
from torch.nn.functional import linear
from roberta_small.eval.texts import limit_kernels

class Statistics(ctypes.Structure):
    _fields_ = [(f"field{n}", ctypes.c_size_t) for n in range(10)]

statistics = ctypes.CDLL(None).mallinfo2
statistics.restype = Statistics
if sys.argv[1] == "limited":
    limit_kernels()
used = []
with torch.inference_mode():
    weight = torch.zeros(64, 64, dtype=torch.bfloat16)
    for rows in range(1, 301):
        linear(torch.zeros(rows, 64, dtype=torch.bfloat16), weight)
        used.append(statistics().field7)
print(used[-1] - used[149])
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="a function of glibc 2.33")
@pytest.mark.skipif(not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="bf16 products without oneDNN")
def test_products_of_ever_new_shapes_need_no_more_memory() -> None:
    def growth(kernels: str) -> int:
        environment = {name: value for name, value in os.environ.items() if name not in CACHES}
        command = [sys.executable, "-c", GROWTH, kernels]
        process = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return int(process.stdout)

    assert growth("limited") < 2e6
    assert growth("unlimited") > 20e6  # otherwise limit_kernels() is no longer needed


def test_the_user_s_number_of_kernels_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHES[0], "512")
    monkeypatch.delenv(CACHES[1], raising=False)
    limit_kernels()
    assert [os.environ[cache] for cache in CACHES] == ["512", CAPACITY]
