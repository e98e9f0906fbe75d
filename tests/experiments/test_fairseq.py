from pathlib import Path

import pytest

from roberta_small.common.errors import UserError
from roberta_small.common.files import shown_path
from roberta_small.common.run import Run
from roberta_small.experiments.methods import fairseq
from roberta_small.experiments.recipe import fairseq_flags
from roberta_small.experiments.recipe import length as run_length
from roberta_small.experiments.recipe import recipe as recipes
from roberta_small.experiments.recipe.recipe import Recipe
from roberta_small.experiments.sweep import Sweep, Training

FLAGS = ("--lr", "1e-4", "--num-classes", "2")


def command(resume=False, checkpoint=Path("a.pt"), cpu=True):
    run, recipe = Run(Path("runs/fairseq/small/seed3"), "fairseq", "small", 3, checkpoint), Recipe("r", FLAGS)
    training = Training(run, recipe, FLAGS, {})
    sweep = Sweep(settings=None, data=Path("bin"), trainings=(training,), recipe=recipe)
    return fairseq.METHOD.command(sweep, training, resume=resume, cpu=cpu)


def test_the_command_is_executed_with_absolute_paths(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    built = command()
    assert " ".join(built.shown) == (
        f"fairseq-train bin --user-dir {fairseq.PLUGIN} --log-format json --log-interval 25 "
        "--lr 1e-4 --num-classes 2 --distributed-world-size 1 --seed 3 --save-dir runs/fairseq/small/seed3 "
        "--tensorboard-logdir runs/fairseq/small/seed3/tensorboard "
        "--restore-file a.pt --reset-optimizer --reset-dataloader --reset-meters --cpu"
    )
    for real, shown in zip(built.argv[len(fairseq.TRAINER) :], built.shown[1:], strict=True):
        assert real in (shown, str(tmp_path / shown))


def test_shards_are_passed_as_a_list_of_folders(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for number in range(2):
        (tmp_path / f"bin/shard{number}").mkdir(parents=True)
    built = command()
    assert built.shown[1] == "bin/shard0:bin/shard1"
    assert built.argv[len(fairseq.TRAINER)] == f"{tmp_path}/bin/shard0:{tmp_path}/bin/shard1"


def test_only_new_runs_with_a_checkpoint_restore_and_reset():
    assert "--restore-file" not in command(checkpoint=None).argv
    assert "--restore-file" not in command(resume=True).argv
    assert "--reset-optimizer" not in command(resume=True).argv


@pytest.mark.parametrize(
    ("tokens", "sentences", "of_gpu"),
    [("4096", "64", ("65536", "1024")), ("3000", "64", ("3000", "1024")), ("4096", "8", ("65536", "8"))],
)
def test_validation_batches_of_a_recipe_are_larger_on_a_gpu(tokens, sentences, of_gpu):
    flags = ("--lr", "4096", "--max-tokens-valid", tokens, "--batch-size-valid", sentences)
    assert fairseq_flags.for_device(flags, cpu=True) == flags
    found = fairseq_flags.for_device(flags, cpu=False)
    assert found == (*flags[:3], of_gpu[0], "--batch-size-valid", of_gpu[1])


def test_processes_that_make_batches_for_a_gpu(monkeypatch):
    monkeypatch.setattr(fairseq_flags, "usable_cores", lambda: 16)
    words = ("--task", "masked_lm")
    assert fairseq_flags.loading(words, cpu=True) == ()
    assert fairseq_flags.loading((*words, "--num-workers", "2"), cpu=False) == ()
    classifier = fairseq_flags.loading(("--task", "sentence_classification"), cpu=False)
    assert classifier == ("--num-workers", "0")
    argv = command(cpu=False).argv
    assert argv[argv.index("--num-workers") + 1] == "8"
    assert "--cpu" not in argv
    assert "--num-workers" not in command(cpu=True).argv


@pytest.mark.parametrize(
    ("path", "shown"),
    [("sub/a", "sub/a"), ("./sub/../a", "a"), ("../a", "../a"), ("/nowhere/a", "/nowhere/a")],
)
def test_shown_paths(monkeypatch, tmp_path, path, shown):
    monkeypatch.chdir(tmp_path)
    assert shown_path(Path(path)) == shown
    assert shown_path(tmp_path / "sub") == "sub"


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (["--word-dropot", "0.1"], ["--word-dropot", "--word-dropout"]),
        (["--max-epoch", "x"], ["--max-epoch"]),
        (["--fp16", "--bf16"], ["fp16"]),
    ],
)
def test_a_wrong_flag_raises_with_the_nearest(words, facts):
    recipe = run_length.resolve(recipes.load("tuned"), 1800)
    fairseq_flags.check(recipe.words)
    with pytest.raises(UserError) as caught:
        fairseq_flags.check([*recipe.words, *words])
    assert all(fact in str(caught.value) for fact in facts)
