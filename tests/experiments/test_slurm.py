"""`train --slurm`: what is submitted, and the runs of a real SLURM of two nodes (make test-slurm)."""

import itertools
import json
import os
import shlex
import threading
import time
from pathlib import Path

import pytest

from roberta_small.common import manifest
from roberta_small.common.errors import UserError
from roberta_small.experiments import slurm
from roberta_small.experiments.__main__ import main
from roberta_small.experiments.execute import MEASURED
from tests.support import fake_trainer, real_slurm
from tests.support.parsed import table, train_settings
from tests.support.real_slurm import (
    first_task,
    kill_processes_of,
    kill_slurmd,
    say,
    start_again_at_once,
    start_slurmd,
    text,
    until,
)

RUN1, RUN2 = Path("runs/fairseq/random/seed1"), Path("runs/fairseq/random/seed2")
VARYING = ("started", "ended", "seconds", "command", "hardware", *MEASURED)
"""Manifest keys that depend on time and machine."""
WORDS = ["--inits", "random", "--seeds", "1", "2"]
HANG = ["--", "--hang-seed", "1"]
METHOD = f"""
from roberta_small.experiments import methods
from roberta_small.experiments.methods.fairseq import Fairseq

method = Fairseq({fake_trainer.COMMAND!r})
method.name = "fake"
methods.register(method)
"""
"""A module for RS_PLUGINS, so that tasks have the fake trainer, too."""
FAKE_SBATCH = """#!/bin/sh
for word in "$@"; do printf '%s\\n' "$word" >>"$FAKE_SLURM/words"; done
cat >"$FAKE_SLURM/script"
if [ -e "$FAKE_SLURM/refuse" ]; then echo "sbatch: error: invalid partition" >&2; exit 1; fi
echo "17;cluster"
"""


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A folder with a sbatch that records how it is called."""
    folder = tmp_path / "cluster"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/sbatch").write_text(FAKE_SBATCH)
    (folder / "bin/sbatch").chmod(0o755)
    monkeypatch.setenv("FAKE_SLURM", str(folder))
    monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return folder


def test_the_command_is_submitted_with_one_task_for_each_unfinished_run(sweep, cluster, here):
    assert sweep(*WORDS[:2], "--seeds", "2")[0] == 0
    options = "--partition=gpu --time 60"
    code, out, err = sweep(*WORDS, "3", "--slurm", options, "--", "--lr", "1e-4")
    assert (code, err) == (0, "")
    assert "job 17" in out
    words = (cluster / "words").read_text().splitlines()
    assert "--array=0,2" in words
    assert words[-3:] == ["--partition=gpu", "--time", "60"]
    assert any(word.startswith("--output=") and "/runs/.slurm/" in word for word in words)
    task = shlex.split((cluster / "script").read_text().splitlines()[-1])
    assert task[task.index("roberta_small") + 1 :] == [
        *("train", "--data", "bin", "--recipe", "quick.txt", "--device", "cpu", "--no-baselines"),
        *(*WORDS, "3"),
        *("--max-runs", "1", "--jobs", "1", "--", "--lr", "1e-4"),
    ]
    assert not Path("runs/fairseq/random/seed1").exists()
    (cluster / "words").unlink()
    assert sweep(*WORDS[:2], "--seeds", "2", "--slurm", "")[0] == 0
    assert not (cluster / "words").exists()  # the run is finished


def test_a_dry_run_prints_the_call_and_submits_nothing(sweep, cluster):
    code, out, _ = sweep(*WORDS, "--slurm", "--mem=4G", "--dry-run")
    assert code == 0
    assert "--mem=4G" in out
    assert "--max-runs 1" in out
    assert not (cluster / "words").exists()
    assert not Path("runs").exists()


def test_errors_of_sbatch_are_shown(sweep, cluster):
    (cluster / "refuse").touch()
    code, _, err = sweep(*WORDS, "--slurm=--partition=none")
    assert (code, err.count("\n")) == (1, 1)
    assert "invalid partition" in err


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ("gpu", ["'gpu'", "--option"]),
        ("--array=1-9", ["--array"]),
        ("--arr 1", ["--arr"]),
        ("-a1-5", ["-a1-5"]),
        ("--chdir=/", ["--chdir"]),
        ("'--mem", ["quot"]),
    ],
)
def test_options_that_cannot_be_passed_raise(cluster, options, facts):
    with pytest.raises(UserError) as caught:
        train_settings(["--data", "d", f"--slurm={options}"], {})
    assert all(fact in str(caught.value) for fact in facts)


def test_without_sbatch_the_option_raises(monkeypatch):
    monkeypatch.setenv("PATH", "/none")
    with pytest.raises(UserError, match="sbatch"):
        train_settings(["--data", "d", "--slurm", ""], {})
    assert train_settings(["--data", "d"], {}).slurm is None


def test_a_folder_that_slurm_cannot_write_to_raises(tmp_path):
    with pytest.raises(UserError, match="backslash"):
        slurm.words((), tmp_path / "a\\b", [0])


# With a real SLURM.
real = [pytest.mark.slurm, pytest.mark.skipif(not real_slurm.INSTALLED, reason="SLURM is not installed")]


@pytest.fixture(scope="module")
def running():
    with real_slurm.running() as folder:
        yield folder


@pytest.fixture
def nodes(running, monkeypatch, tmp_path):
    """The folder of the cluster, whose commands are on the PATH; tasks have the method `fake`."""
    for name, value in real_slurm.environment(running).items():
        monkeypatch.setenv(name, value)
    (tmp_path / "fake_method.py").write_text(METHOD)
    monkeypatch.setenv("RS_PLUGINS", str(tmp_path / "fake_method.py"))
    return running


@pytest.fixture
def submit(here, nodes, capfd):
    """Run `train --method fake --slurm --wait`; returns exit code and output."""

    def run(*words, options="--wait"):
        cut = words.index("--") if "--" in words else len(words)
        common = ["--data", "bin", "--recipe", "quick.txt", "--device", "cpu", "--arm", "fairseq"]
        slurm = [] if options is None else [f"--slurm={options}"]
        code = main(["train", "--method", "fake", *common, *words[:cut], *slurm, *words[cut:]])
        return code, capfd.readouterr().out

    return run


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


class TestRealSlurm:
    pytestmark = real

    def test_runs_and_table_equal_those_of_one_machine(self, submit):
        words = ["--inits", "random", "pretrained", "--pretrained", "model.pt", "--seeds", "1", "2", "3"]
        lasting = ["--", "--linger", "2"]  # long enough to be measured
        code, out = submit(*words, "--out", "here", *lasting, options=None)
        assert code == 0
        far = "là %j%% 'x'\n;z"
        far_code, far_out = submit(*words, "--out", far, *lasting)
        assert far_code == 0, far_out
        assert table(far_out) == table(out)
        assert len(table(out)) == 7
        for init, seed in itertools.product(("random", "pretrained"), (1, 2, 3)):
            run = Path(f"fairseq/{init}/seed{seed}")
            mine, theirs = manifest.read("here" / run), manifest.read(far / run)
            assert {key for key in mine if mine[key] != theirs[key]} <= set(VARYING)
            assert set(theirs) == set(mine)
            assert set(MEASURED) <= set(mine)
            starts = [json.loads(line) for line in (far / run / "starts.jsonl").read_text().splitlines()]
            assert len(starts) == 1

    def test_scancel(self, submit, meanwhile):
        meanwhile(lambda: say("scancel", first_task("%F_%K")))
        code, out = submit(*WORDS, *HANG)
        assert code == 1
        assert table(out)[1][:4] == ["random", "1", "not", "finished"]
        assert manifest.read(RUN1)["status"] == "interrupted"
        code, out = submit(*WORDS, *HANG)
        assert code == 0
        assert "epoch 1, update 10" in out
        assert_finished(out)

    def test_requeue(self, submit, meanwhile):
        def requeue():
            task = first_task("%F_%K")
            say("scontrol", "requeue", task)
            start_again_at_once(task)

        meanwhile(requeue)
        code, out = submit(*WORDS, *HANG)
        assert code == 0, out
        assert_finished(out)

    def test_the_time_limit(self, submit):
        code, _ = submit(*WORDS, *HANG, options="--wait --time=1")
        assert code == 1
        assert manifest.read(RUN1)["status"] == "interrupted"
        code, out = submit(*WORDS, *HANG, options="--wait --time=1")
        assert code == 0
        assert_finished(out)

    @pytest.mark.parametrize("requeue", [True, False])
    def test_a_node_dies(self, submit, nodes, meanwhile, requeue):
        dead = []

        def die():
            task = first_task("%F_%K")
            dead.append(first_task("%N"))
            kill_slurmd(dead[0], nodes)
            kill_processes_of(dead[0], nodes)
            if requeue:
                start_again_at_once(task)

        options = "--wait" if requeue else "--wait --no-requeue"
        meanwhile(die)
        code, out = submit(*WORDS, *HANG, options=options)
        if not requeue:
            assert code == 1
            assert manifest.read(RUN1)["status"] == "running"
            code, out = submit(*WORDS, *HANG, options=options)
        start_slurmd(dead[0], nodes)
        assert code == 0, out
        assert_finished(out)

    def test_a_node_that_only_stops_responding(self, submit, nodes, meanwhile):
        """Its trainer continues, and the requeued task waits until that trainer has ended."""

        def vanish():
            task, node = first_task("%F_%K"), first_task("%N")
            kill_slurmd(node, nodes)
            start_again_at_once(task)
            until(lambda: first_task("%N") not in (None, node))
            time.sleep(3)
            assert text(RUN1 / "starts.jsonl").count("\n") == 1
            start_slurmd(node, nodes)

        meanwhile(vanish)
        code, out = submit(*WORDS, *HANG)
        assert code == 0, out
        assert_finished(out)
