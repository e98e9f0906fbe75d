"""A task of a job array, run in this process and from another folder."""

from pathlib import Path

import pytest
from slurm_runs import RANDOM, RUN1, RUN2, calls

from roberta_small.common import manifest
from roberta_small.experiments import provenance
from roberta_small.experiments.__main__ import main
from roberta_small.experiments.launchers import local
from roberta_small.experiments.launchers.slurm import task as slurm_task


@pytest.fixture
def task(submit, cluster, here, capfd, monkeypatch, request):
    """Run a task of a submission that the fake SLURM holds; returns exit code, stdout and stderr."""
    (cluster / "hold").touch()
    submit(*RANDOM, "--no-wait", *getattr(request, "param", []))
    (path,) = Path("runs/.slurm").absolute().glob("*.json")

    def run(index="0"):
        monkeypatch.setenv(slurm_task.INDEX, index)
        monkeypatch.chdir("/")
        code = main(["task", str(path)])
        monkeypatch.chdir(here)
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    run.path = path
    return run


def test_a_task_trains_only_its_run(task, starts, status):
    assert task("1")[0] == 0
    assert status(RUN2) == "finished"
    assert not RUN1.exists()
    assert task("1")[0] == 0
    assert len(starts(RUN2)) == 1


@pytest.mark.parametrize("task", [["--device", "auto", "--gpus", "1"]], indirect=True)
def test_a_gpu_is_requested_and_required_on_the_node(task, cluster, starts, monkeypatch):
    assert "--gres=gpu:1" in calls(cluster)[0]
    monkeypatch.setattr(provenance, "_gpus", lambda: ())
    code, _, err = task()
    assert (code, err.count("\n")) == (1, 1)
    assert "--device cuda" in err
    assert not RUN1.exists()
    monkeypatch.setattr(provenance, "_gpus", lambda: ("a GPU", "another GPU"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert task()[0] == 0
    assert manifest.read(RUN1)["hardware"]["gpu"] == "a GPU"
    assert starts(RUN1)[0]["env"]["CUDA_VISIBLE_DEVICES"] == "1"
    assert "--cpu" not in starts(RUN1)[0]["argv"]


def test_a_run_of_another_task_is_an_error(task, here, monkeypatch):
    monkeypatch.setattr(slurm_task, "LOCK_SECONDS", 0.1)
    with local.locked(here / "runs/.slurm/fairseq/random/seed1"):
        code, _, err = task()
        assert code == 1
        assert "runs/.slurm/fairseq/random/seed1/.lock" in err
        assert task("1")[0] == 0


def test_an_input_that_changed_since_the_submission_is_an_error(task, here):
    (here / "bin/input0/train.bin").write_text("other")
    code, _, err = task()
    assert (code, err.count("\n")) == (1, 1)
    assert "input0/train.bin: " in err
    assert not RUN1.exists()


def test_a_task_outside_slurm_is_an_error(task):
    code, _, err = task("")
    assert (code, err.count("\n")) == (1, 1)
    assert "SLURM_ARRAY_TASK_ID" in err
    assert not RUN1.exists()


def test_an_invalid_submission_file_is_an_error(task):
    for other in ('{"experiment": {"runs": 1}}', '{"experiment": {"recipes": []}}', "[" * 100_000):
        task.path.write_text(other)
        code, _, err = task()
        assert (code, err.count("\n")) == (1, 1)
        assert err.startswith(f"error: {task.path}: ")
