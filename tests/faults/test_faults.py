"""Faults around a sweep: full disks, folders, concurrent sweeps, clocks, temporary files, divergence.

Tested elsewhere: a manifest truncated anywhere (tests/common/test_manifest.py); a full disk during a download
and while binarized data or another file is written (tests/preprocess/download/test_fetch.py,
tests/preprocess/test_indexed.py, tests/common/test_files.py); signals, and a locked run
(tests/experiments/test_train.py).
"""

import errno
import json
import os
import shutil
import subprocess
import time
from dataclasses import replace

import pytest

from roberta_small.analysis import load_runs
from roberta_small.analysis.__main__ import main as analysis
from roberta_small.common import manifest
from roberta_small.experiments.methods.fairseq import TRAINER
from roberta_small.fairseq_plugin.checkpoints.loading import load_checkpoint
from tests.faults import originals, tiny
from tests.faults.outcome import differences, outcome

pytestmark = [pytest.mark.faults, pytest.mark.slow]
SEED1 = "runs/fairseq/random/seed1"
ONE = ("--seeds", "1")
EVENTS = "events.out.tfevents.9.faults"
"""Real event files: the fake trainer writes none."""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tiny.prepare(tmp_path_factory.mktemp("faults"))


@pytest.fixture
def here(home, request):
    folder = home / request.node.name
    folder.mkdir()
    return folder


@pytest.fixture
def disk(here):
    """A folder with its own file system; `disk(options)` mounts it or changes its options."""
    place = here / "disk"
    place.mkdir()

    def mount(options):
        words = ["mount", "-t", "tmpfs", "-o", options, "faults", str(place)]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"only root may mount a disk: {done.stderr.strip()}")
        return place

    yield mount
    subprocess.run(["umount", "-l", str(place)], capture_output=True)


def test_a_full_disk_is_reported_and_the_same_command_resumes_with_free_space(here, disk):
    runs = disk("size=60k") / "runs"
    words = [*ONE, "--out", str(runs)]
    code, said = tiny.run(here, *words)
    assert code == 1
    assert os.strerror(errno.ENOSPC) in said
    assert not any(line.startswith("Traceback") for line in said.splitlines())
    disk("remount,size=100m")
    code, said = tiny.run(here, *words)
    assert code == 0, said
    code, said = tiny.run(here, *ONE)
    assert code == 0, said
    one = replace(tiny.SWEEP, runs=tiny.SWEEP.runs[:1])
    assert differences(outcome(runs.parent, one), outcome(here, one)) == []


def test_a_folder_that_is_read_only_is_refused_before_anything_starts(here, disk):
    place = disk("size=1m")
    disk("remount,ro")
    code, said = tiny.run(here, "--out", str(place / "runs"))
    assert code == 1
    (message,) = said.splitlines()
    assert message.startswith(f"error: {place}: ")
    assert "--out" in message


def test_a_data_file_that_vanishes_after_the_plan_is_named(here):
    data = shutil.copytree(here.parent / "data", here / "data")
    gone = data / "input0/train.bin"
    trainer = ("sh", "-c", f'rm -f {gone}; exec "$0" "$@"', *TRAINER)
    code, said = tiny.run(here, *ONE, "--data", "data", trainer=trainer)
    assert code == 1
    assert f"error: {gone}: " in said
    assert manifest.read(here / SEED1)["status"] == "failed"
    shutil.copy(here.parent / "data/input0/train.bin", gone)
    assert tiny.run(here, *ONE, "--data", "data", trainer=tiny.FAKE)[0] == 0


def test_two_sweeps_at_once_train_each_run_once(here):
    linger = ["--seeds", "1", "2", "3", "--jobs", "1", "--", "--linger", "2"]
    first, second = (tiny.start(here, *linger, trainer=tiny.FAKE) for _ in range(2))
    assert [first.wait(), second.wait()] == [0, 0]
    said = (here / "said").read_text().splitlines()
    assert not [line for line in said if line.startswith(("error: ", "Traceback"))]
    for seed in (1, 2, 3):
        run = here / f"runs/fairseq/random/seed{seed}"
        assert len((run / "starts.jsonl").read_text().splitlines()) == 1
        assert manifest.read(run)["status"] == "finished"


