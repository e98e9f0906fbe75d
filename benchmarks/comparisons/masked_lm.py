"""An update of masked-LM pre-training on full blocks: stock fairseq and ours, with model FLOP/s.

Ours is also measured as the recipe `pretrain` trains: smaller updates, and a second loss.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks import command_line
from benchmarks.comparisons.floor import best_rate, machine_rates
from benchmarks.measure import RESULT, Contender, compare, python
from benchmarks.settings import Settings
from roberta_small.experiments.recipe import recipe as recipes

RECIPE = "ours, as the recipe trains"


def run(settings: Settings) -> dict[str, Any]:
    """Seconds of an update, tokens per second, model FLOP/s and their fraction of the fastest matrix rate."""
    from benchmarks import flops  # imports fairseq, for which --help does not wait

    vocabulary = command_line.vocabulary(settings.corpus / "dict.txt")
    lengths = np.full(settings.blocks, settings.block_tokens)
    work = flops.masked_lm(settings.sizes, lengths, vocabulary, command_line.masked_share())
    bags = flops.lm_head(settings.sizes, vocabulary, settings.blocks)
    rate = best_rate(machine_rates(settings))
    result = compare(
        "masked-lm",
        f"Masked LM, an update of {settings.blocks} blocks of {settings.block_tokens} tokens",
        contenders(settings),
        settings,
        flops_formula=flops.MASKED_LM,
        flops=work,
        fastest_matrix_rate=rate,
        about="the same blocks; the LM head is computed for the masked tokens only; "
        f"'{RECIPE[6:]}': {recipe_blocks()} blocks an update, with the loss of the bag of words",
    )
    for row in result["contenders"]:
        if "median" in row:
            done = work + bags if row["contender"] == RECIPE else work
            row["flops_per_second"] = done / row["median"]
            row["share_of_matrix_rate"] = row["flops_per_second"] / rate
    return result


def contenders(settings: Settings) -> list[Contender]:
    """Stock fairseq in fp32, with and without our environment variables; ours with its defaults.

    As the recipe trains, several updates have the blocks of one of the others.
    """
    tuned = command_line.tuned(settings)
    changes = command_line.NOTHING_BUT_UPDATES | {
        "--batch-size": str(settings.blocks),
        "--tokens-per-sample": str(settings.block_tokens),
        "--total-num-update": "1000",
        "--warmup-updates": "60",
        "--max-update": str(settings.lm_updates),
        "--save-dir": str(settings.scratch / "masked-lm"),
    }
    ours_alone = {"--bag-of-words": "0"}  # stock has no such loss: the same work for all

    def command(flags: list[str], parts: int = 1) -> tuple[str, ...]:
        return python("benchmarks.timed.fairseq_train", RESULT, settings.lm_warm_up * parts, *flags)

    stock = command(command_line.stock(settings, "pretrain", settings.corpus, changes))
    own = command(command_line.ours(settings, "pretrain", settings.corpus, changes | ours_alone))
    parts = max(1, settings.blocks // recipe_blocks())
    batch = {
        "--batch-size": str(settings.blocks // parts),
        "--max-update": str(settings.lm_updates * parts),
    }
    as_recipe = command_line.ours(settings, "pretrain", settings.corpus, changes | batch)
    return [
        Contender("stock fairseq, fp32", stock),
        Contender(f"stock fairseq, fp32{command_line.SAME_VARIABLES}", stock, tuned, quick=True),
        Contender("ours", own, tuned, ours=True, quick=True),
        Contender(RECIPE, command(as_recipe, parts), tuned, ours=True, quick=True, scale=parts),
    ]


def recipe_blocks() -> int:
    """Blocks of an update of the recipe."""
    return int(recipes.load("pretrain").value("--batch-size"))
