import json

import pytest

from roberta_small.common.errors import UserError
from roberta_small.experiments import provenance
from roberta_small.experiments.__main__ import main
from roberta_small.experiments.methods import pretrain
from roberta_small.experiments.progress import Progress
from roberta_small.experiments.recipe.recipe import Recipe
from tests.support import fake_trainer

BATCH = ("--batch-size", "16", "--update-freq", "2", "--tokens-per-sample", "256")
WORDS = (*BATCH, "--lr-scheduler", "polynomial_decay")


def with_budget(*args):
    return pretrain.with_budget(*args)[0]


def test_tokens_are_converted_to_updates():
    recipe, (printed,) = pretrain.with_budget(Recipe("r", WORDS), 5_000_000)
    # 5,000,000 / (16 x 2 x 256) = 610.35
    assert recipe.number("--max-update") == recipe.number("--total-num-update") == 611
    assert recipe.number("--warmup-updates") == 37
    assert all(number in printed for number in ("5,000,000", "8,192", "611", "5,005,312"))
    own = Recipe("r", (*WORDS, "--warmup-updates", "5", "--total-num-update", "9000"))
    recipe = with_budget(own, 5_000_000)
    assert (recipe.number("--warmup-updates"), recipe.number("--total-num-update")) == (5, 9000)
    assert (
        pretrain.tokens_per_update(Recipe("r", (*WORDS, "--distributed-world-size", "3"))) == 3 * 16 * 2 * 256
    )


@pytest.mark.parametrize(
    ("schedule", "flags"),
    [
        ("polynomial_decay", ["--max-update", "--total-num-update", "--warmup-updates"]),
        ("fixed", ["--max-update", "--warmup-updates"]),
        (None, ["--max-update", "--warmup-updates"]),
        ("triangular", ["--max-update"]),
    ],
)
def test_only_flags_of_the_schedule_are_added(schedule, flags):
    words = BATCH if schedule is None else (*BATCH, "--lr-scheduler", schedule)
    recipe = with_budget(Recipe("r", words), 5_000_000)
    assert list(recipe.words[len(words) :: 2]) == flags


@pytest.mark.parametrize(
    ("words", "tokens", "facts"),
    [
        (WORDS, None, ["--tokens", "--hours", "--max-update"]),
        ((*WORDS, "--max-update", "5"), 100, ["--tokens", "--hours", "--max-update"]),
        ((*WORDS, "--warmup-updates", "611"), 5_000_000, ["--tokens 5000000", "--warmup-updates 611"]),
        (("--max-tokens", "99"), 100, ["--tokens", "--batch-size"]),
    ],
)
def test_invalid_lengths_raise(words, tokens, facts):
    with pytest.raises(UserError) as caught:
        pretrain.with_budget(Recipe("r", words), tokens)
    assert all(fact in str(caught.value) for fact in facts)


def test_hours_select_the_schedule_over_time():
    words = (*WORDS, "--lr-scheduler", "polynomial_decay", "--lr", "1e-3")
    recipe = with_budget(Recipe("r", words), None, 1.5)
    assert recipe.value("--lr-scheduler") == "time_budget"
    assert (recipe.hours, recipe.value("--lr"), recipe.max_update) == (1.5, "1e-3", None)
    assert Progress(recipe, seconds=2700).fraction() == 0.5
    with pytest.raises(UserError, match=r"--hours: .*--warmup-updates"):
        pretrain.with_budget(Recipe("r", (*words, "--warmup-updates", "5")), None, 1.5)
    with pytest.raises(UserError, match=r"--tokens, --hours"):
        pretrain.with_budget(Recipe("r", words), 100, 1.5)


@pytest.fixture
def run(here, capfd, monkeypatch):
    """Run pretrain.sh's Python with the fake trainer and a fake export: exit code, stdout, stderr."""

    def finish(self, sweep, folder):
        (folder / "model.pt").write_text("weights")
        return {}

    monkeypatch.setattr(pretrain.Pretrain, "finish", finish)

    def call(*words, settings=()):
        flags = ["--data", "bin/input0", "--out", "pré/fr", "--recipe", "quick.txt", "--device", "cpu"]
        code = main(
            ["pretrain", *flags, *settings, "--", "--max-update", "20", "--valid-subset", "valid", *words],
            trainer=fake_trainer.COMMAND,
        )
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return call


def test_a_run_writes_manifest_and_model(run, here, starts):
    code, _out, err = run()
    assert (code, err) == (0, "")
    assert run()[0] == 0
    assert len(starts("pré/fr")) == 1  # a finished run is skipped
    content = json.loads((here / "pré/fr/manifest.json").read_text())
    assert (content["arm"], content["init"], content["seed"]) == ("pretrain", "random", 1)
    assert (content["status"], content["checkpoint"]) == ("finished", None)
    files = ["dict.txt", "train.bin", "train.idx", "valid.bin", "valid.idx"]
    assert sorted(content["data"]["sha256"]) == files
    assert "--num-classes" not in content["command"]
    assert (here / "pré/fr/model.pt").is_file()


def test_processes_share_the_cores_and_are_part_of_the_recipe(run, starts, monkeypatch):
    monkeypatch.setattr(provenance, "usable_cores", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert run(settings=("--processes", "4"))[0] == 0
    (start,) = starts("pré/fr")
    assert "--distributed-world-size 4" in " ".join(start["argv"])
    assert start["env"]["OMP_NUM_THREADS"] == "2"
    code, _, error = run()
    assert code == 1
    assert "--distributed-world-size 4" in error


def test_a_run_whose_model_cannot_be_exported_is_failed(run, here, monkeypatch):
    def fail(self, sweep, folder):
        raise UserError("checkpoint_best.pt: truncated")

    monkeypatch.setattr(pretrain.Pretrain, "finish", fail)
    code, out, _ = run()
    assert code == 1
    assert "checkpoint_best.pt: truncated" in out
    assert json.loads((here / "pré/fr/manifest.json").read_text())["status"] == "failed"
