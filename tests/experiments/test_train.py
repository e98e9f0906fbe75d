import contextlib
import errno
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from roberta_small.common import manifest
from roberta_small.common.errors import UserError
from roberta_small.common.files import ROOT
from roberta_small.experiments import execute, provenance
from tests.support import fake_trainer, preloaded
from tests.support.signals import restore_defaults

RANDOM = ["--inits", "random", "--seeds", "1", "2"]
ONE = ["--inits", "random", "--seeds", "1"]
RUN1, RUN2 = Path("runs/fairseq/random/seed1"), Path("runs/fairseq/random/seed2")


def test_all_runs_finish_with_their_manifests(sweep, starts, here, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    words = ["--inits", "random pretrained", "--pretrained", "model.pt", "--seeds", "1", "2"]
    code, out, err = sweep(*words, "--", "--linger", "0.2")
    assert "pretrained: model.pt" in out
    assert (code, err) == (0, "")
    for init in ("random", "pretrained"):
        for seed in (1, 2):
            run = Path(f"runs/fairseq/{init}/seed{seed}")
            content = manifest.read(run)
            assert content["status"] == "finished"
            assert (content["arm"], content["init"], content["seed"]) == ("fairseq", init, seed)
            assert content["recipe"] == "quick"
            assert (content["parameters"], content["trainable_parameters"]) == (2500, 2000)
            assert 0 <= content["cpu_seconds"] < 60
            assert content["peak_memory_bytes"] > 1 << 20
            assert len(content["data"]["sha256"]) == 14
            command = content["command"]
            assert command[:2] == ["fairseq-train", "bin"]
            assert command[command.index("--save-dir") + 1] == str(run)
            assert command[command.index("--adam-betas") + 1] == "(0.9, 0.98)"
            assert str(here) not in " ".join(command)
            (start,) = starts(run)
            argv = start["argv"]
            assert argv[argv.index("--num-classes") + 1] == "2"
            assert ("--restore-file" in argv) == ("--reset-optimizer" in argv) == (init == "pretrained")
            assert start["env"] == {
                "OMP_NUM_THREADS": "1",
                "MALLOC_MMAP_THRESHOLD_": "33554432",
                "CUDA_VISIBLE_DEVICES": "",
            }
    assert out.count("new") == 4


def test_a_failed_run_is_reported_and_the_others_finish(sweep, status):
    code, out, _ = sweep(*RANDOM, "--", "--fail-seed", "1")
    assert code == 1
    assert (status(RUN1), status(RUN2)) == ("failed", "finished")
    report = out[out.index("random/seed1 failed: ") :]
    assert "exit code 3" in report
    assert "RuntimeError: the loss is not a number" in report


def test_a_run_that_failed_before_its_first_update_is_replaced(sweep, starts, status):
    assert sweep(*ONE, "--", "--fail-early")[0] == 1
    code, out, _ = sweep(*ONE, "--", "--lr", "1e-3")
    assert code == 0
    assert out.count("replaces") == 1
    assert status(RUN1) == "finished"
    assert "--lr" in starts(RUN1)[1]["argv"]
    assert "out of memory" not in (RUN1 / "train.log").read_text()


def test_a_run_without_checkpoint_best_is_failed(sweep, status):
    code, out, _ = sweep(*ONE, "--", "--no-best")
    assert code == 1
    assert "random/seed1 failed: " in out
    assert "checkpoint_best.pt" in out
    assert status(RUN1) == "failed"


def test_a_folder_with_files_but_no_manifest_is_an_error(sweep):
    RUN1.mkdir(parents=True)
    (RUN1 / "checkpoint_last.pt").write_text("unknown")
    code, _, err = sweep(*RANDOM)
    assert code == 1
    assert all(fact in err for fact in (str(RUN1), "manifest.json", "--out"))
    assert not RUN2.exists()


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (["--data", "nowhere", *RANDOM], ["nowhere: ", "--data"]),
        (["--inits", "pretrained", "--pretrained", "gone.pt"], ["gone.pt: ", "--pretrained"]),
        (["--inits", "small=gone.pt"], ["gone.pt: ", "--inits"]),
        ([*RANDOM, "--out", "quick.txt"], ["quick.txt: ", "--out"]),
        ([*RANDOM, "--recipe", "gone"], ["'gone'", "reference"]),
    ],
)
def test_invalid_inputs_end_with_one_error_line_before_a_run_starts(sweep, words, facts):
    code, out, err = sweep(*words)
    assert (code, out) == (1, "")
    assert err.count("\n") == 1
    assert all(fact in err for fact in facts)
    assert not Path("runs").exists()


