"""An update of masked-LM pre-training on full blocks, tokens a second and model FLOPs a second."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from benchmarks import fairseq_commands
from benchmarks.comparisons.floor import best_rate, machine_rates, masked_share
from benchmarks.measure import Contender, compare, timed
from benchmarks.settings import Settings
from benchmarks.timed import fairseq_train


def run(settings: Settings) -> dict[str, Any]:
    """Seconds of an update, tokens per second, model FLOP/s and their fraction of the fastest matrix rate."""
    from roberta_small.fairseq_plugin.models import parameters

    sizes, tokens = settings.sizes, settings.blocks * settings.block_tokens
    work = parameters.encoder(sizes.layers, sizes.embed, sizes.ffn, tokens, tokens * settings.block_tokens)
    vocabulary = fairseq_commands.vocabulary(settings.corpus)
    work += parameters.masked_lm_head(sizes.embed, vocabulary, masked_share() * tokens)
    rate = best_rate(machine_rates(settings))
    result = compare(
        "masked-lm",
        f"Masked LM, an update of {settings.blocks} blocks of {settings.block_tokens} tokens",
        contenders(settings),
        settings,
        flops_formula=parameters.MASKED_LM,
        flops=work,
        fastest_matrix_rate=rate,
        about="the same blocks; the LM head is computed for the masked tokens only",
    )
    for row in result["contenders"]:
        if "median" in row:
            row["flops_per_second"] = work / row["median"]
            row["share_of_matrix_rate"] = row["flops_per_second"] / rate
    return result


def contenders(settings: Settings) -> list[Contender]:
    """Stock fairseq with and without what makes it fast; ours with its defaults."""
    changes = fairseq_commands.NOTHING_BUT_UPDATES | {
        "--batch-size": str(settings.blocks),
        "--tokens-per-sample": str(settings.block_tokens),
        "--total-num-update": "1000",
        "--warmup-updates": "60",
        "--max-update": str(settings.lm_updates),
        "--save-dir": str(settings.scratch / "masked-lm"),
    }

    def fairseq(who: str, more: Mapping[str, str]) -> tuple[str, ...]:
        words = fairseq_commands.command(who, settings, "pretrain", settings.corpus, {**changes, **more})
        return timed(fairseq_train, settings.lm_warm_up, *words)

    ours = fairseq("ours", {"--bag-of-words": "0"})  # stock fairseq has no such loss
    return [
        *fairseq_commands.stock(functools.partial(fairseq, "stock"), settings),
        Contender("ours", ours, fairseq_commands.tuned(settings), ours=True, quick=True),
    ]
