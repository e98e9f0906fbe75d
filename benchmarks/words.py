"""The words of fairseq-train for the same recipe: with our plugin, and for stock fairseq."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from experiments import recipes
from experiments.inputs import count_classes
from experiments.methods.fairseq import PLUGIN, environment

from .settings import Settings

OURS_ONLY = (
    "--precision", "--encoder", "--keep-eos", "--bag-of-words", "--batch-size-valid", "--max-tokens-valid",
)  # fmt: skip
"""Flags of our recipes that stock fairseq does not have, or could only lose by: it validates unsorted."""
STOCK = {
    "sentence_classification": {"--task": "sentence_prediction", "--criterion": "sentence_prediction"},
    "masked_lm": {"--criterion": "masked_lm"},
}
"""Our task -> what stock fairseq calls it."""
NOTHING_BUT_UPDATES = {"--disable-validation": "", "--no-save": ""}
Builder = Callable[[Settings, str, Path, Mapping[str, str]], list[str]]
"""`ours` or `stock`."""
SAME_VARIABLES = ", our variables"
"""The control, in a contender's name: how much of the difference our environment variables make."""
TRUST = {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}
"""Without it, stock fairseq cannot read its own checkpoints with torch 2.6 or later."""


def ours(settings: Settings, recipe: str, data: Path, changes: Mapping[str, str]) -> list[str]:
    """A recipe with some flags changed (an empty value: a flag that takes none)."""
    flags = _flags(recipe) | settings.sizes.flags() | _common(settings) | dict(changes)
    return [str(data), "--user-dir", str(PLUGIN), *_flatten(flags)]


def stock(settings: Settings, recipe: str, data: Path, changes: Mapping[str, str]) -> list[str]:
    """The same for fairseq without our plugin: its task, RoBERTa in the same sizes, its Adam."""
    flags = {flag: value for flag, value in _flags(recipe).items() if flag not in OURS_ONLY}
    flags |= STOCK[flags["--task"]] | {"--arch": "roberta", "--optimizer": "adam"}
    flags |= settings.sizes.flags() | _common(settings) | dict(changes)
    return [str(data), *_flatten(flags)]


def classes(settings: Settings) -> int:
    """Of the classification folder."""
    return count_classes(settings.data / "label" / "dict.txt")


def dictionary(settings: Settings) -> Path:
    """Of the classification folder's sentences."""
    return settings.data / "input0" / "dict.txt"


def masked_share() -> float:
    """Of the tokens in pre-training."""
    return float(recipes.load("pretrain").value("--mask-prob"))


def vocabulary(dictionary: Path) -> int:
    """Types of a dictionary with fairseq's four special symbols and `<mask>`."""
    with open(dictionary, encoding="utf-8") as lines:
        pieces = [line.rsplit(" ", 1)[0] for line in lines]
    return 4 + len(pieces) + ("<mask>" not in pieces)


def tuned(settings: Settings) -> dict[str, str]:
    """The environment that our sweep gives its trainers."""
    return environment(settings.machine.threads)


def _flags(recipe: str) -> dict[str, str]:
    groups = recipes.load(recipe).flags
    return {flag: " ".join(values) for flag, (_, *values) in groups.items()}


def _common(settings: Settings) -> dict[str, str]:
    """What is the same for all: seed, log, device."""
    log = {"--seed": "1", "--log-format": "json", "--log-interval": "25"}
    return log | ({"--cpu": ""} if settings.machine.cpu else {})


def _flatten(flags: Mapping[str, str]) -> list[str]:
    return [word for flag, value in flags.items() for word in ((flag, value) if value else (flag,))]