def test_a_clock_that_is_set_back_has_no_effect(here):
    fails = ("--", "--fail-seed", "1")
    assert tiny.run(here, *ONE, *fails, trainer=tiny.FAKE)[0] == 1
    run, future = here / SEED1, time.time() + 400 * 86400
    content = json.loads((run / "manifest.json").read_text())
    content |= {"started": "2031-01-01T00:00:00+00:00", "ended": "2031-01-01T00:00:01+00:00"}
    at = content["recipe_flags"].index("--fail-seed")
    del content["recipe_flags"][at : at + 2]
    manifest.write(run, content)
    for path in [here / "runs", run, *run.rglob("*")]:
        os.utime(path, (future, future))
    code, said = tiny.run(here, *ONE, trainer=tiny.FAKE)
    assert code == 0, said
    content = manifest.read(run)
    assert content["status"] == "finished"
    assert content["started"] < "2031"
    assert 0 <= content["seconds"] < 600
    originals.events(run / "tensorboard/valid" / EVENTS)
    assert analysis(["runs", str(here / "runs")]) == 0


def test_left_over_temporary_files_are_ignored(here):
    run = here / SEED1
    run.mkdir(parents=True)
    junk = [".manifest.json.x1.tmp", ".checkpoint_last.pt.x2.tmp"]
    for name in junk:
        (run / name).write_bytes(b"\0half of a file")
    assert tiny.run(here, *ONE, "--", "--hang-seed", "2", trainer=tiny.FAKE)[0] == 0
    for name in ("checkpoint_last.pt.tmp", "checkpoint_best.pt.tmp"):
        (run / name).write_bytes(b"PK half of a checkpoint")
    code, said = tiny.run(here, *ONE, "--", "--hang-seed", "2", trainer=tiny.FAKE)
    assert (code, said.count("finished (skipped)")) == (0, 1)
    originals.events(run / "tensorboard/valid" / EVENTS)
    assert analysis(["runs", str(here / "runs")]) == 0


def test_no_secret_of_the_environment_is_written_to_a_file(here, monkeypatch):
    secret = "hf_faults0123456789"
    for name in ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "WANDB_API_KEY", "MY_PASSWORD"):
        monkeypatch.setenv(name, secret)
    assert tiny.run(here, *ONE, trainer=tiny.FAKE)[0] == 0
    files = [path for path in here.rglob("*") if path.is_file()]
    assert here / SEED1 / "manifest.json" in files
    assert not [path for path in files if secret.encode() in path.read_bytes()]


def test_a_loss_that_explodes_ends_its_run_alone(here):
    left_out = ("--lr-scheduler", "--total-num-update")
    kept = [line for line in tiny.SWEEP.recipe.splitlines() if not line.startswith(left_out)]
    # From the second epoch on the learning rate is multiplied by --lr-shrink.
    schedule = ["--lr-scheduler fixed", "--force-anneal 2", "--lr-shrink 1"]
    (here / "exploding.txt").write_text("\n".join([*kept, *schedule]))
    grid = ("--recipe", "exploding.txt", "--grid", "lr-shrink=1e30,1")
    code, said = tiny.run(here, *ONE, *grid, "--", "--max-epoch", "3")
    assert code == 1
    exploded = here / "runs/fairseq,lr-shrink=1e30/random/seed1"
    assert manifest.read(exploded)["status"] == "failed"
    assert manifest.read(here / "runs/fairseq/random/seed1")["status"] == "finished"
    lines = [line.strip() for line in said.splitlines() if line.strip().startswith("error: ")]
    assert len(lines) == 1
    assert "update 1" in lines[0]
    assert "--lr" in lines[0]
    assert not any(line.startswith("Traceback") for line in said.splitlines())
    state = load_checkpoint(exploded / "checkpoint_last.pt")
    assert state["optimizer_history"][-1]["num_updates"] == 10
    assert all(weight.isfinite().all() for weight in state["model"].values())
    table = load_runs(here / "runs", include_unfinished=True)
    curve = table[(table["arm"] == "fairseq,lr-shrink=1e30") & (table["metric"] == "loss")]
    assert set(curve[curve["subset"] == "valid"]["step"]) == {10}
    assert {4, 8} <= set(curve[curve["subset"] == "train_inner"]["step"])
