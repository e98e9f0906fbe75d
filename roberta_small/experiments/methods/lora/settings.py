"""Settings of LoRA and their command-line options. Importing this module does not import torch."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from roberta_small.common.cli import fraction, positive, positive_number


@dataclass(frozen=True)
class LoraSettings:
    """Settings of `peft.LoraConfig`; biases are not trained."""

    rank: int
    alpha: float
    dropout: float
    target_modules: tuple[str, ...]

    def words(self) -> list[str]:
        """The settings as flags, for a manifest."""
        return [
            *("--rank", str(self.rank)),
            *("--alpha", f"{self.alpha:g}"),
            *("--dropout", f"{self.dropout:g}"),
            *("--target-modules", *self.target_modules),
        ]


CLASSIFIER = LoraSettings(rank=8, alpha=16, dropout=0.1, target_modules=("query", "value"))
"""Defaults of the method `lora`; the target modules are those of the paper (section 4.2)."""


def add_lora(parser: argparse.ArgumentParser, defaults: LoraSettings) -> None:
    """Add the options of LoRA."""
    group = parser.add_argument_group("LoRA")
    group.add_argument(
        "--rank",
        type=positive,
        default=defaults.rank,
        metavar="R",
        help="rank r of the adapters (%(default)s)",
    )
    group.add_argument(
        "--alpha",
        type=positive_number,
        default=defaults.alpha,
        help="scaling: the update is multiplied by ALPHA / R (%(default)s)",
    )
    group.add_argument(
        "--dropout",
        type=fraction,
        default=defaults.dropout,
        help="dropout on the adapter input (%(default)s)",
    )
    group.add_argument(
        "--target-modules", nargs="+", default=list(defaults.target_modules), metavar="NAME",
        help=f"linear layers that get an adapter ({' '.join(defaults.target_modules)})",
    )  # fmt: skip


def lora_settings(args: argparse.Namespace) -> LoraSettings:
    """The settings from the options of `add_lora`."""
    return LoraSettings(args.rank, args.alpha, args.dropout, tuple(args.target_modules))
