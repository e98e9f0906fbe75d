"""CPU threads of a command that is started without the variables of train.sh."""

import functools
import logging
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from fairseq.distributed import utils

from roberta_small.common import hardware
from roberta_small.fairseq_plugin.training import threads
from tests.support.training import FAST, INPUT, OURS, SIZES, STEPS, configuration


@pytest.fixture
def machine(monkeypatch):
    """Set the cores of the machine; returns the list of numbers of threads that are set."""
    for name in (*hardware.THREADS, *hardware.TUNING):
        monkeypatch.delenv(name, raising=False)
    found = []
    monkeypatch.setattr(torch, "set_num_threads", found.append)

    def cores(usable, idle):
        monkeypatch.setattr(hardware, "usable_cores", lambda: usable)
        monkeypatch.setattr(hardware, "idle_cores", lambda: idle)
        return found

    return cores


@pytest.mark.parametrize(
    ("usable", "idle", "wanted"), [(8, 7.8, 8), (8, 2.4, 2), (8, 0.0, 1), (2, 30.0, 2), (4, None, 4)]
)
def test_the_idle_cores_are_used(machine, usable, idle, wanted):
    found = machine(usable, idle)
    threads.set_threads()
    assert found == [wanted]


@pytest.mark.parametrize("name", hardware.THREADS)
def test_a_number_of_the_user_is_kept(machine, monkeypatch, caplog, name):
    found = machine(8, 8.0)
    monkeypatch.setenv(name, "3")
    with caplog.at_level(logging.INFO):
        threads.set_threads()
    assert (found, caplog.text) == ([], "")


@pytest.mark.parametrize("gpu", [False, True])
def test_commands_of_fairseq_set_the_threads_on_a_cpu(data, machine, monkeypatch, gpu):
    found = machine(8, 3.0)
    words = [word for word in STEPS if word != "--cpu" or not gpu]
    cfg = configuration([data, *OURS, *INPUT, *words, *SIZES, *FAST])
    cfg.distributed_training.distributed_world_size = 1
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    called = []
    utils.call_main(cfg, called.append)
    assert (found, called) == ([] if gpu else [3], [cfg])


@pytest.fixture
def follow(monkeypatch):
    """Run a `LoadFollower` through loads (waiting, idle); returns the number of threads after each."""

    for name in hardware.THREADS:
        monkeypatch.delenv(name, raising=False)

    def run(most, loads, start=None, workers=1):
        number = [start or most]
        measured = iter([load and hardware.Load(*load) for load in loads])
        monkeypatch.setattr(torch, "get_num_threads", lambda: number[0])
        monkeypatch.setattr(torch, "set_num_threads", lambda n: number.__setitem__(0, n))
        monkeypatch.setattr(hardware, "LoadMeter", lambda: SimpleNamespace(measure=lambda: next(measured)))
        monkeypatch.setattr(hardware, "usable_cores", lambda: most)
        monkeypatch.setattr(threads, "INTERVAL_SECONDS", 0.0)
        follower, found = threads.LoadFollower(workers), []
        for _ in loads:
            follower.update()
            found.append(number[0])
        return found

    return run


@pytest.mark.parametrize(
    ("most", "loads", "wanted"),
    [
        (2, [(0.0, 0.0), (0.5, 0.0), (0.0, 0.1), (0.0, 0.9), (0.0, 1.0)], [2, 1, 1, 2, 2]),
        (8, [(2.2, 0.0), (0.4, 0.0), (0.2, 0.2), (0.1, 2.0), (0.0, 8.0)], [6, 5, 5, 7, 8]),
        (4, [(9.0, 0.0), (9.0, 0.0), None, (0.0, 4.0)], [1, 1, 1, 4]),
        (1, [(0.9, 0.0), (0.0, 8.0)], [1, 1]),
    ],
)
def test_the_number_of_threads_follows_the_load(follow, most, loads, wanted):
    assert follow(most, loads) == wanted


@pytest.mark.parametrize(
    ("workers", "siblings", "wanted"),
    [(1, [4, 4, 2, 1], [1, 1, 2, 4]), (1, [1, 1, 2, 4], [2, 3, 2, 1]), (2, [1, 1, 1, 1], [1, 1, 1, 1])],
)
def test_the_last_runs_of_a_sweep_use_the_cores_of_the_finished_ones(
    follow, monkeypatch, workers, siblings, wanted
):
    """Four cores, a run on each; their share, 1, is the least."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv(hardware.FOLLOW, "1")
    numbers = iter(siblings)
    monkeypatch.setattr(hardware, "siblings", lambda: next(numbers))
    idle = [0.0, 0.0, 2.0, 3.0] if siblings[0] == 4 else [1.0] * 4
    assert follow(4, [(0.0, cores) for cores in idle], 1, workers) == wanted


def test_siblings_are_the_processes_of_the_same_parent():
    code = "from roberta_small.common import hardware; print(hardware.siblings())"
    first = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        others = len(hardware.children(os.getpid())) - 1
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert int(found.stdout) == 2 + others
    finally:
        first.communicate(b"\n")


@pytest.mark.parametrize(("follows", "wanted"), [("1", 1), ("", 4)])
def test_a_number_of_the_user_does_not_follow_the_load(follow, monkeypatch, follows, wanted):
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    monkeypatch.setenv(hardware.FOLLOW, follows)
    assert follow(4, [(9.0, 0.0)]) == [wanted]


def test_updates_on_a_cpu_look_at_the_load(monkeypatch):
    calls = []
    monkeypatch.setattr(
        threads, "LoadFollower", lambda _: SimpleNamespace(update=lambda: calls.append("look"))
    )
    step = functools.partial(threads.following_load, lambda trainer, samples: calls.append(samples))
    step(trainer := SimpleNamespace(cuda=False, data_parallel_world_size=1), ["a"])
    step(trainer, ["b"])
    step(SimpleNamespace(cuda=True), ["c"])
    assert calls == ["look", ["a"], "look", ["b"], ["c"]]
