"""train.sh --launcher slurm with fake SLURM commands, which start the tasks on this machine."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import fake_slurm
import fake_trainer
import pytest
from signals import restore_defaults
from slurm_runs import RANDOM, RUN1, RUN2, calls, constant, table

from roberta_small.common import manifest
from roberta_small.common.errors import UserError
from roberta_small.experiments import ROOT
from roberta_small.experiments.launchers import local
from roberta_small.experiments.launchers.slurm import queue


def until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def wait_for_squeue(cluster, count):
    """Wait for `count` further calls of squeue."""
    before = len((cluster / "squeue-calls").read_text())
    until(lambda: len((cluster / "squeue-calls").read_text()) >= before + count)


@contextlib.contextmanager
def while_waiting(cluster, action):
    """Call `action` while a sweep waits for its tasks; its first squeue is before the submission."""

    def act():
        wait_for_squeue(cluster, 2)
        action()

    helper = threading.Thread(target=act)
    helper.start()
    yield
    helper.join()


def test_runs_and_table_equal_those_of_the_local_launcher(sweep, submit, starts):
    words = ["--inits", "random", "pretrained", "--pretrained", "model.pt", "--seeds", "1"]
    words += ["--grid", "lr=1e-4,1"]
    # Characters with a meaning for the shell or in SLURM's file name patterns.
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
            assert constant(theirs) == constant(mine)
            assert theirs["command"] == [word.replace("here", far) for word in mine["command"]]
            assert theirs["hardware"] == mine["hardware"] | {"threads": 3}
            assert starts(there)[0]["env"] == starts(here)[0]["env"] | {"OMP_NUM_THREADS": "3"}
    assert submit(*words, "--out", far)[1].count("skipped") >= 4
    assert len(starts(there)) == 1


def test_options_of_sbatch(submit, cluster):
    words = ["--partition", "gpu", "--time", "2:00:00", "--memory", "4G", "--cpus", "2", "--throttle", "1"]
    (cluster / "hold").touch()
    code, out, _ = submit(*RANDOM, *words, "--no-wait", "--slurm", "--account=lab --comment 'a b'")
    assert code == 0
    (options,) = calls(cluster)
    for word in (
        *("--array=0-1%1", "--cpus-per-task=2", "--partition=gpu", "--time=2:00:00", "--mem=4G", "--requeue"),
        *("--account=lab", "a b", f"--chdir={Path('runs/.slurm').absolute()}"),
    ):
        assert word in options
    assert not any(word.startswith("--gres") for word in options)
    assert "runs/.slurm/17_" in out


def test_an_output_folder_with_a_backslash_is_an_error(submit, cluster):
    code, _, err = submit(*RANDOM, "--out", "a\\b")
    assert (code, err.count("\n")) == (1, 1)
    assert "a\\b" in err
    assert "--out" in err
    assert not (cluster / "sbatch-calls").exists()


def test_dry_run_submits_nothing(submit, cluster):
    code, out, _ = submit(*RANDOM, "--dry-run", "--cpus", "5")
    assert code == 0
    assert "OMP_NUM_THREADS=5" in out
    assert out.count("\nfairseq-train ") == 2
    assert "--array=0-1" in out
    assert not (cluster / "sbatch-calls").exists()
    assert not Path("runs").exists()


def test_queued_runs_are_not_submitted_again(submit, cluster, starts):
    (cluster / "hold").touch()
    assert submit(*RANDOM, "--no-wait")[0] == 0
    code, out, _ = submit("--inits", "random", "--seeds", "1", "2", "3", "--no-wait")
    assert (code, out.count("queued")) == (0, 2)
    assert [word for words in calls(cluster) for word in words if "--array" in word] == [
        "--array=0-1",
        "--array=0-0",
    ]
    (cluster / "hold").unlink()
    assert submit("--inits", "random", "--seeds", "1", "2", "3")[0] == 0
    assert len(calls(cluster)) == 2
    assert [len(starts(f"runs/fairseq/random/seed{seed}")) for seed in (1, 2, 3)] == [1, 1, 1]


def test_a_held_task_is_reported_once(submit, cluster):
    (cluster / "hold").touch()
    submit(*RANDOM, "--no-wait")
    (name,) = (word.removeprefix("--job-name=") for word in calls(cluster)[0] if "--job-name" in word)
    fake_slurm.write_in(cluster, "17_0", "PENDING", name, "JobHeldAdmin")

    def release():
        wait_for_squeue(cluster, 3)
        (cluster / "hold").unlink()

    with while_waiting(cluster, release):
        code, out, _ = submit(*RANDOM)
    assert code == 0
    (held,) = (line for line in out.splitlines() if "scontrol" in line)
    assert held.startswith("random/seed1  ")
    assert "JobHeldAdmin" in held
    assert "scontrol release 17_0" in held


def test_a_run_that_is_queued_in_another_experiment_is_an_error(submit, cluster):
    (cluster / "hold").touch()
    submit(*RANDOM, "--no-wait")
    code, _, err = submit(*RANDOM, "--no-wait", "--", "--lr", "1")
    assert (code, err.count("\n")) == (1, 1)
    assert err.startswith(f"error: {RUN1}: ")
    assert "scancel --name=" in err
    assert len(calls(cluster)) == 1


def test_a_cancelled_run_resumes(submit, cluster, starts, status):
    def cancel():
        until(lambda: RUN1.joinpath("train.log").exists() and "Saved" in (RUN1 / "train.log").read_text())
        subprocess.run(["scancel", "17_0"], check=True)

    helper = threading.Thread(target=cancel)
    helper.start()
    code, out, err = submit(*RANDOM, "--", "--hang-seed", "1")
    helper.join()
    assert (code, err) == (1, "")
    assert table(out)[1][:3] == ["random", "1", "not"]
    assert "17_0 CANCELLED" in out
    assert (status(RUN1), status(RUN2)) == ("interrupted", "finished")
    code, out, _ = submit(*RANDOM, "--", "--hang-seed", "1")
    assert code == 0
    assert "epoch 1, update 10" in out
    assert (len(starts(RUN1)), len(starts(RUN2))) == (2, 1)
    assert "--array=0-0" in calls(cluster)[1]


def test_a_task_that_slurm_requeues_is_not_reported_as_failed(submit, cluster, starts, status, monkeypatch):
    monkeypatch.setattr(queue, "SETTLE_SECONDS", 60.0)
    (cluster / "requeue").touch()

    def requeue():
        until(lambda: RUN1.joinpath("train.log").exists() and "Saved" in (RUN1 / "train.log").read_text())
        os.kill(int((cluster / "17_0.pid").read_text()), signal.SIGTERM)
        until(lambda: "FAILED" in (cluster / "17_0").read_text())
        wait_for_squeue(cluster, 2)
        (cluster / "requeue").unlink()

    helper = threading.Thread(target=requeue)
    helper.start()
    code, out, err = submit(*RANDOM, "--", "--hang-seed", "1")
    helper.join()
    assert (code, err) == (0, "")
    assert "FAILED" not in out
    assert (status(RUN1), status(RUN2)) == ("finished", "finished")
    assert (len(starts(RUN1)), len(starts(RUN2))) == (2, 1)


def test_a_failed_run_is_reported_and_the_others_finish(submit, status):
    code, out, _ = submit(*RANDOM, "--", "--fail-seed", "1")
    assert code == 1
    assert (status(RUN1), status(RUN2)) == ("failed", "finished")
    report = out[out.index("random/seed1 failed: ") :]
    assert all(fact in report for fact in ("17_0", "FAILED", "exit code 3"))
    assert "RuntimeError: the loss is not a number" in report


def test_runs_whose_tasks_left_the_queue_are_not_finished(submit, cluster):
    (cluster / "hold").touch()
    submit(*RANDOM, "--no-wait")
    with while_waiting(cluster, lambda: [path.unlink() for path in cluster.glob("17_*")]):
        code, out, _ = submit(*RANDOM)
    assert code == 1
    assert [row[1:4] for row in table(out)[1:3]] == [["1", "not", "finished"], ["2", "not", "finished"]]


def test_an_error_of_sbatch_is_shown(submit, cluster):
    (cluster / "sbatch-error").write_text("sbatch: error: Batch job submission failed:\nInvalid qos")
    code, _, err = submit(*RANDOM)
    assert (code, err.count("\n")) == (1, 1)
    assert "sbatch: error: Batch job submission failed: Invalid qos" in err
    assert not list(Path("runs/.slurm").glob("*.json"))


def test_an_error_of_squeue_ends_a_submission_but_not_the_waiting(submit, cluster):
    (cluster / "hold").touch()
    submit(*RANDOM, "--no-wait")
    (cluster / "squeue-error").write_text("slurm_load_jobs error: Unable to contact slurm controller")
    code, _, err = submit(*RANDOM)
    assert (code, err.count("\n")) == (1, 1)
    assert "squeue: slurm_load_jobs error" in err
    assert len(calls(cluster)) == 1
    (cluster / "squeue-error").rename(cluster / "later")

    def disturb():
        (cluster / "later").rename(cluster / "squeue-error")
        (cluster / "hold").unlink()
        # The first call may have started before; the second fails; the third shows that waiting continues.
        wait_for_squeue(cluster, 3)
        (cluster / "squeue-error").unlink()

    with while_waiting(cluster, disturb):
        code, out, _ = submit(*RANDOM)
    assert code == 0
    assert out.count("squeue: slurm_load_jobs error") == 1


def test_missing_slurm_commands_are_an_error(sweep, cluster, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    code, out, err = sweep(*RANDOM, "--launcher", "slurm")
    assert (code, out) == (1, "")
    assert all(fact in err for fact in ("--launcher slurm", "sbatch", "PATH"))
    assert err.count("\n") == 1


def test_squeue_variables_of_the_user_are_removed(submit, cluster, monkeypatch):
    (cluster / "bin/squeue").write_text('#!/bin/sh\necho "${SQUEUE_STATES:-none}" >&2; exit 1\n')
    monkeypatch.setenv("SQUEUE_STATES", "RUNNING")
    with pytest.raises(UserError, match="none"):
        queue.entries({"sweep-1"})


def test_tasks_and_a_local_sweep_exclude_each_other(sweep, submit, cluster, here):
    (cluster / "hold").touch()
    with local.locked(here / "runs", shared=True):
        code, _, err = sweep(*RANDOM)
        assert code == 1
        assert "runs/.lock" in err
        with local.locked(here / "runs", shared=True):
            assert submit(*RANDOM, "--no-wait")[0] == 0
    with local.locked(here / "runs"):
        code, _, err = submit(*RANDOM)
        assert code == 1
        assert "runs/.lock" in err


def test_ctrl_c_leaves_the_tasks_in_the_queue(here, cluster, status):
    (cluster / "hold").touch()
    program = (
        "import sys; from roberta_small.experiments.__main__ import main;"
        f"sys.exit(main(sys.argv[1:], trainer={fake_trainer.COMMAND!r}))"
    )
    words = ["train", "--data", "bin", "--recipe", "quick.txt", "--device", "cpu", *RANDOM]
    words += ["--launcher", "slurm"]
    process = subprocess.Popen(
        [sys.executable, "-c", program, *words],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=restore_defaults,
    )
    until(lambda: (cluster / "squeue-calls").read_text())
    process.send_signal(2)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err.count("\n")) == (130, 1)
    assert "scancel --name=" in out
    (cluster / "hold").unlink()
    until(lambda: RUN2.joinpath("manifest.json").exists() and status(RUN2) == "finished")
