"""The architecture of runs is that of their initial checkpoints: flags, notes and contradictions."""

import json
import shlex
import shutil

import pytest
import torch

from roberta_small.common.errors import UserError
from roberta_small.experiments.__main__ import main
from roberta_small.experiments.recipe import recipe as recipes
from roberta_small.experiments.recipe.architecture import AFTER, fit, read
from roberta_small.export.transformers.to_fairseq import convert_back
from tests.support import tiny_models
from tests.support.data_folders import write_data
from tests.support.training import FAST, OURS, STEPS, build_trainer, save

RECIPE = """
--task sentence_classification
--criterion sentence_classification
--arch roberta_small
--max-positions 20
--init-token 0
--shorten-method truncate
--batch-size 8
--max-epoch 1
"""
TRUNCATED = ("--init-token", "0", "--shorten-method", "truncate")
NARROW = "--encoder-layers 2 --encoder-embed-dim 24 --encoder-ffn-embed-dim 16"
BASE = f"{NARROW} --encoder-attention-heads 12 --max-positions 32"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Data, and checkpoints of several architectures."""
    root = tmp_path_factory.mktemp("architecture")
    data = write_data(root / "data", longest=15)
    for name, flags in {
        "base": BASE,
        "other": f"{NARROW} --encoder-attention-heads 6 --max-positions 20",
        "short": f"{NARROW} --encoder-attention-heads 12 --max-positions 16",
        "special": f"{BASE} --encoder-normalize-before --layer-norm-eps 1e-12 --activation-fn relu",
        "prenorm": f"{BASE} --arch roberta_prenorm",
        "causal": f"{BASE} --arch causal_roberta_small --init-token 2",
        "small": "--encoder-layers 4 --max-positions 20",
    }.items():
        _, trainer = build_trainer([data, *OURS, *STEPS, *FAST, *TRUNCATED, *shlex.split(flags)])
        save(trainer, root / f"{name}.pt")
    (root / "recipe.txt").write_text(RECIPE)
    return root


def fitted(root, *inits, extra="", recipe="recipe.txt", **options):
    words = shlex.split(extra)
    loaded = recipes.load(str(root / recipe), words)
    places = recipes.places(str(root / recipe)) | {word: AFTER for word in words if word.startswith("--")}
    checkpoints = {name: None if name == "random" else read(root / f"{name}.pt") for name in inits}
    return fit(loaded, places, checkpoints, **options)


def test_a_checkpoint_of_the_given_architecture_adds_nothing(root):
    found = fitted(root, "random", "small")
    assert found.flags == {}
    assert found.notes == []
    extra = f"{NARROW} --encoder-attention-heads 12"
    assert fitted(root, "random", "base", extra=extra).flags == {}
    assert fitted(root, "base", extra=f"--arch roberta_base {extra}").flags == {}


def test_flags_that_differ_are_added_also_for_random_weights(root):
    found = fitted(root, "random", "base")
    wanted = shlex.split(f"{NARROW} --encoder-attention-heads 12")
    assert found.flags == {"random": wanted, "base": wanted}
    notes = "\n".join(found.notes)
    assert shlex.join(wanted) in notes
    assert "32 positions" in notes
    assert "--max-length 32" in notes


def test_settings_without_a_shape_are_added(root):
    words = fitted(root, "special").flags["special"]
    assert shlex.join(words) == (
        f"{NARROW} --encoder-attention-heads 12 --activation-fn relu --encoder-normalize-before "
        "--layer-norm-eps 1e-12"
    )
    assert "--arch roberta_prenorm" in shlex.join(fitted(root, "prenorm").flags["prenorm"])


def test_the_pooling_of_a_sentence_encoder_is_that_of_the_runs(tmp_path, root):
    tiny_models.write(tmp_path / "source", "bert", "encoder")
    (tmp_path / "source/1_Pooling").mkdir()
    modes = {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
    (tmp_path / "source/1_Pooling/config.json").write_text(json.dumps(modes))
    convert_back(tmp_path / "source", tmp_path / "mean/model.pt")
    shutil.copy(tmp_path / "mean/model.pt", root / "sentence.pt")

    def words(**options):
        found = fitted(root, "sentence", **options).flags.get("sentence", [])
        return found[found.index("--pooling") :][:2] if "--pooling" in found else []

    assert words() == ["--pooling", "mean"]
    assert words(pools=False) == []  # a method without it
    notes = fitted(root, "sentence", pools=False).notes
    assert any("this method uses the first token" in note for note in notes)
    assert words(extra="--pooling first") == []  # the user's choice


def test_a_head_keeps_the_pooling_that_it_was_trained_with(tmp_path, root):
    """A recipe file that sets another one does not change it; the user does."""
    (root / "mean.txt").write_text(f"{RECIPE}--pooling mean\n")
    for name, kind in (("head", "classifier"), ("plain", "encoder")):
        tiny_models.write(tmp_path / kind, "xlm-roberta", kind)
        convert_back(tmp_path / kind, tmp_path / f"{name}/model.pt")
        shutil.copy(tmp_path / f"{name}/model.pt", root / f"{name}.pt")

    def words(**options):
        flags = fitted(root, "head", "plain", recipe="mean.txt", classes=["a", "b"], **options).flags
        return {name for name, found in flags.items() if "--pooling first" in shlex.join(found)}

    assert words() == {"head"}
    assert words(extra="--pooling mean") == set()


def test_different_checkpoints_leave_random_weights_the_recipes_architecture(root):
    found = fitted(root, "random", "base", "other")
    heads = {init: words[-1] for init, words in found.flags.items()}
    assert heads == {"base": "12", "other": "6"}
    assert any(note.startswith("random: ") for note in found.notes)


def test_fewer_positions_than_in_a_recipe_file_are_those_of_all_runs(root):
    found = fitted(root, "random", "short")
    for init in ("random", "short"):
        assert found.flags[init][-2:] == ["--max-positions", "16"]
    assert "--max-positions 16" in "\n".join(found.notes)
    flags = fitted(root, "random", "base", "short", extra="--max-positions 10").flags
    assert set(flags) == {"random", "base", "short"}


@pytest.mark.parametrize(
    ("init", "extra", "facts"),
    [
        ("base", "--encoder-attention-heads 8", ["after --", "--encoder-attention-heads 8", "-heads 12"]),
        ("base", "--activation-fn relu", ["--activation-fn relu", "gelu"]),
        ("base", "--encoder-normalize-before", ["no --encoder-normalize-before"]),
        ("base", "--layer-norm-eps 1e-6", ["1e-06", "1e-05"]),
        ("base", "--arch roberta_base", ["--arch roberta_base", "--encoder-layers 12", "--encoder-layers 2"]),
        ("base", "--arch roberta_small", ["--arch roberta_small", "--encoder-layers 4"]),
        ("base", "--encoder-layers four", ["--encoder-layers", "'four'"]),
        ("causal", "", ["causal_roberta_small", "causal-reference"]),
        ("base", "--arch causal_roberta_small", ["--recipe reference"]),
        ("short", "--max-positions 20", ["16 positions", "--max-positions is 20", "--max-positions 16"]),
        ("base", "--max-positions 33", ["32 positions", "33"]),
    ],
)
def test_a_contradiction_is_an_error(root, init, extra, facts):
    with pytest.raises(UserError) as caught:
        fitted(root, "random", init, extra=extra)
    assert all(fact in str(caught.value) for fact in facts), caught.value
    assert f"{init}.pt" in str(caught.value) or "'four'" in facts


def test_a_flag_of_a_recipe_or_its_base_is_the_users(root):
    (root / "mine.txt").write_text("--base recipe.txt\n--encoder-attention-heads 8\n--lr 1e-4\n")
    (root / "derived.txt").write_text("--base mine.txt\n--lr 1e-3\n")
    for recipe in ("mine.txt", "derived.txt"):
        with pytest.raises(UserError, match=r"mine\.txt: --encoder-attention-heads 8.*heads 12"):
            fitted(root, "base", recipe=recipe)
    (root / "large.txt").write_text("--base recipe.txt\n--arch roberta_large\n")
    with pytest.raises(UserError, match=r"large\.txt: --arch roberta_large.*24"):
        fitted(root, "base", recipe="large.txt")


@pytest.mark.parametrize(
    ("classes", "extra", "facts"),
    [
        (("a", "b"), "", ["a, b", "kept"]),
        (("b", "a"), "", ["a, b", "kept", "b as b, a as a"]),
        (("B", "A"), "", ["a, b", "kept", "b as B, a as A"]),
        (("c", "d"), "", ["a, b", "c, d", "random weights"]),
        (("a", "b", "c"), "", ["a, b", "2 classes", "have 3", "random weights"]),
        (("a", "b"), "--classification-head-name other", ["a, b", "random weights"]),
    ],
)
def test_what_happens_to_the_head_of_a_classifier(root, classes, extra, facts):
    state = torch.load(root / "small.pt", weights_only=False)
    state["extra_state"]["SentenceClassificationTask"] = {"class_names": ["a", "b"]}
    torch.save(state, root / "classifier.pt")
    loaded = recipes.load(str(root / "recipe.txt"), shlex.split(extra))
    found = fit(loaded, {}, {"new": read(root / "classifier.pt")}, classes=classes)
    (note,) = found.notes
    assert note.startswith("new: ")
    assert all(fact in note for fact in ["classifier.pt", *facts])
    assert found.flags == {}


def train(root, *words):
    common = ["--data", root / "data", "--recipe", root / "recipe.txt", "--device", "cpu", "--seeds", "1"]
    return main(["train", *map(str, [*common, "--out", root / "runs", *words])])


def test_train_shows_the_flags_in_the_plan_and_the_commands(root, capfd):
    words = ["--inits", "random", "pretrained", "--pretrained", root / "base.pt", "--dry-run"]
    assert train(root, *words) == 0
    out = capfd.readouterr().out
    commands = [line for line in out.splitlines() if line.startswith("fairseq-train")]
    assert len(commands) == 2
    assert all("--encoder-attention-heads 12" in command for command in commands)
    assert all("--max-positions 20" in command for command in commands)
    assert out.index("pretrained: architecture of ") < out.index("fairseq-train")

    flags = "--lr-scheduler polynomial_decay --lr 1e-3 --total-num-update 4 --optimizer adam --max-update 2"
    metric = ["--best-checkpoint-metric", "accuracy", "--valid-subset", "valid,test"]
    assert train(root, *words, "--method", "transformers", "--", *flags.split(), *metric) == 0
    lines = capfd.readouterr().out.splitlines()
    commands = [line for line in lines if line.startswith("roberta-small train")]
    assert ["--encoder-attention-heads 12" in command for command in commands] == [True, False]


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (["--pretrained", "base.pt", "--grid", "encoder-attention-heads=12,8"], ["--grid", "base.pt", "12"]),
        (["--pretrained", "empty.pt"], ["empty.pt"]),
    ],
)
def test_train_ends_with_one_error_before_anything_is_written(root, monkeypatch, capfd, words, facts):
    monkeypatch.chdir(root)
    torch.save({}, root / "empty.pt")
    assert train(root, "--inits", "pretrained", *words) == 1
    error = capfd.readouterr().err
    assert error.count("\n") == 1
    assert all(fact in error for fact in facts), error
    assert not (root / "runs").exists()


def test_pretraining_resumes_with_the_architecture_of_its_start(root, capfd):
    (root / "lm.txt").write_text(
        "--task masked_lm\n--criterion masked_lm\n--arch roberta_small\n--max-positions 16\n"
        "--tokens-per-sample 16\n--batch-size 4\n--lr 1e-3\n--max-update 2\n"
    )
    common = ["--data", root / "data/input0", "--recipe", root / "lm.txt", "--device", "cpu"]
    words = ["pretrain", *common, "--out", root / "lm", "--start", root / "base.pt", "--dry-run"]
    assert main([str(word) for word in words]) == 0
    out = capfd.readouterr().out
    command = next(line for line in out.splitlines() if line.startswith("fairseq-train"))
    assert "--encoder-attention-heads 12" in command
    assert "--start: architecture of " in out


def test_a_model_without_an_encoder_starts_from_no_checkpoint(root):
    (root / "ngrams.txt").write_text(RECIPE.replace("roberta_small", "ngram_classifier"))
    assert fitted(root, "random", recipe="ngrams.txt").flags == {}
    with pytest.raises(UserError, match=r"--arch ngram_classifier.*--inits random"):
        fitted(root, "small", recipe="ngrams.txt")


@pytest.mark.parametrize(
    ("name", "words", "fits"),
    [
        ("short", ["--recipe", "own-data"], True),
        ("short", ["--recipe", "reference"], False),
        (
            "causal",
            ["--recipe", "causal-reference", "--", "--head", "linear", "--max-positions", "32"],
            False,
        ),
    ],
)
def test_a_linear_head_is_fitted_for_masked_encoders_of_any_length(root, tmp_path, capsys, name, words, fits):
    state = torch.load(root / f"{name}.pt", weights_only=False)
    state["model"] = {key: w for key, w in state["model"].items() if "classification_heads" not in key}
    torch.save(state, tmp_path / "encoder.pt")
    options = ["--data", str(root / "data"), "--inits", f"mine={tmp_path / 'encoder.pt'}", "--dry-run"]
    assert main(["train", *options, "--out", str(tmp_path), "--device", "cpu", *words]) == 0
    assert ("--method frozen" in capsys.readouterr().out) is fits
