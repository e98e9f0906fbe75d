"""A recipe for tiny models, and how tests start runs of the Transformers and LoRA methods."""

import json
from pathlib import Path

from fairseq import tasks

from roberta_small.experiments.__main__ import main as experiments
from roberta_small.experiments.methods.transformers import train_run
from roberta_small.experiments.methods.transformers.recipe import parse
from roberta_small.experiments.methods.transformers.trainer import pad_batch, read_sentences
from tests.support.tiny_recipe import CLASSIFIER

RECIPE = (
    CLASSIFIER
    + """\
--encoder-layers 2
--max-epoch 3
--total-num-update 18
--warmup-updates 2
--adam-eps 1e-8
--weight-decay 0.01
--clip-norm 0
"""
)


def words(changes=()):
    """The recipe as words; `changes` maps flags to other values, None removes a flag."""
    flags = {line.split(" ")[0]: line.partition(" ")[2].strip('"') for line in RECIPE.strip().splitlines()}
    flags |= dict(changes)
    return [word for flag, value in flags.items() if value is not None for word in (flag, value) if word]


def parsed(data, changes=()):
    """fairseq's configuration of the recipe for a data folder, and its task."""
    cfg = parse(str(data), words(changes))
    return cfg, tasks.setup_task(cfg.task)


def batch_of(data, split="test", count=None, changes=()):
    """The first sentences of a split, or all, as the arguments of a model."""
    rows = read_sentences(parsed(data, changes)[1], split)
    batch = pad_batch([rows[i] for i in range(count or len(rows))])
    del batch["labels"]
    return batch


def train_one(data, run, *options, changes=(), seed=1):
    """Train one run in this process; returns the exit code."""
    run = Path(run)
    start = [str(data), "--seed", str(seed), "--save-dir", str(run), "--cpu", *map(str, options)]
    return train_run.main([*start, "--recipe", *words(changes)])


def command(*arguments):
    """Run `python -m experiments ARGUMENTS` in this process; returns the exit code."""
    return experiments([str(argument) for argument in arguments])


def measured(run):
    return json.loads((Path(run) / "measured.json").read_text())
