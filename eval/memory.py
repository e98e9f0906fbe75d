"""Constant memory over any number of texts.

By default, memory grows with the number of batches of different shapes: oneDNN keeps compiled kernels, and
glibc keeps free blocks between those in use.
"""

from __future__ import annotations

import contextlib
import ctypes
import os

PRIMITIVES = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
KEPT_PRIMITIVES = "64"
"""Enough for the layers of a batch. oneDNN's default, 1024, needs 200 MB for shapes that rarely return."""


def limit_kernels() -> None:
    """Let oneDNN keep few kernels, unless the user has set a number; before its first operation."""
    os.environ.setdefault(PRIMITIVES, KEPT_PRIMITIVES)


def return_free_memory() -> None:
    """Return free memory to the operating system (malloc_trim(3)); without effect where glibc is not used."""
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
