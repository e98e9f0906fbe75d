from pathlib import Path

import pytest

from roberta_small.common.errors import UsageError, UserError
from roberta_small.experiments.__main__ import main
from roberta_small.experiments.inputs import files as inputs
from roberta_small.experiments.methods.pretrain import parse_count
from roberta_small.experiments.train import train
from tests.support.parsed import pretrain_settings, train_settings


def test_hyperparameters_are_flags_of_the_recipe():
    options = "--lr 1e-4 --epochs 7 --batch-size 16 --max-length 128 --layers 2"
    words = [*options.split(), "--", "--dropout", "0", "--", "x"]
    given = "--lr 1e-4 --max-epoch 7 --batch-size 16 --max-positions 128 --encoder-layers 2 --dropout 0 -- x"
    settings = train_settings(["--data", "bin", "--inits", "random", *words], {})
    assert settings.passthrough == tuple(given.split())


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        ("--epochs 7 -- --max-epoch 8", ["--epochs 7", "--max-epoch", "after --"]),
        ("--grid lr=2 -- --lr 1", ["--lr", "--grid", "after --"]),
        ("--max-length 7 --grid max-positions=3,4", ["--max-length 7", "--max-positions", "--grid"]),
        ("--lr -1", ["--lr", "-1"]),
        ("--epochs 1.5", ["--epochs", "1.5"]),
        ("--batch-size 0", ["--batch-size", "0"]),
    ],
)
def test_hyperparameters_that_are_wrong_or_set_twice(words, facts):
    with pytest.raises((UserError, UsageError)) as caught:
        train(["--data", "bin", "--inits", "random", *words.split()])
    assert all(fact in str(caught.value) for fact in facts)


def test_lists_in_one_word_and_paths_with_spaces():
    inits = {"random": None, "small": Path("mon modèle/a b.pt")}
    assert train_settings([], {"RS_DATA": "d", "RS_INITS": "random 'small=mon modèle/a b.pt'"}).given == inits
    flags = ["--data", "d", "--inits"]
    assert train_settings([*flags, "random", "small=mon modèle/a b.pt"], {}).given == inits
    assert train_settings([*flags, "random", "--seeds", "4 5"], {}).seeds == (4, 5)
    for path in ("my dir/a.pt", "l'été/a.pt", "a.pt"):
        assert train_settings([*flags, f"x={path}"], {}).given == {"x": Path(path)}
    assert train_settings([*flags, "x=a.pt random"], {}).given == {"x": Path("a.pt"), "random": None}


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (["--inits", "pretrained"], ["--inits", "'pretrained'", "--pretrained", "bin"]),
        (["--tokenizer", "train", "--data-seed", "1"], ["--tokenizer", "--data-seed", "--data bin"]),
        (["--pretrained", "a.pt", "--inits", "random"], ["--pretrained a.pt", "--inits random"]),
        (["--inits", "pretained"], ["--inits", "'pretained'", "pretrained", "random"]),
        (["--inits", "random", "random"], ["--inits", "'random'"]),
        (["--inits", "random=a.pt"], ["--inits", "'random=a.pt'", "'random'"]),
        (["--inits", "a/b=c.pt"], ["--inits", "'a/b'"]),
        (["--inits", "small="], ["--inits", "'small='", "NAME=FILE"]),
        (["--inits", "'random"], ["'random", "quot"]),
        (["--inits", "random", "--seeds", "1", "x"], ["--seeds 'x'"]),
        (["--inits", "random", "--seeds", "1 1"], ["--seeds 1 1"]),
        (["--inits", "random", "--seeds", "-1"], ["--seeds"]),
        (["--inits", "random", "--seeds", "4294967296"], ["--seeds '4294967296'", "4294967295"]),
        (["--inits", "random", "--jobs", "0"], ["--jobs '0'"]),
        (["--inits", "random", "--device", "tpu"], ["--device 'tpu'", "auto, cpu, cuda"]),
        (["--inits", "random", "--arm", "../x"], ["--arm '../x'"]),
        (["--seed", "1"], ["--seed "]),
    ],
)
def test_an_invalid_option_raises(words, facts):
    with pytest.raises(UserError) as caught:
        train_settings(["--data", "bin", *words], {}).initial_weights(Path("bin"))
    assert all(fact in str(caught.value) for fact in facts)


