import json
import re

import fake_trainer
import pytest

from common.errors import UserError
from experiments import pretrain, provenance, recipes
from experiments.__main__ import main
from experiments.progress import Progress
from experiments.recipes import Recipe

BATCH = ("--batch-size", "16", "--update-freq", "2", "--tokens-per-sample", "256")
WORDS = (*BATCH, "--lr-scheduler", "polynomial_decay")


def test_a_budget_in_tokens_becomes_updates(capsys):
    recipe = pretrain.with_budget(Recipe("r", WORDS), 5_000_000)
    # 5,000,000 / (16 x 2 x 256) = 610.35
    assert recipe.number("--max-update") == recipe.number("--total-num-update") == 611
    assert recipe.number("--warmup-updates") == 37
    assert "5,000,000 tokens at 8,192 an update: 611 updates (5,005,312 tokens)" in capsys.readouterr().out


def test_a_budget_counts_what_all_processes_see():
    assert pretrain.tokens_per_update(Recipe("r", (*WORDS, *pretrain.shared_by(3)))) == 3 * 16 * 2 * 256


def test_warm_up_and_schedule_of_the_recipe_are_kept():
    words = (*WORDS, "--warmup-updates", "5", "--total-num-update", "9000")
    recipe = pretrain.with_budget(Recipe("r", words), 5_000_000)
    assert (recipe.number("--warmup-updates"), recipe.number("--total-num-update")) == (5, 9000)


@pytest.mark.parametrize(
    ("schedule", "flags"),
    [
        ("polynomial_decay", ["--max-update", "--total-num-update", "--warmup-updates"]),
        ("fixed", ["--max-update", "--warmup-updates"]),
        (None, ["--max-update", "--warmup-updates"]),
        ("triangular", ["--max-update"]),
    ],
)
def test_a_schedule_gets_the_flags_that_it_has(schedule, flags):
    words = BATCH if schedule is None else (*BATCH, "--lr-scheduler", schedule)
    recipe = pretrain.with_budget(Recipe("r", words), 5_000_000)
    assert list(recipe.words[len(words) :: 2]) == flags


@pytest.mark.parametrize(
    ("words", "tokens", "said"),
    [
        (WORDS, None, "give the length of the training once"),
        ((*WORDS, "--max-update", "5"), 100, "give the length of the training once"),
        ((*WORDS, "--warmup-updates", "611"), 5_000_000, "--warmup-updates 611"),
        (("--max-tokens", "99"), 100, "--tokens needs --batch-size"),
    ],
)
def test_a_budget_that_cannot_be(words, tokens, said):
    with pytest.raises(UserError, match=re.escape(said)):
        pretrain.with_budget(Recipe("r", words), tokens)


def test_a_length_in_updates_is_left_alone():
    recipe = Recipe("r", (*WORDS, "--max-update", "5"))
    assert pretrain.with_budget(recipe, None) is recipe


def test_a_budget_in_hours_changes_the_schedule():
    words = (*WORDS, "--lr-scheduler", "polynomial_decay", "--lr", "1e-3")
    recipe = pretrain.with_budget(Recipe("r", words), None, 1.5)
    assert recipe.value("--lr-scheduler") == "time_budget"
    assert (recipe.hours, recipe.value("--lr"), recipe.max_update) == (1.5, "1e-3", None)
    assert Progress(recipe, seconds=2700).fraction() == 0.5
    with pytest.raises(UserError, match=r"--hours: .*--warmup-updates"):
        pretrain.with_budget(Recipe("r", (*words, "--warmup-updates", "5")), None, 1.5)
    with pytest.raises(UserError, match="length of the training once"):
        pretrain.with_budget(Recipe("r", words), 100, 1.5)


def test_the_recipe_of_the_project_takes_a_budget():
    recipe = pretrain.with_budget(recipes.load("pretrain"), 10**6)
    assert recipe.number("--max-update") == -(-(10**6) // pretrain.tokens_per_update(recipe))


@pytest.fixture
def run(here, capfd, monkeypatch):
    """Run pretrain.sh's Python with the fake trainer, and weights copied instead of exported."""
    monkeypatch.setattr(pretrain, "export", lambda folder, data: (folder / "model.pt").write_text("weights"))

    def call(*words, settings=()):
        flags = ["--data", "bin/input0", "--out", "pré/fr", "--recipe", "quick.txt", "--device", "cpu"]
        code = main(
            ["pretrain", *flags, *settings, "--", "--max-update", "20", "--valid-subset", "valid", *words],
            trainer=fake_trainer.COMMAND,
        )
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return call


def test_one_run_in_its_own_folder(run, here):
    code, _out, err = run()
    assert (code, err) == (0, "")
    content = json.loads((here / "pré/fr/manifest.json").read_text())
    assert (content["arm"], content["init"], content["seed"]) == ("pretrain", "random", 1)
    assert (content["status"], content["checkpoint"]) == ("finished", None)
    assert sorted(content["data"]["sha256"]) == [
        "dict.txt",
        "train.bin",
        "train.idx",
        "valid.bin",
        "valid.idx",
    ]
    assert "--num-classes" not in content["command"]
    assert (here / "pré/fr/model.pt").is_file()
    assert "nothing to do" in run()[1]


def test_processes_share_the_cores_and_are_part_of_the_recipe(run, starts, monkeypatch):
    monkeypatch.setattr(provenance, "_cores", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert run(settings=("--processes", "4"))[0] == 0
    (start,) = starts("pré/fr")
    assert "--distributed-world-size 4" in " ".join(start["argv"])
    assert start["env"]["OMP_NUM_THREADS"] == "2"
    code, _, error = run()
    assert code == 1
    assert "--distributed-world-size 4, now without it" in error


def test_a_model_that_cannot_be_written_is_a_failure(run, here, monkeypatch):
    def fail(folder, data):
        raise UserError("checkpoint_best.pt: cut short")

    monkeypatch.setattr(pretrain, "export", fail)
    code, out, _ = run()
    assert code == 1
    assert "failed: checkpoint_best.pt: cut short" in out
    assert json.loads((here / "pré/fr/manifest.json").read_text())["status"] == "failed"
