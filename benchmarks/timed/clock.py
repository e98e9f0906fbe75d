"""Times of updates, from the start of one to the start of the next; everything in between is included."""

from __future__ import annotations

import time
from typing import Any

import torch


class Clock:
    """Records the start of each update, its number of real tokens and its loss."""

    def __init__(self) -> None:
        self._starts: list[float] = []
        self._tokens: list[int] = []
        self._losses: list[float] = []
        self._gpu_bytes = 0

    def start(self, tokens: int) -> None:
        """An update of `tokens` tokens starts; waits until a GPU has finished its work."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
            self.note_memory()
        self._starts.append(time.perf_counter())
        self._tokens.append(tokens)

    def add(self, tokens: int) -> None:
        """A further part of the update that started last, with gradient accumulation."""
        self._tokens[-1] += tokens

    def note_memory(self) -> None:
        """Record the peak memory of the GPU; call it before the peak is reset."""
        self._gpu_bytes = max(self._gpu_bytes, torch.cuda.max_memory_allocated())

    def loss(self, value: float) -> None:
        """The loss of the update that started last."""
        self._losses.append(value)

    def result(self, warm_up: int) -> dict[str, Any]:
        """Seconds and tokens of each update after the first `warm_up`; the last one has no end.

        Loading data and logging are part of them. The losses are those of all updates; on a GPU `gpu_bytes`
        is the peak memory of tensors.
        """
        pairs = zip(self._starts, self._starts[1:], strict=False)
        seconds = [after - before for before, after in pairs][warm_up:]
        if not seconds:
            raise SystemExit(
                f"error: {len(self._starts)} updates, of which {warm_up} are warm-up and the last has no end"
            )
        record = {"seconds": seconds, "tokens": self._tokens[warm_up:-1], "losses": self._losses}
        return record | ({"gpu_bytes": self._gpu_bytes} if torch.cuda.is_available() else {})
