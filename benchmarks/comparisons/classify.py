"""Classifying the test sentences with a trained model: fairseq-validate, our eval, Transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import command_line
from benchmarks.comparisons.finetune import transformers_arguments
from benchmarks.measure import RESULT, Contender, compare, python
from benchmarks.sentences import read_sizes
from benchmarks.settings import Settings

STOCK_BATCH_SIZES = (1, 8, 32)
OURS = {"ours": "auto", "ours, fp32": "fp32"}
TRANSFORMERS = {
    "Transformers, fp32": ("--precision", "fp32"),
    "Transformers, fp32, sorted": ("--precision", "fp32", "--sort"),
    "Transformers, bf16, sorted": ("--precision", "bf16", "--sort"),
}


def run(settings: Settings) -> dict[str, Any]:
    """Seconds after the model is loaded; `wall` is that of the whole process."""
    count = len(read_sizes(settings.data / "input0" / "test"))
    layers, embed = settings.sizes.layers, settings.sizes.embed
    return compare(
        "classify" if not settings.best_only else f"classify-{layers}x{embed}",
        f"Classifying {count:,} sentences",
        contenders(settings),
        settings,
        sentences=count,
        about=(
            "after the model is loaded; Transformers: random weights of the same sizes, ids instead of a "
            "tokenizer and a pipeline, the fastest of batches of 1, 8 and 32 (whose choice is part of the "
            "whole process); stock fairseq reads its checkpoint with torch's weights_only switched off"
        ),
    )


def contenders(settings: Settings) -> list[Contender]:
    """fairseq-validate, our eval and Transformers, each with its own batch sizes.

    With `best_only`, Transformers in bf16, sorted and with our environment, and our defaults.
    """
    tuned = command_line.tuned(settings)
    best, flags = list(TRANSFORMERS.items())[-1]
    fastest = Contender(
        f"{best}{command_line.SAME_VARIABLES}",
        _transformers(settings, flags),
        tuned,
        needs="transformers",
        quick=True,
    )
    if settings.best_only:
        return [fastest, _ours(settings, "ours", tuned)]
    path = command_line.stock_checkpoint(settings)
    found = [
        Contender(
            f"stock fairseq, fp32, batches of {size}",
            _validate(settings, path, size),
            command_line.TRUST,
            quick=size == min(STOCK_BATCH_SIZES),  # the least padding
        )
        for size in STOCK_BATCH_SIZES
    ]
    found += [_ours(settings, name, tuned) for name in OURS]
    for name, flags in TRANSFORMERS.items():
        found.append(Contender(name, _transformers(settings, flags), needs="transformers"))
    return [*found, fastest]


def _ours(settings: Settings, name: str, tuned: dict[str, str]) -> Contender:
    """One of `OURS`."""
    path = command_line.our_checkpoint(settings)
    command = python("benchmarks.timed.eval_classify", RESULT, path, settings.data, OURS[name])
    return Contender(name, command, tuned, ours=True, quick=name == "ours")


def _transformers(settings: Settings, flags: tuple[str, ...]) -> tuple[str, ...]:
    arguments = transformers_arguments(settings)
    return python("benchmarks.timed.transformers_classify", RESULT, *arguments, *flags)


def _validate(settings: Settings, path: Path, batch_size: int) -> tuple[str, ...]:
    flags = [str(settings.data), "--path", str(path), "--valid-subset", "test"]
    flags += ["--batch-size", str(batch_size), "--log-format", "json", "--log-interval", "1000"]
    flags += ["--task", "sentence_prediction", "--criterion", "sentence_prediction"]
    return python(
        "benchmarks.timed.fairseq_validate", RESULT, *flags, *(["--cpu"] if settings.machine.cpu else [])
    )
