"""train.sh --launcher slurm, with commands that stand for SLURM's and start the tasks here."""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import fake_slurm
import fake_trainer
import pytest
from signals import restore_defaults

from common import manifest
from common.errors import UserError
from experiments import ROOT
from experiments.launchers import local
from experiments.launchers.slurm import queue

RANDOM = ["--inits", "random", "--seeds", "1", "2"]
RUN1, RUN2 = Path("runs/fairseq/random/seed1"), Path("runs/fairseq/random/seed2")
PASSING = ("started", "ended", "seconds", "command", "hardware")


def calls(cluster):
    """The words of each sbatch."""
    return [json.loads(line) for line in (cluster / "calls").read_text().splitlines()]


def until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def questions(cluster, more):
    """Wait until the queue has been asked so many times more."""
    before = len((cluster / "asked").read_text())
    until(lambda: len((cluster / "asked").read_text()) >= before + more)


@contextlib.contextmanager
def while_it_waits(cluster, action):
    """Do something beside a sweep that waits for tasks: its first question is before it submits."""

    def act():
        questions(cluster, 2)
        action()

    helper = threading.Thread(target=act)
    helper.start()
    yield
    helper.join()


def stays(content):
    return {key: value for key, value in content.items() if key not in PASSING}


def table(out):
    """The table at the end, without its times."""
    lines = out[out.rindex("init ") :].splitlines()
    return [line.split()[:-1] for line in lines if line]


def test_the_same_runs_and_table_as_on_one_machine(sweep, submit, starts):
    words = [
        "--inits",
        "random",
        "pretrained",
        "--pretrained",
        "model.pt",
        "--seeds",
        "1",
        "--grid",
        "lr=1e-4,1",
    ]
    # Everything that a shell, SLURM's patterns or a careless split would change.
    far = "là bas %j%%A 'x' $(y)\n;z"
    here_code, here_out, _ = sweep(*words, "--out", "here")
    far_code, far_out, err = submit(*words, "--out", far, "--cpus", "3")
    assert (here_code, far_code, err) == (0, 0, "")
    assert table(far_out) == table(here_out)
    for arm in ("fairseq", "fairseq,lr=1"):
        for init in ("random", "pretrained"):
            here, there = Path("here") / arm / init / "seed1", Path(far) / arm / init / "seed1"
            assert {path.name for path in there.iterdir()} == {path.name for path in here.iterdir()}
            assert (there / "train.log").read_text() == (here / "train.log").read_text().replace("here", far)
            mine, theirs = manifest.read(here), manifest.read(there)
            assert stays(theirs) == stays(mine)
            assert theirs["command"] == [word.replace("here", far) for word in mine["command"]]
            assert theirs["hardware"] == mine["hardware"] | {"threads": 3}
            assert starts(there)[0]["env"] == starts(here)[0]["env"] | {"OMP_NUM_THREADS": "3"}
    assert far_out.count("finished  valid accuracy 70") == 4
    assert "All runs are finished" in submit(*words, "--out", far)[1]


def test_what_sbatch_is_asked_for(submit, cluster):
    words = ["--partition", "gpu", "--time", "2:00:00", "--memory", "4G", "--cpus", "2", "--throttle", "1"]
    (cluster / "hold").touch()
    code, out, _ = submit(*RANDOM, *words, "--no-wait", "--slurm", "--account=lab --comment 'a b'")
    assert code == 0
    ((*asked,),) = calls(cluster)
    for word in (
        *("--array=0-1%1", "--cpus-per-task=2", "--partition=gpu", "--time=2:00:00", "--mem=4G", "--requeue"),
        *("--account=lab", "a b", f"--chdir={Path('runs/.slurm').absolute()}"),
    ):
        assert word in asked
    assert not any(word.startswith("--gres") for word in asked)
    assert "Submitted 2 runs as job 17" in out


def test_a_backslash_is_more_than_slurm_can_do(submit, cluster):
    code, _, err = submit(*RANDOM, "--out", "a\\b")
    assert (code, err.count("\n")) == (1, 1)
    assert "a\\b" in err
    assert "--out" in err
    assert not (cluster / "calls").exists()


