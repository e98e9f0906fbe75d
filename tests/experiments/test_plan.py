import zipfile

import pytest

from roberta_small.common import manifest
from roberta_small.common.errors import UserError
from roberta_small.common.run import Run, State
from roberta_small.experiments import plan
from roberta_small.experiments.recipe.recipe import Recipe
from roberta_small.experiments.sweep import Training, run_below

RECIPE = Recipe("test", ("--max-epoch", "2"))
IDENTITY = {
    "data": {"path": "bin", "sha256": {"dict.txt": "0a"}},
    "checkpoint": None,
    "recipe_flags": ["--max-epoch", "2"],
}


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path / "random/seed1", "fairseq", "random", 1, None)


def write(run, status, **changes):
    keys = {"schema": 1, "status": status, "arm": "fairseq", "init": "random", "seed": 1}
    manifest.write(run.folder, keys | {"recipe": "test", "command": []} | IDENTITY | changes)


def checkpoint(path, text="weights"):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data", text)


def inspect(run):
    training = Training(run, RECIPE, RECIPE.words, IDENTITY)
    return plan.inspect(training, lambda folder: plan.newest_intact(folder) is not None)


@pytest.mark.parametrize(
    ("arm", "former"), [("transformers", "hf"), ("transformers,lr=1e-3", "hf,lr=1e-3"), ("tfidf", "bow")]
)
def test_a_run_with_the_former_name_of_its_method_keeps_it(tmp_path, arm, former):
    assert run_below(tmp_path, arm, "random", 1).arm == arm
    old = Run.below(tmp_path, former, "random", 1)
    write(old, "finished", arm=former)
    assert run_below(tmp_path, arm, "random", 1) == old
    assert run_below(tmp_path, arm, "random", 2).arm == arm


def test_a_run_that_another_launcher_starts_meanwhile_is_a_run(run, monkeypatch):
    read = manifest.read

    def read_just_before_the_start(folder):
        found = read(folder)
        write(run, "running")
        (run.folder / "train.log").touch()
        return found

    monkeypatch.setattr(plan.manifest, "read", read_just_before_the_start)
    assert inspect(run).manifest == read(run.folder)


@pytest.mark.parametrize("status", ["running", "failed", "interrupted"])
def test_an_unfinished_run_resumes_if_it_has_a_checkpoint(run, status):
    write(run, status)
    assert inspect(run).state is State.NEW
    checkpoint(run.folder / "checkpoint_last.pt")
    assert inspect(run).state is State.RESUME


@pytest.mark.parametrize("flags", [["--max-epoch", "2"], ["--max-epoch=2"], ["--max-epoch", "2.0"]])
def test_a_finished_run_of_the_same_recipe_is_finished(run, flags):
    write(run, "finished", recipe_flags=flags)
    assert inspect(run).state is State.FINISHED


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({"recipe_flags": ["--max-epoch", "3"]}, ["recipe", "--max-epoch 3", "--max-epoch 2"]),
        ({"recipe_flags": ["--max-epoch", "2", "--fp16"]}, ["recipe", "--fp16"]),
        ({"recipe_flags": []}, ["recipe", "--max-epoch 2"]),
        ({"data": {"path": "old", "sha256": {"dict.txt": "0b"}}}, ["dict.txt", "old", "bin"]),
        ({"seed": 2}, ["seed", "2", "1"]),
        ({"checkpoint": {"path": "a.pt", "sha256": "0c"}}, ["checkpoint", "a.pt", "random weights"]),
        ({"teacher": {"path": "e5", "sha256": "0c"}}, ["another teacher", "e5", "none"]),
    ],
)
def test_a_run_of_another_experiment_raises(run, changes, facts):
    write(run, "interrupted", **changes)
    with pytest.raises(UserError) as caught:
        inspect(run)
    place, _, difference = str(caught.value).partition("manifest.json: ")
    assert place == f"{run.folder}/"
    assert all(fact in difference for fact in ["--out", *facts])


OTHER_FLAGS = {"recipe_flags": ["--max-epoch", "3"]}
INNER = '2026-01-02 03:04:05 | INFO | train_inner | {"epoch": 1, "num_updates": "25"}\n'
VALID = '2026-01-02 03:04:05 | INFO | valid | {"epoch": 1, "valid_loss": "1", "valid_num_updates": "9"}\n'


@pytest.mark.parametrize(
    ("status", "changes", "name", "content"),
    [
        *((status, OTHER_FLAGS, "train.log", "") for status in ("finished", "interrupted", "running")),
        ("failed", {"seed": 2}, "train.log", ""),
        ("failed", OTHER_FLAGS, "train.log", INNER),
        ("failed", OTHER_FLAGS, "train.log", VALID),
        ("failed", OTHER_FLAGS, "checkpoint_last.pt", "truncated"),
        ("failed", OTHER_FLAGS, "trainer/checkpoint-12/trainer_state.json", "{}"),
    ],
)
def test_another_run_that_may_have_updates_is_not_replaced(run, status, changes, name, content):
    write(run, status, **changes)
    (run.folder / name).parent.mkdir(parents=True, exist_ok=True)
    (run.folder / name).write_text(content)
    with pytest.raises(UserError):
        inspect(run)


@pytest.mark.parametrize(
    ("changes", "replaced"),
    [
        ({}, False),
        ({"data": {"path": "old", "sha256": {"dict.txt": "0b"}}}, True),
        ({"checkpoint": {"path": "a.pt", "sha256": "0c"}}, True),
    ],
)
def test_a_run_that_failed_without_an_update_is_replaced_by_another_one(run, changes, replaced):
    write(run, "failed", **changes)
    planned = inspect(run)
    assert (planned.state, planned.replaces) == (State.NEW, replaced)


def test_a_truncated_last_checkpoint_is_replaced_by_the_newest_intact_one(run):
    write(run, "interrupted")
    best, last = run.folder / "checkpoint_best.pt", run.folder / "checkpoint_last.pt"
    checkpoint(best, "newest" * 100)
    last.write_bytes(best.read_bytes()[:50])
    assert inspect(run).state is State.RESUME
    plan.repair(run.folder)
    assert last.read_bytes() == best.read_bytes()
    checkpoint(best, "another")  # an intact one is kept
    plan.repair(run.folder)
    assert last.read_bytes() != best.read_bytes()
