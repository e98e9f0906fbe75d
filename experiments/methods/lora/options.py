"""Options that the LoRA commands share, so that they mean the same everywhere."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from common.cli import positive

if TYPE_CHECKING:
    from .adapters import LoraSettings
from common.cli import fraction, positive_number


def add_lora(
    parser: argparse.ArgumentParser, *, rank: int, alpha: float, dropout: float, targets: Sequence[str]
) -> None:
    """The flags of LoRA with the defaults of a command."""
    group = parser.add_argument_group("LoRA")
    group.add_argument("--rank", type=positive, default=rank, metavar="R", help="r (%(default)s)")
    group.add_argument(
        "--alpha",
        type=positive_number,
        default=alpha,
        help="the addition counts ALPHA / R times (%(default)s)",
    )
    group.add_argument("--dropout", type=fraction, default=dropout, help="before A (%(default)s)")
    group.add_argument(
        "--target-modules", nargs="+", default=list(targets), metavar="NAME",
        help=f"linear maps that get an addition ({' '.join(targets)})",
    )  # fmt: skip


def lora_settings(args: argparse.Namespace) -> LoraSettings:
    """What the flags of `add_lora` say."""
    from .adapters import LoraSettings

    return LoraSettings(args.rank, args.alpha, args.dropout, tuple(args.target_modules))
