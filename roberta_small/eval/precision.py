"""The precision of the matrix products of a network, and why it was chosen."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass

from roberta_small.common.errors import UserError
from roberta_small.eval.origin import RunCheckpoint

AUTO, FP32, BF16, INT8 = PRECISIONS = ("auto", "fp32", "bf16", "int8")
"""The values of --precision."""
REQUESTED, RECORDED, UNKNOWN = "as requested", "as in training", "because the checkpoint records none"
ON_CPU = "on a CPU, because a GPU trained in bf16"
HINT = "use --precision fp32 for figures to publish"


@dataclass(frozen=True)
class Precision:
    """The precision of the matrix products of a network, and why it was chosen.

    What `--precision auto` resolves to is measured by the trainer once per run. It is not measured again:
    timings vary, and the same command would give other probabilities.
    """

    value: str
    """`fp32`, `bf16` or `int8`."""
    reason: str

    def __str__(self) -> str:
        hint = f"; {HINT}" if self.value == BF16 and self.reason != REQUESTED else ""
        return f"{self.value}, {self.reason}{hint}"


def choose_precision(requested: str | None, run: RunCheckpoint, recorded: str | None) -> Precision:
    """The requested precision; for None or `auto`, that of the run's manifest, else `recorded`, else fp32.

    `recorded` is what the checkpoint records. Raises `UserError` for an unknown name.
    """
    if requested not in (None, *PRECISIONS):
        raise UserError(f"precision '{requested}': choose one of {', '.join(PRECISIONS)}")
    if requested in (FP32, BF16, INT8):
        return Precision(requested, REQUESTED)
    for value in ((run.manifest or {}).get("precision"), recorded):
        if value in (FP32, BF16):
            return Precision(value, RECORDED)
    return Precision(FP32, UNKNOWN)


def print_precisions(precisions: Iterable[Precision | None]) -> None:
    """Print each different precision once on standard error."""
    for precision in dict.fromkeys(precisions):
        if precision is not None:
            print(f"precision: {precision}", file=sys.stderr)