@contextlib.contextmanager
def background(*words, until="Saved"):
    """The sweep in a separate process, which is yielded when the log of its first run has the text."""
    program = (
        "import sys; from roberta_small.experiments import execute;"
        "from roberta_small.experiments.__main__ import main;"
        f"execute.POLL_SECONDS = 0.02; execute.GRACE_SECONDS = 0.5; execute.HELD_SECONDS = 0.1;"
        f"sys.exit(main(sys.argv[1:], trainer={fake_trainer.COMMAND!r}))"
    )
    flags = ["train", "--data", "bin", "--recipe", "quick.txt", "--device", "cpu", *RANDOM, *words]
    process = subprocess.Popen(
        [preloaded.REAL, "-c", program, *flags],
        env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=restore_defaults,
    )
    try:
        for _ in range(500):
            if (RUN1 / "train.log").exists() and until in (RUN1 / "train.log").read_text():
                break
            time.sleep(0.02)
        yield process
    finally:
        process.kill()
        process.communicate()


def alive(pid):
    state = Path(f"/proc/{pid}/stat")
    return state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z"


def gone(pid, seconds=5):
    deadline = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not alive(pid)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_run_interrupted_by_a_signal_resumes(sweep, starts, status, number):
    with background("--", "--hang-seed", "1") as process:
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert err.count("\n") == 1
    assert "random/seed1  interrupted" in out
    assert status(RUN1) == "interrupted"
    assert gone(starts(RUN1)[0]["pid"])

    manifest.write(RUN1, manifest.read(RUN1) | {"cpu_seconds": 1000.0})
    code, out, _ = sweep(*RANDOM, "--", "--hang-seed", "1")
    assert code == 0
    assert manifest.read(RUN1)["cpu_seconds"] >= 1000
    assert "epoch 1, update 10" in out
    assert (status(RUN1), status(RUN2)) == ("finished", "finished")
    assert len(starts(RUN1)) == 2
    log = (RUN1 / "train.log").read_text()
    assert log.count('"valid_accuracy": "60.0"') == 1
    assert log.count('"valid_accuracy": "70.0"') == 1


def test_a_trainer_that_ignores_sigterm_is_killed(starts, status, here):
    with background("--", "--hang-seed", "1", "--stubborn") as process:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
    assert process.returncode == 130
    assert status(RUN1) == "interrupted"
    assert gone(starts(RUN1)[0]["pid"])


def test_a_file_system_without_locks_is_an_error(sweep, monkeypatch):
    def flock(lock, kind):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(execute.fcntl, "flock", flock)
    code, _, err = sweep(*RANDOM)
    assert (code, err.count("\n")) == (1, 1)
    assert f"{RUN1}/.lock: No locks available" in err
    assert manifest.read(RUN1) is None


def test_a_full_disk_stops_all_trainers(sweep, starts, monkeypatch):
    write = manifest.write

    def write_to_full_disk(folder, content):
        if content["status"] != "running":
            raise UserError(f"{folder}/manifest.json: No space left on device")
        write(folder, content)

    monkeypatch.setattr(manifest, "write", write_to_full_disk)
    code, out, err = sweep(*RANDOM, "--jobs", "2", "--", "--hang-seed", "1")
    assert (code, err.count("\n")) == (1, 1)
    assert f"{RUN2}/manifest.json: No space" in err
    assert f"{RUN1}/manifest.json: No space" in out
    assert gone(starts(RUN1)[0]["pid"])


@pytest.mark.skipif(sys.platform != "linux", reason="trainers end with the launcher only on Linux")
def test_after_kill_9_the_trainer_ends_and_the_run_would_resume(sweep, starts, status):
    with background("--", "--hang-seed", "1") as process:
        process.kill()
        process.communicate()
    assert status(RUN1) == "running"
    assert gone(starts(RUN1)[0]["pid"])
    code, out, _ = sweep(*RANDOM, "--dry-run", "--", "--hang-seed", "1")
    assert code == 0
    assert "epoch 1, update 10" in out


def test_a_run_without_an_intact_checkpoint_restarts(sweep):
    assert sweep(*ONE)[0] == 0
    (RUN1 / "checkpoint_best.pt").unlink()
    (RUN1 / "checkpoint_last.pt").write_bytes(b"PK truncated")
    (RUN1 / "tensorboard/valid/events.out.tfevents.old").touch()
    manifest.write(RUN1, manifest.read(RUN1) | {"status": "interrupted"})
    code, out, _ = sweep(*ONE)
    assert code == 0
    assert "resume" not in out
    assert not (RUN1 / "tensorboard/valid/events.out.tfevents.old").exists()
    assert (RUN1 / "train.log").read_text().count('"valid_accuracy": "60.0"') == 1


def test_jobs_run_at_the_same_time(sweep):
    assert sweep(*RANDOM, "--jobs", "2", "--", "--linger", "1.5")[0] == 0
    runs = [manifest.read(run) for run in (RUN1, RUN2)]
    assert {run["status"] for run in runs} == {"finished"}
    assert max(run["started"] for run in runs) < min(run["ended"] for run in runs)


