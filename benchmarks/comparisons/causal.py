"""The left-to-right model and a plain PyTorch loop: an update of pre-training and of fine-tuning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import command_line
from benchmarks.measure import RESULT, Contender, compare, python
from benchmarks.settings import Settings

PRECISIONS = ("fp32", "bf16")
PLAIN = "plain PyTorch"
"""torch's own modules and optimizer, see `timed/plain_causal.py`."""


def pretrain(settings: Settings) -> dict[str, Any]:
    """Seconds of an update on full blocks of text, recipe causal-pretrain."""
    return compare(
        "causal-lm",
        f"Left to right, an update of {settings.causal_blocks} blocks of {settings.block_tokens} tokens",
        pretrain_contenders(settings),
        settings,
        recipe="causal-pretrain",
        about="blocks of the same text; every position is predicted",
    )


def finetune(settings: Settings) -> dict[str, Any]:
    """Seconds of an update of sentence classification, recipe causal-reference."""
    return compare(
        "causal",
        f"Left to right, fine-tuning, an update of {settings.batch_size} sentences",
        finetune_contenders(settings),
        settings,
        recipe="causal-reference",
        about="the same sentences in the same batches",
    )


def pretrain_contenders(settings: Settings) -> list[Contender]:
    """The loop in both precisions, and ours."""
    changes = command_line.NOTHING_BUT_UPDATES | {
        "--batch-size": str(settings.causal_blocks),
        "--tokens-per-sample": str(settings.block_tokens),
        "--max-positions": str(settings.block_tokens),
        "--total-num-update": "1000",
        "--warmup-updates": "60",
        "--max-update": str(settings.lm_updates),
        "--save-dir": str(settings.scratch / "causal-lm"),
    }
    flags = command_line.ours(
        settings, "causal-pretrain", settings.corpus, changes | settings.causal_sizes.flags()
    )
    dictionary = settings.corpus / "dict.txt"
    plain = {
        "max-positions": settings.block_tokens,
        "batch-size": settings.causal_blocks,
        "updates": settings.lm_updates,
        "warm-up": settings.lm_warm_up,
        "lr": 3e-4,
    }
    loop = [settings.corpus, "--blocks", *_plain(settings, dictionary, plain)]
    return _contenders(settings, loop, settings.lm_warm_up, flags)


def finetune_contenders(settings: Settings) -> list[Contender]:
    """The loop in both precisions, and ours."""
    changes = command_line.NOTHING_BUT_UPDATES | {
        "--num-classes": str(command_line.classes(settings)),
        "--batch-size": str(settings.batch_size),
        "--max-update": str(settings.updates),
        "--max-epoch": str(settings.updates),
        "--save-dir": str(settings.scratch / "causal"),
    }
    flags = command_line.ours(
        settings, "causal-reference", settings.data, changes | settings.causal_sizes.flags()
    )
    plain = {
        "max-positions": settings.max_positions,
        "batch-size": settings.batch_size,
        "updates": settings.updates,
        "warm-up": settings.warm_up,
        "lr": 1e-4,
    }
    loop = [settings.data, *_plain(settings, command_line.dictionary(settings), plain)]
    return _contenders(settings, loop, settings.warm_up, flags)


def _plain(settings: Settings, dictionary: Path, more: dict[str, Any]) -> list[str]:
    """Words of `timed.plain_causal`; left-to-right models have no row for `<mask>`."""
    sizes = vars(settings.causal_sizes) | {
        "vocabulary": command_line.vocabulary(dictionary) - 1,
        "classes": command_line.classes(settings),
    }
    return [f"--{name}={value}" for name, value in (sizes | more).items()]


def _contenders(settings: Settings, loop: list[Any], warm_up: int, flags: list[str]) -> list[Contender]:
    tuned = command_line.tuned(settings)
    loops = {
        f"{PLAIN}, {precision}": python(
            "benchmarks.timed.plain_causal", RESULT, *loop, f"--precision={precision}"
        )
        for precision in PRECISIONS
    }
    found = [Contender(name, command) for name, command in loops.items()]
    last, command = list(loops.items())[-1]
    found.append(Contender(f"{last}{command_line.SAME_VARIABLES}", command, tuned))
    own = python("benchmarks.timed.fairseq_train", RESULT, warm_up, *flags)
    return [*found, Contender("ours", own, tuned, ours=True)]
