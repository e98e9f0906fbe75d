"""Command lines of fairseq-train for the same recipe, with the plugin and without it, and checkpoints."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.measure import Contender, execute, python, say
from benchmarks.settings import Settings
from roberta_small.common.cpu import environment
from roberta_small.experiments.inputs.files import count_classes
from roberta_small.experiments.methods.fairseq import PLUGIN
from roberta_small.experiments.recipe import length as run_length
from roberta_small.experiments.recipe import recipe as recipes

OURS_ONLY = (
    "--precision", "--encoder", "--keep-eos", "--bag-of-words", "--batch-size-valid", "--max-tokens-valid",
)  # fmt: skip
"""Flags of our recipes that stock fairseq lacks or that make it slower (it validates unsorted)."""
STOCK = {
    "sentence_classification": {"--task": "sentence_prediction", "--criterion": "sentence_prediction"},
    "masked_lm": {"--criterion": "masked_lm"},
}
"""Our task -> the flags of stock fairseq for the same task."""
NOTHING_BUT_UPDATES = {"--disable-validation": "", "--no-save": ""}
Builder = Callable[[Settings, str, Path, Mapping[str, str]], list[str]]
"""`ours` or `stock`."""
SAME_VARIABLES = ", our variables"
"""Suffix of the control contender, which measures the effect of our environment variables alone."""
TRUST = {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}
"""Without it, stock fairseq cannot read its own checkpoints with torch 2.6 or later."""


def ours(settings: Settings, recipe: str, data: Path, changes: Mapping[str, str]) -> list[str]:
    """A recipe with some flags changed; an empty value stands for a flag without value."""
    flags = _flags(recipe, data) | settings.sizes.flags() | _common(settings) | dict(changes)
    return [str(data), "--user-dir", str(PLUGIN), *flatten(flags)]


def stock(settings: Settings, recipe: str, data: Path, changes: Mapping[str, str]) -> list[str]:
    """The same for fairseq without our plugin: its task, RoBERTa in the same sizes, its Adam."""
    flags = {flag: value for flag, value in _flags(recipe, data).items() if flag not in OURS_ONLY}
    flags |= STOCK[flags["--task"]] | {"--arch": "roberta", "--optimizer": "adam"}
    flags |= settings.sizes.flags() | _common(settings) | dict(changes)
    return [str(data), *flatten(flags)]


def classes(settings: Settings) -> int:
    """Number of classes of the classification folder."""
    return count_classes(settings.data / "label" / "dict.txt")


def dictionary(settings: Settings) -> Path:
    """Dictionary of the sentences in the classification folder."""
    return settings.data / "input0" / "dict.txt"


def masked_share() -> float:
    """Fraction of tokens that are masked in pre-training."""
    return float(recipes.load("pretrain").value("--mask-prob"))


def vocabulary(dictionary: Path) -> int:
    """Number of vocabulary entries, with fairseq's four special symbols and `<mask>`."""
    with open(dictionary, encoding="utf-8") as lines:
        tokens = [line.rsplit(" ", 1)[0] for line in lines]
    return 4 + len(tokens) + ("<mask>" not in tokens)


def tuned(settings: Settings) -> dict[str, str]:
    """The environment variables that `train.sh` sets for its trainers."""
    return environment(settings.machine.threads)


@functools.cache
def stock_checkpoint(settings: Settings) -> Path:
    """A checkpoint of stock fairseq after one update, which is as fast as a trained one; cached."""
    return _train_one_update(settings, "stock", stock)


@functools.cache
def our_checkpoint(settings: Settings) -> Path:
    """The same of fairseq with the plugin."""
    return _train_one_update(settings, "ours", ours)


def _train_one_update(settings: Settings, who: str, build: Builder) -> Path:
    folder = settings.scratch / "checkpoints" / who
    flags = build(
        settings,
        "reference",
        settings.data,
        {
            "--num-classes": str(classes(settings)),
            "--max-update": "1",
            "--disable-validation": "",
            "--save-dir": str(folder),
        },
    )
    say(f"preparing: a checkpoint ({who})")
    contender = Contender(f"checkpoint, {who}", python("fairseq_cli.train", *flags), tuned(settings))
    execute(contender, settings, settings.output / "logs" / f"checkpoint-{who}.txt")
    return folder / "checkpoint_last.pt"


def _flags(recipe: str, data: Path) -> dict[str, str]:
    loaded = recipes.load(recipe)
    if run_length.RATIO in loaded.flags:
        loaded = run_length.resolve(loaded, run_length.count_examples(data))
    groups = loaded.flags
    return {flag: " ".join(values) for flag, (_, *values) in groups.items()}


def _common(settings: Settings) -> dict[str, str]:
    """Seed, log, longest sentence and device, the same for all contenders."""
    common = {"--seed": "1", "--log-format": "json", "--log-interval": "25"}
    common["--max-positions"] = str(settings.max_positions)
    return common | ({"--cpu": ""} if settings.machine.cpu else {})


def flatten(flags: Mapping[str, str]) -> list[str]:
    """The words of flags; an empty value stands for a flag without value."""
    return [word for flag, value in flags.items() for word in ((flag, value) if value else (flag,))]
