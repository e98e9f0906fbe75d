"""The precision of matrix products: the one requested, or the one that training recorded.

What `--precision auto` resolves to is measured by the trainer once per run. It is not measured again here:
timings vary, and the same command would give other probabilities.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roberta_small.common.errors import UserError
from roberta_small.eval.loading.runs import RunCheckpoint
from roberta_small.fairseq_plugin.training.curves import PRECISION_KEY
from roberta_small.fairseq_plugin.training.precision import CHOICES

AUTO, FP32, BF16 = "auto", "fp32", "bf16"
REQUESTED, RECORDED, UNKNOWN = "as requested", "as in training", "because the checkpoint records none"
HINT = "use --precision fp32 for figures to publish"


@dataclass(frozen=True)
class Precision:
    """The precision of a network and why it was chosen."""

    value: str
    """`fp32` or `bf16`."""
    reason: str

    def __str__(self) -> str:
        hint = f"; {HINT}" if self.value == BF16 and self.reason != REQUESTED else ""
        return f"{self.value}, {self.reason}{hint}"


DEFAULT = Precision(FP32, REQUESTED)


def choose_precision(requested: str | None, run: RunCheckpoint, recorded: str | None) -> Precision:
    """The requested precision; for None or `auto`, that of the run's manifest, else `recorded`, else fp32.

    `recorded` is what the checkpoint records (`recorded_precision`). Raises `UserError` for an unknown name.
    """
    if requested not in (None, *CHOICES):
        raise UserError(f"precision '{requested}': choose one of {', '.join(CHOICES)}")
    if requested in (FP32, BF16):
        return Precision(requested, REQUESTED)
    for value in ((run.manifest or {}).get("precision"), recorded):
        if value in (FP32, BF16):
            return Precision(value, RECORDED)
    return Precision(FP32, UNKNOWN)


def recorded_precision(arguments: argparse.Namespace, state: Mapping[str, Any]) -> str | None:
    """The precision that a checkpoint records, or None.

    `arguments` are those of the model, `state` is the whole checkpoint: if training chose the precision,
    `extra_state` has it by device type, the latest device last.
    """
    if (value := getattr(arguments, "precision", None)) in (FP32, BF16):
        return value
    found = (state.get("extra_state") or {}).get(PRECISION_KEY)
    values = list(found.values()) if isinstance(found, dict) else []
    return values[-1] if values and values[-1] in (FP32, BF16) else None


class PrecisionMessages:
    """Prints the precision of networks on standard error, each different one once."""

    def __init__(self) -> None:
        self._printed: set[Precision] = set()

    def show(self, *precisions: Precision) -> None:
        """Print the precisions that were not printed before."""
        for precision in precisions:
            if precision not in self._printed:
                self._printed.add(precision)
                print(f"precision: {precision}", file=sys.stderr)