def test_dry_run_submits_nothing(submit, cluster):
    code, out, _ = submit(*RANDOM, "--dry-run", "--cpus", "5")
    assert code == 0
    assert "OMP_NUM_THREADS=5" in out
    assert out.count("\nfairseq-train ") == 2
    assert "--array=0-1" in out
    assert not (cluster / "calls").exists()
    assert not Path("runs").exists()


def test_what_is_in_the_queue_is_not_submitted_twice(submit, cluster, starts):
    (cluster / "hold").touch()
    code, out, _ = submit(*RANDOM, "--no-wait")
    assert code == 0
    assert "Submitted 2 runs" in out
    assert "without --no-wait waits" in out
    code, out, _ = submit("--inits", "random", "--seeds", "1", "2", "3", "--no-wait")
    assert out.count("queued: not submitted again") == 2
    assert "Submitted 1 run " in out
    assert [word for words in calls(cluster) for word in words if "--array" in word] == [
        "--array=0-1",
        "--array=0-0",
    ]
    (cluster / "hold").unlink()
    code, out, _ = submit("--inits", "random", "--seeds", "1", "2", "3")
    assert code == 0
    assert out.count("finished  valid accuracy 70") + out.count("finished: skipped") == 3
    assert len(calls(cluster)) == 2
    assert [len(starts(f"runs/fairseq/random/seed{seed}")) for seed in (1, 2, 3)] == [1, 1, 1]


def test_a_task_that_slurm_holds_is_said_once(submit, cluster):
    (cluster / "hold").touch()
    submit(*RANDOM, "--no-wait")
    (name,) = (word.removeprefix("--job-name=") for word in calls(cluster)[0] if "--job-name" in word)
    fake_slurm.write_in(cluster, "17_0", "PENDING", name, "JobHeldAdmin")

    def release():
        questions(cluster, 3)
        (cluster / "hold").unlink()

    with while_it_waits(cluster, release):
        code, out, _ = submit(*RANDOM)
    assert code == 0
    (held,) = (line for line in out.splitlines() if "JobHeldAdmin" in line and "scontrol" in line)
    assert held.startswith("random/seed1  ")
    assert "scontrol release 17_0" in held
    assert "random/seed2  is held" not in out


def test_another_experiment_in_the_queue_is_refused(submit, cluster):
    (cluster / "hold").touch()
    submit(*RANDOM, "--no-wait")
    code, _, err = submit(*RANDOM, "--no-wait", "--", "--lr", "1")
    assert (code, err.count("\n")) == (1, 1)
    assert err.startswith(f"error: {RUN1}: ")
    assert "scancel --name=" in err
    assert len(calls(cluster)) == 1


def test_a_cancelled_task_is_not_finished_and_the_same_command_goes_on(submit, cluster, starts, status):
    def cancel():
        until(lambda: RUN1.joinpath("train.log").exists() and "Saved" in (RUN1 / "train.log").read_text())
        subprocess.run(["scancel", "17_0"], check=True)

    helper = threading.Thread(target=cancel)
    helper.start()
    code, out, err = submit(*RANDOM, "--", "--hang-seed", "1")
    helper.join()
    assert (code, err) == (1, "")
    assert table(out)[1][:3] == ["random", "1", "not"]
    assert "random/seed1 is not finished: task 17_0 CANCELLED" in out
    assert "resumes" in out
    assert (status(RUN1), status(RUN2)) == ("interrupted", "finished")
    code, out, _ = submit(*RANDOM, "--", "--hang-seed", "1")
    assert code == 0
    assert "resume after epoch 1, update 10" in out
    assert (len(starts(RUN1)), len(starts(RUN2))) == (2, 1)
    assert "--array=0-0" in calls(cluster)[1]


def test_a_failed_run_is_reported_and_the_others_finish(submit, status):
    code, out, _ = submit(*RANDOM, "--", "--fail-seed", "1")
    assert code == 1
    assert (status(RUN1), status(RUN2)) == ("failed", "finished")
    report = out[out.index("random/seed1 failed: task 17_0 FAILED") :]
    assert "the trainer ended with exit code 3" in report
    assert "RuntimeError: the loss is not a number" in report