def test_a_missing_required_setting_raises():
    with pytest.raises(UserError, match="--data"):
        train_settings([], {"RS_DATA": ""})
    with pytest.raises(UserError, match="--out"):
        pretrain_settings(["--data", "bin"], {})


@pytest.mark.parametrize("text", ["", "0", "-5", "1.5", "M", "5 MB", "1e"])
def test_invalid_counts_raise(text):
    with pytest.raises(UserError, match="--tokens"):
        parse_count("--tokens", text)


def test_counts_are_exact():
    found = [parse_count("--tokens", text) for text in ("8.2M", "1.5M", "10_000k", "7")]
    assert found == [8_200_000, 1_500_000, 10_000_000, 7]


def dictionary(folder, tokens, count=1):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "dict.txt").write_text("".join(f"{token} {count}\n" for token in tokens), encoding="utf-8")


def checkpoint(folder, tokens):
    dictionary(folder, tokens)
    (folder / "model.safetensors").write_bytes(b"weights")


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """A folder with a shipped checkpoint, another one with the same dictionary, and data."""
    monkeypatch.setattr(inputs, "SHIPPED", tmp_path / "pretrained" / "fr")
    checkpoint(tmp_path / "pretrained" / "fr", "abc")
    checkpoint(tmp_path / "pretrained" / "a-trial", "abc")
    dictionary(tmp_path / "data" / "input0", "abc", count=7)  # counts may differ
    return tmp_path


def initial(trained, *words):
    data = trained / "data"
    return train_settings(["--data", str(data), *words], {}).initial_weights(data)


def test_data_with_the_same_dictionary_use_the_shipped_checkpoint(trained):
    weights = trained / "pretrained" / "fr" / "model.safetensors"
    assert inputs.shipped_for(trained / "data") == weights
    assert initial(trained) == ({"random": None, "pretrained": weights}, ())
    found, _ = initial(trained, "--inits", "pretrained", "random")
    assert list(found.items()) == [("pretrained", weights), ("random", None)]
    weights.unlink()
    assert inputs.shipped_for(trained / "data") is None
    assert initial(trained) == ({"random": None}, ())
    with pytest.raises(UserError, match="--pretrained"):
        initial(trained, "--inits", "pretrained")


def test_data_with_another_dictionary_require_a_checkpoint(trained):
    dictionary(trained / "data" / "input0", "acb")
    assert inputs.shipped_for(trained / "data") is None
    found, (note,) = initial(trained)
    assert found == {"random": None}
    assert str(trained / "pretrained" / "fr") in note
    with pytest.raises(UserError) as caught:
        initial(trained, "--inits", "pretrained")
    assert all(fact in str(caught.value) for fact in ("--pretrained", str(trained / "data"), "--inits"))


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        ("train --dropout", ["-- --dropout VALUE"]),
        ("train --learning-rate", ["write --lr"]),
        ("train --sedes", ["--seeds"]),
        ("pretrain --out o --epochs", ["-- --max-epoch VALUE"]),
        ("pretrain --out o --learning-rate", ["-- --lr VALUE"]),
        ("train --method tfidf --epochs", ["--epochs", "tfidf has no such hyperparameter"]),
        ("trian --lr", ["train"]),
    ],
)
def test_an_unknown_option_is_answered_with_what_to_write(capsys, words, facts):
    command, *rest = words.split()
    assert main([command, "--data", "bin", *rest, "1"]) == 2
    error = capsys.readouterr().err
    assert all(fact in error for fact in facts)
    assert "--slurm" not in error.splitlines()[-1]
