"""Settings of LoRA and their command-line options. Importing this module does not import torch."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from roberta_small.common.cli import fraction, positive, positive_number

BASE, ADAPTER, MERGED = "base", "adapter", "merged"
"""Folders of a run: the initial weights, the trained adapter, and a model without adapters."""
RESULTS = "results.json"
"""What a run of `lora-causal` writes beside them."""


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
CAUSAL = LoraSettings(rank=16, alpha=32, dropout=0.05, target_modules=("query_key_value",))
"""Defaults of `lora-causal`."""


def add_lora(parser: argparse.ArgumentParser, defaults: LoraSettings) -> None:
    """Add the options of LoRA."""
    add = parser.add_argument_group("LoRA").add_argument
    add(
        "--rank", type=positive, default=defaults.rank, metavar="R",
        help="rank r of the adapters (%(default)s)",
    )  # fmt: skip
    add(
        "--alpha", type=positive_number, default=defaults.alpha,
        help="scaling: the update is multiplied by ALPHA / R (%(default)s)",
    )  # fmt: skip
    add(
        "--dropout", type=fraction, default=defaults.dropout,
        help="dropout on the adapter input (%(default)s)",
    )  # fmt: skip
    add(
        "--target-modules", nargs="+", default=list(defaults.target_modules), metavar="NAME",
        help=f"linear layers that get an adapter ({' '.join(defaults.target_modules)})",
    )  # fmt: skip


def lora_settings(args: argparse.Namespace) -> LoraSettings:
    """The settings from the options of `add_lora`."""
    return LoraSettings(args.rank, args.alpha, args.dropout, tuple(args.target_modules))


@dataclass(frozen=True, kw_only=True)
class Hyperparameters:
    """What determines a run of `lora-causal`, with its data, base and seed; the options of the same names."""

    lora: LoraSettings
    steps: int
    batch_size: int
    lr: float
    max_length: int
    answer_only: bool
    precision: str

    def words(self) -> list[str]:
        """The options of `add_hyperparameters`."""
        return [
            *self.lora.words(),
            *("--steps", str(self.steps), "--batch-size", str(self.batch_size), "--lr", f"{self.lr:g}"),
            *("--max-length", str(self.max_length), *(["--answer-only"] if self.answer_only else [])),
            *("--precision", self.precision),
        ]


def add_hyperparameters(parser: argparse.ArgumentParser) -> None:
    """Add the options of `Hyperparameters`."""
    add_lora(parser, CAUSAL)
    add = parser.add_argument_group("training (defaults: those of the published reports)").add_argument
    add("--steps", type=positive, default=80, help="updates (%(default)s)")
    add("--batch-size", type=positive, default=1, help="pairs in a batch; 4 batches per update (%(default)s)")
    add("--lr", type=positive_number, default=2e-4, help="learning rate, cosine decay to 0 (%(default)s)")
    add(
        "--max-length", type=positive, default=512,
        help="maximum number of tokens per question-answer pair (%(default)s)",
    )  # fmt: skip
    add("--answer-only", action="store_true", help="compute the loss only on the answers")
    add(
        "--precision", choices=("auto", "fp32", "bf16", "4bit"), default="auto",
        help="precision of the base model (auto: on a GPU 4 bits with bitsandbytes, else bf16; on a CPU "
        "fp32)",
    )  # fmt: skip


def hyperparameters(options: argparse.Namespace) -> Hyperparameters:
    """The values of `add_hyperparameters`."""
    names = ("steps", "batch_size", "lr", "max_length", "answer_only", "precision")
    return Hyperparameters(lora=lora_settings(options), **{name: getattr(options, name) for name in names})
