"""Sizes that depend on the device: what a CPU computes at a time fits into its caches, a GPU needs more work.

Those of a GPU are estimates: nothing has been measured on one.
"""

from __future__ import annotations

from dataclasses import dataclass


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