def test_two_launchers_divide_the_runs(sweep, starts, status):
    with background("--jobs", "1", "--", "--linger", "0.5", until="") as process:
        code, out, _ = sweep(*RANDOM, "--jobs", "1", "--", "--linger", "0.5")
        said, _ = process.communicate(timeout=20)
    assert (code, process.returncode) == (0, 0)
    assert (status(RUN1), status(RUN2)) == ("finished", "finished")
    assert len(starts(RUN1)) == len(starts(RUN2)) == 1
    for text in (out, said):  # both print the whole table
        table = text[text.index("test accuracy") :]
        assert (table.count("finished"), table.count("64.00"), table.count("63.00")) == (2, 1, 1)
    assert f"process {process.pid})" in out


def test_a_run_that_fails_in_one_launcher_is_not_repeated_by_the_other(starts, sweep):
    words = ("--", "--linger", "1", "--fail-early")
    with background("--jobs", "1", *words, until="") as process:
        code, out, _ = sweep(*RANDOM, "--jobs", "1", *words)
        process.communicate(timeout=20)
    assert (code, process.returncode) == (1, 1)
    assert len(starts(RUN1)) == len(starts(RUN2)) == 1
    assert "another process" in out


def test_a_limited_launcher_leaves_the_other_runs(sweep, status, starts, monkeypatch):
    code, out, _ = sweep(*RANDOM, "--max-runs", "1")
    assert (code, status(RUN1), RUN2.exists()) == (0, "finished", False)
    assert "not finished" in out
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "2")
    words = ("--inits", "random", "--seeds", "1", "2", "3", "--max-runs", "1")
    assert sweep(*words)[0] == 0
    assert status("runs/fairseq/random/seed3") == "finished"
    assert sweep(*words)[0] == 0  # its run is finished: the next one
    assert status(RUN2) == "finished"
    with execute.claim(Path(RUN2)):
        assert sweep(*words)[0] == 0
    assert len(starts(RUN2)) == 1


def test_a_limited_launcher_does_not_wait_for_long(sweep, here):
    with execute.claim(here / RUN1), execute.claim(here / RUN2):
        began = time.monotonic()
        code, out, _ = sweep(*RANDOM, "--max-runs", "1")
    assert code == 0
    assert 0.5 < time.monotonic() - began < 5
    assert "elsewhere" in out


def test_more_epochs_continue_a_finished_run(sweep, starts, status):
    """The next update follows the last one; a shorter run, or one with another rate, is still an error."""
    assert sweep(*ONE)[0] == 0
    assert "continued" not in manifest.read(RUN1)
    (RUN1 / "predictions-test.jsonl").write_text("of the shorter run")
    code, out, _ = sweep(*ONE, "--epochs", "4", "--dry-run")
    assert (RUN1 / "predictions-test.jsonl").exists()
    assert "continue after epoch 2, update 20" in out
    assert sweep(*ONE, "--epochs", "4")[0] == 0
    assert status(RUN1) == "finished"
    assert not (RUN1 / "predictions-test.jsonl").exists()
    _, second = starts(RUN1)
    assert second["argv"].count("--max-epoch") == 1
    assert second["argv"][second["argv"].index("--max-epoch") + 1] == "4"
    log = (RUN1 / "train.log").read_text()
    assert [int(epoch) for epoch in re.findall(r'\| valid \| {"epoch": (\d+)', log)] == [1, 2, 3, 4]
    assert manifest.read(RUN1)["continued"] == [["--max-epoch", "2"]]
    assert sweep(*ONE, "--epochs", "4")[0] == 0  # finished
    assert len(starts(RUN1)) == 2
    for words in (["--epochs", "3"], ["--epochs", "5", "--lr", "1"]):
        code, _, error = sweep(*ONE, *words)
        assert code == 1
        assert "another recipe" in error
    assert sweep(*ONE, "--epochs", "5")[0] == 0
    assert manifest.read(RUN1)["continued"] == [["--max-epoch", "2"], ["--max-epoch", "4"]]


def test_the_plan_says_what_is_different_on_a_gpu(sweep, monkeypatch):
    monkeypatch.setattr(provenance, "_gpus", lambda: (provenance.Gpu("NVIDIA H100", 80 << 30),))
    monkeypatch.setattr(provenance, "usable_cores", lambda: 16)
    words, size = [*RANDOM, "--dry-run", "--device"], ["--", "--max-tokens-valid", "4096"]
    _, out, _ = sweep(*words, "cuda", *size)
    assert "on 1 GPU (NVIDIA H100), 2 runs at a time" in out
    assert "--max-tokens-valid 65536" in out
    assert "--max-tokens-valid 65536" not in sweep(*words, "cpu", *size)[1]
