"""A recipe for tiny models and the words that start the arms on it."""

import json
from pathlib import Path

from tiny_recipe import CLASSIFIER

from experiments.__main__ import main as experiments
from experiments.methods.transformers import train_run
from export.__main__ import main as export
from hf import translate

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
    """Run the command that `python -m hf ARGUMENTS` stands for; its exit code."""
    package, words, _ = translate([str(argument) for argument in arguments])
    return {"export": export, "experiments": experiments}[package](words)


def measured(run):
    return json.loads((Path(run) / "measured.json").read_text())
