"""A recipe for tiny models and the words that start the arms on it."""

import json
from pathlib import Path

from hf import train_run
from hf.__main__ import main

RECIPE = """
--task sentence_classification
--criterion sentence_classification
--arch roberta_small
--encoder-layers 2
--encoder-embed-dim 16
--encoder-ffn-embed-dim 16
--encoder-attention-heads 2
--init-token 0
--separator-token 2
--max-positions 32
--shorten-method truncate
--batch-size 8
--max-epoch 3
--lr 1e-2
--lr-scheduler polynomial_decay
--total-num-update 18
--warmup-updates 2
--optimizer fused_adam
--adam-betas "(0.9, 0.98)"
--adam-eps 1e-8
--weight-decay 0.01
--clip-norm 0
--precision fp32
--valid-subset valid,test
--best-checkpoint-metric accuracy
--maximize-best-checkpoint-metric
"""


def words(changes=()):
    """The recipe as words; `changes` maps flags to other values, None leaves one out."""
    flags = {line.split(" ")[0]: line.partition(" ")[2].strip('"') for line in RECIPE.strip().splitlines()}
    flags |= dict(changes)
    return [word for flag, value in flags.items() if value is not None for word in (flag, value) if word]


def train_one(data, run, *options, changes=(), seed=1):
    """One run in this process; its exit code."""
    run = Path(run)
    start = [str(data), "--seed", str(seed), "--save-dir", str(run), "--cpu", *map(str, options)]
    return train_run.main([*start, "--recipe", *words(changes)])


def command(*arguments):
    """`python -m hf ...`; its exit code."""
    return main([str(argument) for argument in arguments])


def measured(run):
    return json.loads((Path(run) / "measured.json").read_text())
