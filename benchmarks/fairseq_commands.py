"""Command lines of fairseq-train for the same recipe, with the plugin and without it, and checkpoints."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.measure import Contender, execute, python, say, timed
from benchmarks.settings import Settings
from roberta_small.common.cli import SettingsParser, flags_of
from roberta_small.common.hardware import environment
from roberta_small.experiments.inputs.files import class_names
from roberta_small.experiments.methods.fairseq import PLUGIN, RESETS, Fairseq
from roberta_small.experiments.recipe import fairseq_flags
from roberta_small.experiments.recipe import length as run_length
from roberta_small.experiments.recipe import recipe as recipes
from roberta_small.preprocess import dictionary

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
SAME_VARIABLES = ", our variables"
"""Suffix of the control contender, which measures the effect of our environment variables alone."""
TRUST = {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}
"""Without it, stock fairseq cannot read its own checkpoints with torch 2.6 or later."""


def command(who: str, settings: Settings, recipe: str, data: Path, changes: Mapping[str, str]) -> list[str]:
    """A recipe with some flags changed; an empty value stands for a flag without value.

    `who` is "ours", or "stock" for fairseq without our plugin: its task, RoBERTa in the same sizes, its Adam.
    """
    loaded = recipes.load(recipe)
    if run_length.RATIO in loaded.flags:
        loaded = run_length.resolve(loaded, run_length.count_examples(data))
    flags = {flag: " ".join(values) for flag, (_, *values) in loaded.flags.items()}
    if who == "stock":
        flags = {flag: value for flag, value in flags.items() if flag not in OURS_ONLY}
        flags |= STOCK[flags["--task"]] | {"--arch": "roberta", "--optimizer": "adam"}
    flags |= settings.sizes.flags() | {"--seed": "1", "--log-format": "json", "--log-interval": "25"}
    flags["--max-positions"] = str(settings.max_positions)
    if settings.machine.cpu:
        flags["--cpu"] = ""
    if settings.planned:
        checkpoint, *planned = settings.planned
        flags |= {flag: " ".join(values) for flag, (_, *values) in flags_of(planned).items()}
        flags |= {"--restore-file": checkpoint} | dict.fromkeys(RESETS, "")
    words = flatten(flags | dict(changes))
    if who == "ours":
        words = ["--user-dir", str(PLUGIN), *fairseq_flags.for_device(words, settings.machine.cpu)]
    return [str(data), *words, *fairseq_flags.loading(words, settings.machine.cpu)]


def planned(settings: Settings) -> tuple[str, ...]:
    """The checkpoint of `--encoder`, which is converted if necessary, and the flags of its fine-tuning."""
    say(f"preparing: {settings.encoder}")
    command = timed(plan, settings.encoder, settings.data, settings.scratch / "runs")
    return tuple(execute(Contender("plan", command), settings, "plan")["words"])


def plan(encoder: str, data: str, out: str) -> dict[str, Any]:
    """What `roberta-small train --pretrained` plans, with the reference recipe."""
    method, parser = Fairseq(), SettingsParser(prog="train")
    method.add_arguments(parser)
    words = ["--data", data, "--pretrained", encoder, "--inits", "pretrained", "--recipe", "reference"]
    options = parser.parse_settings([*words, "--seeds", "1", "--out", out], {})
    (training,) = method.sweep(method.settings(options), Path(data)).trainings
    return {"words": [str(training.run.checkpoint.absolute()), *training.flags]}


def stock_precision(settings: Settings) -> tuple[str, dict[str, str]]:
    """The name and the flags of the fastest arithmetic of stock fairseq; its `--bf16` is for TPUs."""
    return ("fp32", {}) if settings.machine.cpu else ("fp16", {"--fp16": ""})


def stock(words: Callable[[Mapping[str, str]], tuple[str, ...]], settings: Settings) -> list[Contender]:
    """Stock fairseq in fp32, and at its fastest; `words` are those of its command with further flags.

    On a CPU, what makes it faster are our environment variables, on a GPU also fp16.
    """
    precision, flags = stock_precision(settings)
    fastest = f"stock fairseq, {precision}{SAME_VARIABLES}"
    return [
        Contender("stock fairseq, fp32", words({})),
        Contender(fastest, words(flags), tuned(settings), quick=True),
    ]


def classes(settings: Settings) -> int:
    """Number of classes of the classification folder."""
    return len(class_names(settings.data / "label" / "dict.txt"))


def vocabulary(data: Path) -> int:
    """Number of vocabulary entries of a binarized folder, with fairseq's special symbols and `<mask>`."""
    path = next(path for path in (data / "input0" / "dict.txt", data / "dict.txt") if path.exists())
    return len(dictionary.load(str(path)).with_mask())


def tuned(settings: Settings) -> dict[str, str]:
    """The environment variables that `train.sh` sets for its trainers."""
    return environment(settings.machine.threads)


@functools.cache
def checkpoint(who: str, settings: Settings) -> Path:
    """A checkpoint after one update, which is as fast as a trained one; cached. For `who` see `command`."""
    folder = settings.scratch / "checkpoints" / who
    changes = {"--num-classes": str(classes(settings)), "--max-update": "1", "--disable-validation": ""}
    flags = command(who, settings, "reference", settings.data, changes | {"--save-dir": str(folder)})
    say(f"preparing: a checkpoint ({who})")
    contender = Contender(who, python("fairseq_cli.train", *flags), tuned(settings))
    execute(contender, settings, f"checkpoint {who}")
    return folder / "checkpoint_last.pt"


def flatten(flags: Mapping[str, str]) -> list[str]:
    """The words of flags; an empty value stands for a flag without value."""
    return [word for flag, value in flags.items() for word in ((flag, value) if value else (flag,))]
