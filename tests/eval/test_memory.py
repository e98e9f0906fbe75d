"""Memory does not grow with the number of texts."""

import os
import platform
from pathlib import Path

import pytest

from eval.memory import KEPT_PRIMITIVES, PRIMITIVES, limit_kernels, return_free_memory


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


def test_the_number_of_kernels_is_limited_unless_the_user_has_set_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PRIMITIVES, raising=False)
    limit_kernels()
    assert os.environ[PRIMITIVES] == KEPT_PRIMITIVES
    monkeypatch.setenv(PRIMITIVES, "512")
    limit_kernels()
    assert os.environ[PRIMITIVES] == "512"
