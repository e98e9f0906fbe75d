import json
from pathlib import Path

import pytest

from roberta_small.common import archive
from roberta_small.common.cli import flags_of
from roberta_small.common.errors import UserError
from roberta_small.experiments.recipe import length as run_length
from roberta_small.experiments.recipe import recipe as recipes


def write(path, text):
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def test_all_recipes_of_the_project_load():
    assert {"reference", "tuned", "sample", "pretrain"} <= set(recipes.known())
    for name in recipes.known():
        assert recipes.load(name).name == name
    with pytest.raises(UserError) as caught:
        recipes.load("referense")
    assert all(name in str(caught.value) for name in ["'referense'", *recipes.known()])


def test_comments_quotes_and_equals_signs(tmp_path):
    path = write(
        tmp_path / "mine.txt",
        '# top\n\n--lr 1e-4 # after\n--adam-betas "(0.9, 0.98)"\n--max-epoch=3\n--flag\n',
    )
    recipe = recipes.load(path)
    assert recipe.name == "mine"
    assert recipe.words == ("--lr", "1e-4", "--adam-betas", "(0.9, 0.98)", "--max-epoch", "3", "--flag")
    assert recipe.max_epoch == 3
    assert recipe.max_update is None
    assert recipe.value("--flag") is None
    assert (recipe.metric, recipe.valid_subsets) == ("loss", ["valid"])
    changed = recipes.load(path, ["--lr=1e-3", "--dropout", "0"])
    assert changed.words == ("--lr", "1e-3", *recipe.words[2:], "--dropout", "0")


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("--lr 1\nlr 2\n", ["line 2: ", "'lr'"]),
        ("--lr 1\n--lr 2\n", ["line 2: ", "--lr"]),
        ('--adam-betas "(0.9\n', ["line 1: ", "quot"]),
        ("--lr 1\n--seed 3\n", ["line 2: ", "--seed", "--seeds"]),
        ("# nothing\n", []),
        ("--lr 1\n--user \0x\n", ["line 2: ", "NUL"]),
        (b"--lr 1\n--user \xff\n", ["line 2: ", "byte 8", "UTF-8"]),
        ("--base none\n--lr 1\n", ["--base none"]),
        ("--base mine.txt\n--lr 1\n", ["--base"]),
        ("--lr 1\n--base reference\n", ["line 2", "--base"]),
        ("--base\n--lr 1\n", ["line 1", "--base"]),
        ("--lr 1\n[large]\n--lr 2\n", ["line 2", "[large]", "[random]"]),
        ("[random]\n--lr 1\n[random]\n--dropout 0\n", ["line 3", "repeated"]),
        ("[random]\n--valid-subset test\n", ["line 2", "--valid-subset"]),
        ("[random]\n--base reference\n", ["line 2", "first line"]),
        ("[random]\n[pretrained]\n", ["no flag"]),
    ],
)
def test_a_malformed_recipe_raises_with_file_and_line(tmp_path, text, facts):
    path = write(tmp_path / "mine.txt", text)
    with pytest.raises(UserError) as caught:
        recipes.load(path)
    assert all(fact in str(caught.value) for fact in [path, *facts])


@pytest.mark.parametrize(("extra", "match"), [(["--save-dir", "x"], "--save-dir.*--out"), (["x"], "'x'")])
def test_reserved_flags_and_other_words_after_the_dashes_raise(extra, match):
    with pytest.raises(UserError, match=f"after --: .*{match}"):
        recipes.load("reference", extra)


RESULTS = Path(__file__).resolve().parents[2] / "results"
RUNS = RESULTS / "first-weights" / "runs.tar.xz"


@pytest.mark.parametrize("name", ["reference", "tuned"])
def test_a_recipe_has_the_flags_of_its_recorded_runs(name):
    flags = run_length.resolve(recipes.load(name), 1800).flags
    contents = [json.loads(path.read_text()) for path in archive.opened(RUNS).rglob("manifest.json")]
    recorded = [flags_of(content["recipe_flags"]) for content in contents if content["recipe"] == name]
    assert any(set(flags.items()) <= set(run.items()) for run in recorded)


def test_causal_roberta_pretrain_has_the_optimization_of_pretrain():
    """Required for a comparison of the two objectives."""
    own, other = recipes.load("causal-roberta-pretrain").flags, recipes.load("pretrain").flags
    differ = {flag for flag in own.keys() | other.keys() if own.get(flag) != other.get(flag)}
    assert differ == {"--task", "--criterion", "--arch", "--bag-of-words", "--mask-prob", "--encoder"}


def test_a_base_is_inherited_replaced_and_extended(tmp_path):
    write(tmp_path / "parent.txt", "--lr 1e-4\n--max-epoch 3\n")
    path = write(tmp_path / "child.txt", "--base parent.txt\n# comment\n--lr 1e-3\n--dropout 0\n")
    assert recipes.load(path) == recipes.Recipe(
        "child", ("--lr", "1e-3", "--max-epoch", "3", "--dropout", "0")
    )
    named = recipes.load(write(tmp_path / "named.txt", "--base reference\n--lr 3e-5\n"))
    assert named.flags == {**recipes.load("reference").flags, "--lr": ("--lr", "3e-5")}


SECTIONED = """
--lr 1e-3
--max-epoch 5
--min-updates 100
[random]
--lr 1e-4
[pretrained]   # from a checkpoint
--lr 5e-5
--batch-size 16
"""


def test_sections_are_of_what_a_run_starts_from(tmp_path):
    path = write(tmp_path / "mine.txt", SECTIONED)
    random, pretrained = (recipes.load(path, start=start) for start in recipes.STARTS)
    assert random.words == ("--lr", "1e-4", "--max-epoch", "5", "--min-updates", "100")
    assert (pretrained.value("--lr"), pretrained.number("--batch-size")) == ("5e-5", 16)
    assert recipes.load(path, ["--lr", "1"], "pretrained").value("--lr") == "1"
    assert set(recipes.places(path)) == {"--lr", "--max-epoch", "--min-updates", "--batch-size"}
    own = "--base mine.txt\n--dropout 0\n[pretrained]\n--batch-size 4\n"
    path = write(tmp_path / "own.txt", own)
    pretrained = recipes.load(path, start="pretrained")
    assert [pretrained.value(flag) for flag in ("--lr", "--batch-size", "--dropout")] == ["5e-5", "4", "0"]
    assert recipes.load(path).value("--batch-size") is None


@pytest.mark.parametrize("flag", ["--max-epoch", "--max-update"])
def test_a_length_of_the_user_replaces_the_least_number_of_updates(tmp_path, flag):
    write(tmp_path / "base.txt", SECTIONED)
    assert recipes.load(str(tmp_path / "base.txt"), [flag, "3"]).value("--min-updates") is None
    path = write(tmp_path / "mine.txt", f"--base base.txt\n{flag} 3\n")
    assert recipes.load(path).value("--min-updates") is None
