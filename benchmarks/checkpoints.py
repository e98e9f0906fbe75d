"""A checkpoint of each trainer to start from: one update old, which changes nothing about the speed."""

from __future__ import annotations

import functools
from pathlib import Path

from . import words
from .measure import Contender, execute, python, say
from .settings import Settings


@functools.cache
def stock(settings: Settings) -> Path:
    """Made by stock fairseq."""
    return _make(settings, "stock", words.stock)


@functools.cache
def ours(settings: Settings) -> Path:
    """Made by fairseq with our plugin."""
    return _make(settings, "ours", words.ours)


def _make(settings: Settings, who: str, build: words.Builder) -> Path:
    folder = settings.scratch / "checkpoints" / who
    flags = build(
        settings,
        "reference",
        settings.data,
        {
            "--num-classes": str(words.classes(settings)),
            "--max-update": "1",
            "--disable-validation": "",
            "--save-dir": str(folder),
        },
    )
    say(f"preparing: a checkpoint ({who})")
    contender = Contender(f"checkpoint, {who}", python("fairseq_cli.train", *flags), words.tuned(settings))
    execute(contender, settings, settings.output / "logs" / f"checkpoint-{who}.txt")
    return folder / "checkpoint_last.pt"
