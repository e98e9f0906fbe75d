"""Names of runs from paths, by default and by a pattern."""

import pytest

from roberta_small.analysis.read.layout import Pattern, name_run, split_subset, split_tag
from roberta_small.common.errors import UserError


def name(path):
    found = name_run(path.split("/"))
    return found.arm, found.init, found.seed


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/home/a/runs/fairseq/random/seed3/tensorboard", ("fairseq", "random", 3)),
        ("/exp/hf/bert/12", ("hf", "bert", 12)),
        ("/exp/hf/bert/seed_2/runs/Nov21_08-16-38_host", ("hf", "bert", 2)),
        ("/exp/hf/bert-seed2/runs/Nov21_08-16-38_host", ("hf", "bert", 2)),
        ("/exp/tb/bert-random/1", ("exp", "bert-random", 1)),
        ("/exp/checkpoints/bert/seed=7/logs", ("exp", "bert", 7)),
        ("/exp/seed4/bert", ("exp", "bert", 4)),
        ("/exp/hf/bert-2", ("hf", "bert-2", 0)),
        ("/bert", ("-", "bert", 0)),
    ],
)
def test_names_from_paths(path, expected):
    assert name(path) == expected


def test_an_assumed_seed_is_recorded():
    assert name_run(["", "exp", "bert"]).named_by == "path, seed assumed"
    assert name_run(["", "exp", "bert", "1"]).named_by == "path"


@pytest.mark.parametrize(
    ("path", "siblings", "subset"),
    [
        ("r/1/train_inner", (), "train_inner"),
        ("r/1/eval", (), "valid"),
        ("r/1/validation", ("train", "validation"), "valid"),
        ("r/1/dev", ("valid", "dev"), "dev"),
        ("r/1/dev", ("dev", "validation"), "dev"),
        ("r/1/valid", ("dev", "valid"), "valid"),
        ("r/1/books", ("train", "books"), "books"),
        ("r/1/books", ("books",), None),
        ("r/tensorboard/books", ("books",), "books"),
        ("r/tensorboard/Nov21_08-16-38_host", (), None),
    ],
)
def test_subsets_from_folders(path, siblings, subset):
    parts = path.split("/")
    assert split_subset(parts, siblings) == (subset, parts if subset is None else parts[:-1])


@pytest.mark.parametrize(
    ("tag", "expected"),
    [
        ("eval/accuracy", ("valid", "accuracy")),
        ("train_inner/loss", ("train_inner", "loss")),
        ("test/books/f1", ("test", "books/f1")),
        ("val_loss", ("valid", "loss")),
        ("eval/test_accuracy", ("test", "accuracy")),
        ("eval/validation_loss", ("valid", "loss")),
        ("eval/test", ("valid", "test")),
        ("Loss/train", ("train", "Loss")),
        ("acc_val", ("valid", "acc")),
        ("loss", ("unnamed", "loss")),
        ("training/loss", ("unnamed", "training/loss")),
        ("eval/", ("unnamed", "eval/")),
    ],
)
def test_subsets_from_tags(tag, expected):
    assert split_tag(tag) == expected


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("{init}/{seed}/{subset}", "/exp/hf/bert/3/valid", ("hf", "bert", 3, "valid", "/exp/hf/bert/3")),
        ("{arm}/{init}/{seed}", "/exp/hf/bert/seed3", ("hf", "bert", 3, None, "/exp/hf/bert/seed3")),
        ("{init}_lr*_s{seed}", "/exp/hf/bert_lr1e-4_s3", ("hf", "bert", 3, None, "/exp/hf/bert_lr1e-4_s3")),
        ("{seed}/{subset}/{init}", "/exp/hf/3/dev/bert", ("hf", "bert", 3, "dev", "/exp/hf/3/dev/bert")),
        ("{arm}/x/**/{init}/{seed}", "/exp/hf/x/a/b/bert/3", ("hf", "bert", 3, None, "/exp/hf/x/a/b/bert/3")),
        ("{init}/try/{subset}", "/exp/hf/bert/try/valid", ("hf", "bert", 0, "valid", "/exp/hf/bert")),
    ],
)
def test_patterns(pattern, path, expected):
    found, subset = Pattern(pattern).name(path)
    assert (found.arm, found.init, found.seed, subset, found.folder) == expected


def test_a_pattern_matches_complete_names_at_the_end_of_the_path():
    assert Pattern("{init}/{seed}").name("/exp/bert/3/valid") is None
    assert Pattern("rt/{seed}").name("/exp/bert/3") is None
    assert Pattern("a.b/{seed}").name("/exp/axb/3") is None
    assert Pattern("{init}/{seed}").name("/exp/bert/three") is None


def test_a_pattern_for_the_names_of_exported_files():
    found, subset = Pattern("{init}/{seed}/{subset}").name_export("from_scratch_3_train_inner", "/exp/hf")
    assert (found.arm, found.init, found.seed, subset) == ("hf", "from_scratch", 3, "train_inner")


@pytest.mark.parametrize(
    ("pattern", "facts"),
    [
        ("{init}/{split}", r"'\{split\}'.*\{arm\}, \{init\}, \{seed\}, \{subset\}"),
        ("{init}/{init}", r"'\{init\}' .*twice"),
        ("{init/{seed}", r"'\{'"),
        ("runs/*", r"'runs/\*'.*\{seed\}"),
    ],
)
def test_malformed_patterns(pattern, facts):
    with pytest.raises(UserError, match=facts):
        Pattern(pattern)
