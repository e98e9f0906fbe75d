"""train.sh --launcher slurm on a real SLURM of two nodes (make test-slurm)."""

import threading
import time
from pathlib import Path

import pytest
import real_slurm
from real_slurm import (
    first_task,
    kill_processes_of,
    kill_slurmd,
    say,
    start_again_at_once,
    start_slurmd,
    text,
    until,
)
from slurm_runs import RUN1, RUN2, VARYING, constant, table

from roberta_small.common import manifest
from roberta_small.experiments.launchers.slurm import queue

WORDS = ["--inits", "random", "--seeds", "1", "2", "--launcher", "slurm"]
HANG = ["--", "--hang-seed", "1"]

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(not real_slurm.INSTALLED, reason="SLURM is not installed"),
]


@pytest.fixture(scope="module")
def folder():
    with real_slurm.running() as folder:
        yield folder


@pytest.fixture
def cluster(folder, monkeypatch):
    """The folder of the cluster, whose commands are on the PATH."""
    for name, value in real_slurm.environment(folder).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(queue, "QUEUE_SECONDS", 0.5)
    monkeypatch.setattr(queue, "LOG_SECONDS", 0.2)
    return folder


@pytest.fixture
def meanwhile():
    """Call a function in a thread when the first run of the sweep has a checkpoint."""
    threads = []

    def start(action):
        def act():
            until(lambda: "Saved" in text(RUN1 / "train.log"))
            action()

        threads.append(threading.Thread(target=act))
        threads[-1].start()

    yield start
    for thread in threads:
        thread.join(timeout=150)
        assert not thread.is_alive()


def assert_finished(out):
    """Both runs are finished and have trained each epoch once."""
    rows = [
        ["random", seed, "finished", "2", "70", "2", test] for seed, test in (("1", "64.00"), ("2", "63.00"))
    ]
    assert table(out)[1:] == rows
    for run in (RUN1, RUN2):
        assert manifest.read(run)["status"] == "finished"
        for accuracy in (60, 70):
            assert text(run / "train.log").count(f'"valid_accuracy": "{accuracy}.0"') == 1


def test_runs_and_table_equal_those_of_the_local_launcher(sweep, cluster):
    words = ["--inits", "random", "pretrained", "--pretrained", "model.pt", "--seeds", "1", "2", "3"]
    code, out, err = sweep(*words, "--out", "here")
    assert (code, err) == (0, "")
    far = "là %j%% 'x'\n;z"
    far_code, far_out, err = sweep(*words, "--out", far, "--launcher", "slurm", "--throttle", "3")
    assert (far_code, err) == (0, ""), far_out
    assert table(far_out) == table(out)
    assert len(table(out)) == 7
    for init in ("random", "pretrained"):
        for seed in (1, 2, 3):
            run = Path(f"fairseq/{init}/seed{seed}")
            mine, theirs = manifest.read("here" / run), manifest.read(far / run)
            assert constant(theirs) == constant(mine)
            assert set(theirs) == set(mine)
            assert theirs["hardware"]["cpu"] == mine["hardware"]["cpu"]
    assert "hardware" in VARYING


def test_scancel(sweep, cluster, meanwhile):
    meanwhile(lambda: say("scancel", first_task("%F_%K")))
    code, out, _ = sweep(*WORDS, *HANG)
    assert code == 1
    assert table(out)[1][:4] == ["random", "1", "not", "finished"]
    assert "CANCELLED" in out
    assert manifest.read(RUN1)["status"] == "interrupted"
    code, out, _ = sweep(*WORDS, *HANG)
    assert code == 0
    assert "epoch 1, update 10" in out
    assert_finished(out)


def test_requeue(sweep, cluster, meanwhile):
    def requeue():
        task = first_task("%F_%K")
        say("scontrol", "requeue", task)
        start_again_at_once(task)

    meanwhile(requeue)
    code, out, _ = sweep(*WORDS, *HANG)
    assert code == 0, out
    assert_finished(out)


def test_the_time_limit(sweep, cluster):
    code, out, _ = sweep(*WORDS, "--time", "1", *HANG)
    assert code == 1
    assert "TIMEOUT" in out
    assert manifest.read(RUN1)["status"] == "interrupted"
    code, out, _ = sweep(*WORDS, "--time", "1", *HANG)
    assert code == 0
    assert_finished(out)


@pytest.mark.parametrize("requeue", [True, False])
def test_a_node_dies(sweep, cluster, meanwhile, requeue):
    nodes = []

    def die():
        task = first_task("%F_%K")
        nodes.append(first_task("%N"))
        kill_slurmd(nodes[0], cluster)
        kill_processes_of(nodes[0], cluster)
        if requeue:
            start_again_at_once(task)

    words = [*WORDS, *([] if requeue else ["--slurm", "--no-requeue"])]
    meanwhile(die)
    code, out, _ = sweep(*words, *HANG)
    if not requeue:
        assert code == 1
        assert "NODE_FAIL" in out
        assert manifest.read(RUN1)["status"] == "running"
        code, out, _ = sweep(*words, *HANG)
    start_slurmd(nodes[0], cluster)
    assert code == 0, out
    assert_finished(out)


def test_a_node_that_only_stops_responding(sweep, cluster, meanwhile):
    """Its trainer continues, and the requeued task waits until that trainer has ended."""

    def vanish():
        task, node = first_task("%F_%K"), first_task("%N")
        kill_slurmd(node, cluster)
        start_again_at_once(task)
        until(lambda: first_task("%N") not in (None, node))
        time.sleep(3)
        assert text(RUN1 / "starts.jsonl").count("\n") == 1
        start_slurmd(node, cluster)

    meanwhile(vanish)
    code, out, _ = sweep(*WORDS, *HANG)
    assert code == 0, out
    assert_finished(out)
