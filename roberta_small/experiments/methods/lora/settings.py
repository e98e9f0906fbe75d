"""Settings of LoRA and their command-line options. Importing this module does not import torch."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields
from typing import Self

from roberta_small.common.cli import fraction, positive, positive_number

BASE, ADAPTER, MERGED = "base", "adapter", "merged"
"""Folders of a run: the initial weights, the trained adapter, and a model without adapters."""
RESULTS = "results.json"
"""What a run of `lora-causal` writes beside them."""


@dataclass(frozen=True)
class LoraSettings:
    """Settings of `peft.LoraConfig`; biases are not trained. The fields are the options of the same names."""

    rank: int
    alpha: float
    dropout: float
    target_modules: tuple[str, ...]

    @classmethod
    def of(cls, options: argparse.Namespace) -> Self:
        """The settings from parsed options."""
        values = {field.name: getattr(options, field.name) for field in fields(cls)}
        return cls(**values | {"target_modules": tuple(values["target_modules"])})

    def words(self) -> list[str]:
        """The settings as options, for a manifest and for the process of a run."""
        words = []
        for name, value in vars(self).items():
            if value is False:
                continue
            words.append(f"--{name.replace('_', '-')}")
            if value is not True:
                values = value if isinstance(value, tuple) else (value,)
                words += [f"{each:g}" if isinstance(each, float) else str(each) for each in values]
        return words


@dataclass(frozen=True)
class Hyperparameters(LoraSettings):
    """What determines a run of `lora-causal`, with its data, base and seed."""

    steps: int
    batch_size: int
    lr: float
    max_length: int
    answer_only: bool
    precision: str


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
