"""The Transformers Trainer on the sentences of a binarized folder, with a clock at each update.

The model, the recipe (AdamW, linear schedule, dropout 0.1, no clipping) and, without --group, the
batches are those of fairseq with recipes/reference.txt.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import Trainer, TrainingArguments

from benchmarks.sentences import by_length, fairseq_batches
from benchmarks.timed.clock import Clock
from benchmarks.timed.transformers_model import add_arguments, build, pad, read
from roberta_small.common.files import atomic_write

SEED = 1


class TimedTrainer(Trainer):
    """Reports each update to a clock."""

    def __init__(self, clock: Clock, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._clock = clock
        self._losses: list[float] = []

    def training_step(self, model: nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Tensor:
        """Forward and backward pass of an update, or of one of the batches that it accumulates."""
        tokens = int(inputs["attention_mask"].sum())
        if self._losses:
            self._clock.add(tokens)
        else:
            self._clock.start(tokens)
        loss = super().training_step(model, inputs, *args, **kwargs)
        self._losses.append(float(loss))
        if len(self._losses) == self.args.gradient_accumulation_steps:
            self._clock.loss(sum(self._losses) / len(self._losses))
            self._losses = []
        return loss


def batches_of(args: argparse.Namespace, reviews: list[dict[str, Any]]) -> list[list[int]]:
    """fairseq's batches; with --group, those that are timed (see `Clock.result`) regrouped by length.

    Transformers' own grouping does the same to fifty batches at a time, and trains from long to short:
    other sentences would be timed.
    """
    batches = fairseq_batches(len(reviews), batch_size=args.batch_size, seed=SEED, updates=args.updates)
    if not args.group:
        return batches
    sizes = np.array([len(review["input_ids"]) for review in reviews])
    batches = [*batches[: args.warm_up], *by_length(batches[args.warm_up : -1], sizes, SEED), batches[-1]]
    return [sorted(batch, key=sizes.__getitem__) for batch in batches] if args.accumulate > 1 else batches


def training_arguments(args: argparse.Namespace, folder: str) -> TrainingArguments:
    """The reference recipe without saving and evaluation."""
    return TrainingArguments(
        output_dir=folder,
        max_steps=args.updates,
        per_device_train_batch_size=args.batch_size // args.accumulate,
        gradient_accumulation_steps=args.accumulate,
        train_sampling_strategy="sequential",
        learning_rate=1e-5,
        lr_scheduler_type="linear",
        warmup_steps=67,
        adam_beta2=0.98,
        weight_decay=0.01,
        max_grad_norm=0.0,
        optim="adamw_torch_fused",
        bf16=args.precision == "bf16",
        use_cpu=not torch.cuda.is_available(),
        logging_steps=25,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=SEED,
    )


def main() -> None:
    """Train and write the times."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--updates", type=int, required=True)
    parser.add_argument("--warm-up", type=int, required=True)
    parser.add_argument("--accumulate", type=int, default=1, help="batches of an update")
    parser.add_argument("--group", action="store_true", help="batches of similar length")
    args = parser.parse_args()

    reviews = read(args, "train")
    torch.manual_seed(SEED)
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        TimedTrainer(
            clock,
            model=build(args),
            args=training_arguments(args, folder),
            train_dataset=[reviews[index] for batch in batches_of(args, reviews) for index in batch],
            data_collator=pad,
        ).train()
    atomic_write(args.output, json.dumps(clock.result(args.warm_up)))


if __name__ == "__main__":
    main()
