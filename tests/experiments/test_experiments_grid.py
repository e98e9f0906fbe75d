import re
import shlex
import shutil
from pathlib import Path

import pytest

from common import manifest
from common.errors import UserError
from common.run import Run
from experiments import grid
from experiments.settings import train_settings

RANDOM = ["--inits", "random", "--seeds", "1"]


@pytest.mark.parametrize(
    ("words", "parsed"),
    [
        ([], {}),
        (["lr=1e-5,3e-5"], {"lr": ("1e-5", "3e-5")}),
        (["--lr=1e-5"], {"lr": ("1e-5",)}),
        (["lr=1", "max-epoch=2,3"], {"lr": ("1",), "max-epoch": ("2", "3")}),
    ],
)
def test_a_grid_is_read(words, parsed):
    assert grid.parse(words) == parsed


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["lr"], "write FLAG=VALUE,VALUE"),
        (["=1"], "write FLAG=VALUE,VALUE"),
        (["l r=1"], "write FLAG=VALUE,VALUE"),
        (["lr="], "'' cannot be part of a folder's name"),
        (["lr=1,,2"], "'' cannot be part of a folder's name"),
        (["lr=../1"], "'../1' cannot be part of a folder's name"),
        (["lr=-1"], "'-1' cannot be part of a folder's name"),
        (["lr=1e-4,0.0001"], "0.0001 is given twice"),
        (["optimizer=adam,adam"], "adam is given twice"),
        (["lr=1", "lr=2"], "'lr' is given twice"),
        (["best-checkpoint-metric=loss"], "must be judged alike"),
    ],
)
def test_what_cannot_name_a_run_is_refused(words, said):
    with pytest.raises(UserError, match=re.escape(said)):
        grid.parse(words)


def test_flags_add_up_and_win_over_the_variable():
    environ = {"DATA": "d", "INITS": "random", "GRID": "lr=1 dropout=0.1,0.2"}
    assert train_settings([], environ).grid == {"lr": ("1",), "dropout": ("0.1", "0.2")}
    words = ["--grid", "lr=2", "clip-norm=1", "--grid", "dropout=0"]
    assert train_settings(words, environ).grid == {"lr": ("2",), "clip-norm": ("1",), "dropout": ("0",)}
    assert train_settings([], {"DATA": "d", "INITS": "random"}).grid == {}


def test_every_combination_is_named_by_what_the_recipe_does_not_say(here):
    words = {"lr": ("1e-3", "0.0001"), "dropout": ("0.1", "0.2")}
    found = grid.variants("arm", "quick.txt", ["--clip-norm", "1"], words)
    # The recipe says --lr 1e-4 and nothing of dropout.
    assert [variant.arm for variant in found] == [
        "arm,dropout=0.1,lr=1e-3",
        "arm,dropout=0.2,lr=1e-3",
        "arm,dropout=0.1",
        "arm,dropout=0.2",
    ]
    assert [variant.recipe.value("--lr") for variant in found] == ["1e-3", "1e-3", "1e-4", "1e-4"]
    assert [variant.recipe.value("--dropout") for variant in found] == ["0.1", "0.2", "0.1", "0.2"]
    assert {variant.recipe.value("--clip-norm") for variant in found} == {"1"}
    assert [variant.arm for variant in grid.variants("arm", "quick.txt", [], {})] == ["arm"]


def test_a_flag_is_given_once(here):
    with pytest.raises(UserError, match="--lr is both in --grid and after --"):
        grid.variants("arm", "quick.txt", ["--lr", "1"], {"lr": ("2",)})
    with pytest.raises(UserError, match="--seed is set by the sweep"):
        grid.variants("arm", "quick.txt", [], {"seed": ("2",)})


def test_a_run_is_named_after_its_setting():
    run = Run(Path("r"), "fairseq,dropout=0.1,lr=1e-3", "random", 2, None)
    assert (run.setting, run.label) == ("dropout=0.1,lr=1e-3", "dropout=0.1,lr=1e-3/random/seed2")


def test_the_runs_of_a_grid_keep_the_contract(sweep, starts):
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
    assert summary.strip().splitlines()[-1].split()[:3] == ["lr=1e-3", "random", "2"]


def test_a_larger_grid_and_the_recipe_itself_find_the_runs_again(sweep, starts):
    assert sweep(*RANDOM, "--grid", "lr=1e-4,1e-3")[0] == 0
    code, out, _ = sweep(*RANDOM, "--grid", "lr=1e-4,1e-3,1e-2", "dropout=0.1")
    assert code == 0
    assert out.count("skipped") == 0  # a dropout is another setting of each
    code, out, _ = sweep(*RANDOM, "--grid", "lr=1e-4,1e-3,1e-2")
    assert (code, out.count("finished: skipped")) == (0, 2)
    code, out, _ = sweep(*RANDOM)
    assert (code, out.count("finished: skipped")) == (0, 1)
    assert len(starts("runs/fairseq/random/seed1")) == 1
    assert "setting" not in out


def test_one_setting_resumes_where_it_was(sweep, starts):
    words = [*RANDOM, "--grid", "lr=1e-3,1e-4"]
    assert sweep(*words)[0] == 0
    run = Path("runs/fairseq,lr=1e-3/random/seed1")
    manifest.write(run, manifest.read(run) | {"status": "interrupted"})
    shutil.rmtree("runs/fairseq/random/seed1")
    code, out, _ = sweep(*words)
    assert code == 0
    assert "resume after epoch 2, update 20" in out
    assert [len(starts(r)) for r in (run, "runs/fairseq/random/seed1")] == [2, 1]


def test_limits_are_those_of_each_setting(sweep, starts):
    code, out, _ = sweep(*RANDOM, "--grid", "max-epoch=2,3")
    assert code == 0
    assert "random/seed1  epoch 2/2" in out
    assert "max-epoch=3/random/seed1  epoch 3/3" in out
    assert out.strip().splitlines()[-1].split()[3:6] == ["finished", "3", "80"]


def test_a_dry_run_shows_the_commands_of_every_setting(sweep):
    code, out, _ = sweep(*RANDOM, "--grid", "lr=1e-4,1e-3", "--dry-run")
    assert code == 0
    assert not Path("runs").exists()
    commands = [shlex.split(line) for line in out.splitlines() if line.startswith("fairseq-train")]
    assert [command[command.index("--lr") + 1] for command in commands] == ["1e-4", "1e-3"]
    assert "# lr=1e-3/random/seed1" in out


def test_a_mistake_in_the_grid_is_a_clear_error(sweep):
    code, out, err = sweep(*RANDOM, "--grid", "lr")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert not Path("runs").exists()
