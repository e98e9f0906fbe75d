"""Classify the test sentences of a binarized folder with Transformers' RoBERTa, with a clock around it.

The weights are random, which changes nothing about the time. The sentences are ids already: this is
what `pipeline("text-classification")` does after its tokenizer, without the pipeline's own overhead.
The batch size is the one that is fastest on the first sentences.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from typing import Any

import torch

from benchmarks.timed.transformers_model import add_arguments, build, pad, read
from roberta_small.common.files import atomic_write

BATCH_SIZES = (1, 8, 32)
TRIAL = 200
"""Number of sentences with which each batch size is tried."""


@torch.inference_mode()
def classify(
    model: torch.nn.Module, reviews: Sequence[dict[str, Any]], batch_size: int, args: argparse.Namespace
) -> float:
    """Seconds to classify the reviews, sorting included."""
    start = time.perf_counter()
    if args.sort:
        reviews = sorted(reviews, key=lambda review: -len(review["input_ids"]))
    device = next(model.parameters()).device
    classes = []
    for first in range(0, len(reviews), batch_size):
        batch = pad(reviews[first : first + batch_size])
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=args.precision == "bf16"):
            logits = model(batch["input_ids"].to(device), batch["attention_mask"].to(device)).logits
        classes.append(logits.argmax(-1).cpu())
    torch.cat(classes)
    return time.perf_counter() - start


def main() -> None:
    """Choose the batch size, classify all, write the time."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    parser.add_argument("--sort", action="store_true", help="sort by length, the longest first")
    args = parser.parse_args()
    model = build(args).eval().to("cuda" if torch.cuda.is_available() else "cpu")
    reviews = read(args, "test")
    classify(model, reviews[:TRIAL], BATCH_SIZES[0], args)  # warm-up
    trials = {size: classify(model, reviews[:TRIAL], size, args) for size in BATCH_SIZES}
    best = min(trials, key=trials.__getitem__)
    seconds = classify(model, reviews, best, args)
    atomic_write(args.output, json.dumps({"seconds": [seconds], "batch_size": best, "trials": trials}))


if __name__ == "__main__":
    main()