def test_a_task_that_vanished_is_not_finished(submit, cluster):
    (cluster / "hold").touch()
    submit(*RANDOM, "--no-wait")
    with while_it_waits(cluster, lambda: [path.unlink() for path in cluster.glob("17_*")]):
        code, out, _ = submit(*RANDOM)
    assert code == 1
    assert "random/seed2 is not finished: its task is no longer in the queue" in out


def test_a_refusal_of_sbatch_is_a_clear_error(submit, cluster):
    (cluster / "refuse").write_text("sbatch: error: Batch job submission failed:\nInvalid qos")
    code, _, err = submit(*RANDOM)
    assert code == 1
    assert err == "error: sbatch: sbatch: error: Batch job submission failed: Invalid qos\n"
    assert not list(Path("runs/.slurm").glob("*.json"))


def test_a_silent_queue_stops_a_submission_and_not_the_waiting(submit, cluster):
    (cluster / "hold").touch()
    submit(*RANDOM, "--no-wait")
    (cluster / "silent").write_text("slurm_load_jobs error: Unable to contact slurm controller")
    code, _, err = submit(*RANDOM)
    assert (code, err.count("\n")) == (1, 1)
    assert "squeue: slurm_load_jobs error" in err
    assert len(calls(cluster)) == 1
    (cluster / "silent").rename(cluster / "later")

    def disturb():
        (cluster / "later").rename(cluster / "silent")
        (cluster / "hold").unlink()
        questions(cluster, 3)  # one may have been on its way, one goes unanswered, one tells that it did
        (cluster / "silent").unlink()

    with while_it_waits(cluster, disturb):
        code, out, _ = submit(*RANDOM)
    assert code == 0
    assert out.count("squeue: slurm_load_jobs error") == 1


def test_without_slurm_it_is_a_clear_error(sweep, cluster, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    code, out, err = sweep(*RANDOM, "--launcher", "slurm")
    assert (code, out) == (1, "")
    assert err.startswith("error: --launcher slurm: ")
    assert "sbatch" in err
    assert err.count("\n") == 1


def test_a_users_habits_hide_no_task(submit, cluster, monkeypatch):
    (cluster / "bin/squeue").write_text('#!/bin/sh\necho "${SQUEUE_STATES:-none}" >&2; exit 1\n')
    monkeypatch.setenv("SQUEUE_STATES", "RUNNING")
    with pytest.raises(UserError, match="none"):
        queue.entries({"sweep-1"})


def test_tasks_and_a_sweep_on_one_machine_exclude_each_other(sweep, submit, cluster, here):
    (cluster / "hold").touch()
    with local.locked(here / "runs", shared=True):
        code, _, err = sweep(*RANDOM)
        assert code == 1
        assert "another sweep is writing there" in err
        with local.locked(here / "runs", shared=True):
            assert submit(*RANDOM, "--no-wait")[0] == 0
    with local.locked(here / "runs"):
        code, _, err = submit(*RANDOM)
        assert code == 1
        assert "another sweep is writing there" in err


def test_ctrl_c_leaves_the_tasks_in_the_queue(here, cluster, status):
    (cluster / "hold").touch()
    program = (
        "import sys; from experiments.__main__ import main;"
        f"sys.exit(main(sys.argv[1:], trainer={fake_trainer.COMMAND!r}))"
    )
    words = [
        "train",
        "--data",
        "bin",
        "--recipe",
        "quick.txt",
        "--device",
        "cpu",
        *RANDOM,
        "--launcher",
        "slurm",
    ]
    process = subprocess.Popen(
        [sys.executable, "-c", program, *words],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=restore_defaults,
    )
    until(lambda: (cluster / "asked").read_text())
    process.send_signal(2)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "interrupted\n")
    assert "The tasks stay in the queue" in out
    (cluster / "hold").unlink()
    until(lambda: RUN2.joinpath("manifest.json").exists() and status(RUN2) == "finished")
