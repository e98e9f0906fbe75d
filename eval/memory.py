"""Constant memory over any number of texts.

By default, memory grows with the number of different batch shapes: PyTorch and oneDNN each keep the matrix
products that they have compiled, and glibc keeps free blocks between those in use.
"""

from __future__ import annotations

import contextlib
import ctypes
import os

CACHES = ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY")
"""PyTorch's cache (pytorch#27971) and oneDNN's ("Primitive Cache" in its guide). A product leaves memory only
after it has left both."""
CAPACITY = "64"
"""Enough for the layers of a batch. The default of both, 1024, needs 250 MB for shapes that rarely return."""


def limit_kernels() -> None:
    """Let both caches keep few products unless the user set a number; call it before the first product."""
    for cache in CACHES:
        os.environ.setdefault(cache, CAPACITY)


def return_free_memory() -> None:
    """Return free memory to the operating system (malloc_trim(3)); without effect where glibc is not used."""
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
