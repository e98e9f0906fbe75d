"""The length of a run follows from the number of training examples."""

import math

import numpy as np
import pytest
from fairseq.data import iterators

from roberta_small.common import data_folder
from roberta_small.common.errors import UserError
from roberta_small.experiments.recipe import length as run_length
from roberta_small.experiments.recipe import recipe as recipes
from roberta_small.experiments.recipe.recipe import Recipe

RATIO = ("--warmup-ratio", "0.06")
DECAY = ("--lr-scheduler", "polynomial_decay")


def resolved(*words, examples=1800):
    recipe = Recipe("r", (*DECAY, *words))
    return run_length.resolve(recipe, examples).flags


def numbers(flags):
    return [int(flags[f"--{name}"][1]) for name in ("max-update", "total-num-update", "warmup-updates")]


@pytest.mark.parametrize(("workers", "accumulated"), [(1, 1), (2, 1), (1, 4), (3, 2)])
def test_updates_are_those_of_fairseqs_iterators(workers, accumulated):
    batches = [[0] * 8] * (1801 // 8) + [[0]]
    shard = iterators.ShardedIterator(batches, workers, 0, fill_value=[])
    expected = len(iterators.GroupedIterator(iterators.CountingIterator(shard), accumulated))
    words = ["--distributed-world-size", str(workers), "--update-freq", str(accumulated)]
    flags = resolved(*RATIO, "--batch-size", "8", "--max-epoch", "1", *words, examples=1801)
    assert numbers(flags)[0] == expected


def test_flags_that_are_given_are_kept():
    flags = resolved(*RATIO, "--batch-size", "8", "--max-epoch", "5", "--max-update", "100")
    assert numbers(flags) == [100, 100, 6]
    flags = resolved(*RATIO, "--batch-size", "8", "--max-epoch", "5", "--warmup-updates", "9")
    assert numbers(flags) == [1125, 1125, 9]
    falling = Recipe("r", (*DECAY, "--lr", "1e-4", "--max-epoch", "5"))
    for end in ("--total-num-update", "--max-update"):
        recipe = falling.replace((end, "60"))
        assert run_length.resolve(recipe, 1800) == recipe
    with pytest.raises(UserError, match=r"'r': --lr-scheduler polynomial_decay .*--warmup-ratio"):
        run_length.resolve(falling, 1800)
    fixed = Recipe("r", ("--lr-scheduler", "fixed", *RATIO, "--batch-size", "8", "--max-epoch", "1"))
    assert "--total-num-update" not in run_length.resolve(fixed, 1800).flags


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--warmup-ratio", "6", "--batch-size", "8", "--max-epoch", "1"), "--warmup-ratio 6"),
        (("--warmup-ratio", "--batch-size", "8", "--max-epoch", "1"), "--warmup-ratio"),
        ((*RATIO, "--batch-size", "8"), "--max-epoch"),
        ((*RATIO, "--max-tokens", "4096", "--max-epoch", "1"), "--max-tokens"),
    ],
)
def test_what_gives_no_length_is_refused(words, named):
    with pytest.raises(UserError) as error:
        resolved(*words)
    assert named in str(error.value)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--max-update", "100"), "0.44"),
        (("--total-num-update", "500"), "500"),
        (("--total-num-update", "5000"), "5,000"),
        (("--warmup-updates", "2000"), "2,000"),
    ],
)
def test_an_unusual_schedule_is_said(words, named):
    recipe = run_length.resolve(recipes.load("reference", words), 1800)
    assert any(named in warning for warning in run_length.notes(recipe, 1800)[1:])


def write_index(path, sizes):
    offsets = np.cumsum([0, *sizes[:-1]]) * 2
    path.parent.mkdir()
    body = np.array(sizes, "<i4").tobytes() + offsets.astype("<i8").tobytes()
    path.write_bytes(data_folder.Header(8, len(sizes)).pack() + body)


def test_a_truncated_majority_is_said(tmp_path):
    write_index(tmp_path / "input0/train.idx", [5, 9, 10, 20])
    recipe = Recipe("test", ("--max-positions", "10"))
    assert run_length.truncation(recipe, tmp_path) == []  # with <s>: 6, 10, 11, 21
    write_index(tmp_path / "input1/train.idx", [1, 1, 1, 1])
    (warning,) = run_length.truncation(recipe, tmp_path)
    assert "75%" in warning
    assert "10 tokens" in warning
    assert "--max-length" in warning
    assert run_length.truncation(Recipe("test", ("--lr", "1")), tmp_path) == []


@pytest.mark.parametrize(("examples", "epochs"), [(50, 15), (200, 5), (8, 100), (66, 12)])
def test_a_small_data_set_is_read_until_there_are_enough_updates(examples, epochs):
    words = ("--batch-size", "8", "--max-epoch", "5", "--min-updates", "100", "--warmup-ratio", "0.1")
    recipe = run_length.resolve(Recipe("mine", words), examples)
    assert recipe.max_epoch == epochs
    assert recipe.max_update == epochs * math.ceil(examples / 8)
    assert recipe.value("--min-updates") is None
    interval = recipe.number("--validate-interval") or 1
    assert interval == (recipe.number("--save-interval") or 1)
    assert interval == math.ceil(epochs / 5)
    assert math.ceil(epochs / interval) <= 5
    own = run_length.resolve(Recipe("mine", (*words, "--validate-interval", "2")), examples)
    assert (own.max_epoch, own.number("--validate-interval")) == (epochs, 2)
    assert own.number("--save-interval") is None
