from pathlib import Path

import pytest

from roberta_small.common import manifest
from roberta_small.common.errors import UserError
from roberta_small.experiments.recipe import recipe as recipes
from tests.support.parsed import table, train_settings


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (["lr"], ["'lr'", "FLAG=VALUE,VALUE"]),
        (["=1"], ["'=1'", "FLAG=VALUE,VALUE"]),
        (["l r=1"], ["'l r=1'", "FLAG=VALUE,VALUE"]),
        (["lr="], ["'lr='", " '' "]),
        (["lr=1,,2"], ["'lr=1,,2'", " '' "]),
        (["lr=../1"], [" '../1' "]),
        (["lr=-1"], [" '-1' "]),
        (["lr=1e-4,0.0001"], ["'lr=1e-4,0.0001'", " 0.0001 "]),
        (["optimizer=adam,adam"], [" adam "]),
        (["lr=1", "lr=2"], ["'lr'"]),
        (["best-checkpoint-metric=loss"], ["--best-checkpoint-metric"]),
        (["seed=2"], ["--seed "]),
    ],
)
def test_invalid_grids_raise(words, facts):
    with pytest.raises(UserError) as caught:
        recipes.parse_grid(words)
    assert all(fact in str(caught.value) for fact in ["--grid", *facts])


def test_repeated_options_are_joined_and_replace_the_variable():
    environ = {"RS_DATA": "d", "RS_INITS": "random", "RS_GRID": "lr=1 dropout=0.1,0.2"}
    assert train_settings([], environ).grid == {"lr": ("1",), "dropout": ("0.1", "0.2")}
    words = ["--grid", "lr=2", "clip-norm=1", "--grid", "dropout=0"]
    assert train_settings(words, environ).grid == {"lr": ("2",), "clip-norm": ("1",), "dropout": ("0",)}
    assert train_settings([], {"RS_DATA": "d", "RS_INITS": "random"}).grid == {}


def test_every_combination_is_named_after_its_differences_from_the_recipe(here):
    values = {"lr": ("1e-3", "0.0001"), "dropout": ("0.1", "0.2")}
    found = recipes.variants("arm", recipes.load("quick.txt", ["--clip-norm", "1"]), values)
    # The recipe contains --lr 1e-4 and no --dropout.
    assert [arm for arm, _ in found] == [
        "arm,dropout=0.1,lr=1e-3",
        "arm,dropout=0.2,lr=1e-3",
        "arm,dropout=0.1",
        "arm,dropout=0.2",
    ]
    assert [recipe.value("--lr") for _, recipe in found] == ["1e-3", "1e-3", "1e-4", "1e-4"]
    assert [recipe.value("--dropout") for _, recipe in found] == ["0.1", "0.2", "0.1", "0.2"]
    assert {recipe.value("--clip-norm") for _, recipe in found} == {"1"}
    assert recipes.variants("arm", recipes.load("quick.txt"), {}) == [("arm", recipes.load("quick.txt"))]


def test_each_setting_of_a_grid_is_trained_in_its_folder(sweep, starts):
    code, out, err = sweep("--inits", "random", "--seeds", "1", "2", "--grid", "lr=1e-4,1e-3")
    assert (code, err) == (0, "")
    for arm, lr in (("fairseq", "1e-4"), ("fairseq,lr=1e-3", "1e-3")):
        for seed in (1, 2):
            run = Path(f"runs/{arm}/random/seed{seed}")
            content = manifest.read(run)
            assert (content["status"], content["arm"], content["seed"]) == ("finished", arm, seed)
            flags = content["recipe_flags"]
            assert flags[flags.index("--lr") + 1] == lr
            argv = starts(run)[0]["argv"]
            assert argv[argv.index("--lr") + 1] == lr
            assert argv[argv.index("--save-dir") + 1].endswith(str(run))
    plan, _, summary = out.partition("\n\n")
    assert plan.splitlines()[0].split() == ["setting", "init", "seed", "state"]
    assert plan.count("as the recipe") == plan.count("lr=1e-3") == 2
    assert "lr=1e-3/random/seed1  finished" in summary
    assert table(out)[-1][:3] == ["lr=1e-3", "random", "2"]

    # A larger grid and the recipe alone skip the finished runs.
    larger = ["--grid", "lr=1e-4,1e-3,1e-2"]
    for words, skipped in (([*larger, "dropout=0.1"], 0), (larger, 2), ([], 1)):
        code, out, _ = sweep("--inits", "random", "--seeds", "1", *words, "--dry-run")
        assert (code, out.count("finished (skipped)")) == (0, skipped)
    assert "setting" not in out.partition("\n\n")[0]
