"""An update of fine-tuning with the reference recipe: stock fairseq, ours, the Transformers Trainer."""

from __future__ import annotations

from typing import Any

from benchmarks import command_line
from benchmarks.measure import RESULT, Contender, compare, execute, python, say
from benchmarks.settings import Settings

ENGINES = {
    "ours": {"--precision": "auto", "--encoder": "packed", "--optimizer": "fused_adam"},
    "ours, fp32": {"--precision": "fp32", "--encoder": "packed", "--optimizer": "fused_adam"},
    "ours, fp32, padded": {"--precision": "fp32", "--encoder": "padded", "--optimizer": "fused_adam"},
}
TRANSFORMERS = {
    "Transformers, fp32": ("--precision", "fp32"),
    "Transformers, fp32, by length": ("--precision", "fp32", "--group"),
    "Transformers, bf16": ("--precision", "bf16"),
    "Transformers, bf16, by length": ("--precision", "bf16", "--group"),
}

PART = 8
"""Sentences of an accumulated batch."""
PROFILE_WARM_UP, PROFILED = 30, 5
"""Updates before the profile, until the process no longer gets new memory, and updates in it."""
OPERATORS = 25
"""Rows of the profile."""


def run(settings: Settings) -> dict[str, Any]:
    """Seconds of an update, data loading and logging included; no validation, no saving."""
    layers, embed = settings.sizes.layers, settings.sizes.embed
    return compare(
        "finetune" if not settings.best_only else f"finetune-{layers}x{embed}-{settings.batch_size}",
        f"Fine-tuning {layers} layers of size {embed}, an update of {settings.batch_size} sentences",
        contenders(settings),
        settings,
        batch_size=settings.batch_size,
        updates=settings.updates,
        warm_up=settings.warm_up,
        recipe="reference",
        about="the same sentences in the same batches; 'by length': in batches of similar length",
    )


def contenders(settings: Settings) -> list[Contender]:
    """Stock fairseq with and without our environment; our contenders; Transformers.

    With `best_only`, the Transformers Trainer in bf16, in batches of similar length and with our environment,
    and our defaults. Larger batches are also accumulated from batches of `PART`: they need less memory.
    """
    tuned = command_line.tuned(settings)
    best, flags = list(TRANSFORMERS.items())[-1]
    fastest = Contender(
        f"{best}{command_line.SAME_VARIABLES}",
        _transformers(settings, flags),
        tuned,
        needs="accelerate",
        quick=True,
    )
    if settings.best_only:
        accumulated = []
        if (parts := settings.batch_size // PART) > 1:
            name = f"{best}{command_line.SAME_VARIABLES}, {parts} x {PART}"
            command = _transformers(settings, (*flags, f"--accumulate={parts}"))
            accumulated.append(Contender(name, command, tuned, needs="accelerate"))
        return [*accumulated, fastest, _ours(settings, "ours", tuned)]
    stock = _fairseq(
        settings, command_line.stock(settings, "reference", settings.data, changes(settings, "stock"))
    )
    found = [
        Contender("stock fairseq, fp32", stock),
        Contender(f"stock fairseq, fp32{command_line.SAME_VARIABLES}", stock, tuned, quick=True),
    ]
    found += [_ours(settings, name, tuned) for name in ENGINES]
    for name, flags in TRANSFORMERS.items():
        found.append(Contender(name, _transformers(settings, flags), needs="accelerate"))
    return [*found, fastest]


def profile(settings: Settings) -> dict[str, Any]:
    """Own time of each operator over the profiled updates (`torch.profiler`); `report` writes profile.md."""
    length = str(PROFILE_WARM_UP + PROFILED)
    engine = ENGINES["ours"] | {"--max-update": length, "--max-epoch": length}
    flags = command_line.ours(settings, "reference", settings.data, changes(settings, "ours") | engine)
    command = python("benchmarks.timed.fairseq_profile", RESULT, PROFILE_WARM_UP, PROFILED, *flags)
    say(f"profile: {PROFILED} updates of fine-tuning, ours")
    contender = Contender("ours", command, command_line.tuned(settings))
    record = execute(contender, settings, settings.output / "logs" / "profile.txt")
    return {
        "name": "profile",
        "title": f"Operators in {PROFILED} updates of fine-tuning, ours, by their own "
        f"{record['device']} time",
        "total_ms": sum(row["ms"] for row in record["operators"]),
        "operators": record["operators"][:OPERATORS],
    }


def transformers_arguments(settings: Settings) -> list[str]:
    """Data and sizes, as `timed.transformers_model` takes them."""
    sizes = vars(settings.sizes) | {
        "max-positions": settings.max_positions,
        "vocabulary": command_line.vocabulary(command_line.dictionary(settings)),
        "classes": command_line.classes(settings),
    }
    return [str(settings.data), *(f"--{name}={value}" for name, value in sizes.items())]


def changes(settings: Settings, who: str) -> dict[str, str]:
    """What differs from the recipe: classes, length, and neither validation nor saving."""
    return command_line.NOTHING_BUT_UPDATES | {
        "--num-classes": str(command_line.classes(settings)),
        "--batch-size": str(settings.batch_size),
        "--max-update": str(settings.updates),
        "--max-epoch": str(settings.updates),  # small data: as many as the updates need
        "--save-dir": str(settings.scratch / "finetune" / who),
    }


def _ours(settings: Settings, engine: str, tuned: dict[str, str]) -> Contender:
    """One of `ENGINES`."""
    flags = command_line.ours(
        settings, "reference", settings.data, changes(settings, "ours") | ENGINES[engine]
    )
    return Contender(engine, _fairseq(settings, flags), tuned, ours=True, quick=engine == "ours")


def _fairseq(settings: Settings, flags: list[str]) -> tuple[str, ...]:
    return python("benchmarks.timed.fairseq_train", RESULT, settings.warm_up, *flags)


def _transformers(settings: Settings, flags: tuple[str, ...]) -> tuple[str, ...]:
    arguments = [*transformers_arguments(settings), f"--batch-size={settings.batch_size}", *flags]
    arguments += [f"--updates={settings.updates}", f"--warm-up={settings.warm_up}"]
    return python("benchmarks.timed.transformers_train", RESULT, *arguments)
