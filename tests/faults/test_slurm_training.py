"""What a real SLURM trains is, to the last bit, what one machine trains, whatever happens to its tasks.

Run by `make test-slurm`; `tests/experiments/test_slurm.py` has what needs no training.
"""

import shlex
import shutil
from dataclasses import replace

import pytest

from tests.faults import tiny
from tests.faults.outcome import differences, outcome
from tests.support import real_slurm
from tests.support.real_slurm import first_task, say, start_again_at_once, until

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(not real_slurm.INSTALLED, reason="SLURM is not installed"),
]
LONG = ("--", "--max-epoch", "60", "--max-update", "597", "--total-num-update", "597")
"""Seconds in which a task can be disturbed."""
SIX = replace(
    tiny.SWEEP,
    flags=tuple(
        shlex.split("--out runs --inits random pretrained --pretrained ../model.pt --seeds 1 2 3 --jobs 2")
    ),
    runs=tuple(f"runs/fairseq/{init}/seed{seed}" for init in ("random", "pretrained") for seed in (1, 2, 3)),
    seeds=(1, 2, 3),
)
SLURM_SIX = replace(SIX, flags=(*SIX.flags[:-2], "--slurm=--wait"))
SLURM_TWO = replace(tiny.SWEEP, flags=(*tiny.SWEEP.flags[:-2], "--slurm=--wait"))


@pytest.fixture(scope="module")
def cluster():
    with real_slurm.running() as folder, pytest.MonkeyPatch.context() as patch:
        for name, value in real_slurm.environment(folder).items():
            patch.setenv(name, value)
        yield folder


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """Data and recipe, with two runs of one machine in `alone`."""
    folder = tiny.prepare(tmp_path_factory.mktemp("training"))
    trained(folder, "alone", tiny.SWEEP, *LONG)
    return folder


def trained(folder, name, work, *words):
    (folder / name).mkdir(exist_ok=True)
    code, said = tiny.run(folder / name, *words, work=work)
    assert code == 0, said
    return folder / name


def test_six_runs_are_those_of_one_machine_to_the_last_bit(here, cluster):
    shutil.copy(here / "alone" / tiny.SWEEP.runs[0] / "checkpoint_best.pt", here / "model.pt")
    local, slurm = trained(here, "local", SIX), trained(here, "slurm", SLURM_SIX)
    assert differences(outcome(local, SIX), outcome(slurm, SIX)) == []


@pytest.mark.parametrize("fault", ["scancel", "requeue", "a node dies"])
def test_a_disturbed_task_ends_with_the_same_bytes(here, cluster, fault):
    folder = here / fault
    folder.mkdir()
    sweep = tiny.start(folder, *LONG, work=SLURM_TWO)
    log = folder / tiny.SWEEP.runs[0] / "train.log"
    until(lambda: log.exists() and "Saved checkpoint" in log.read_text())
    task, node = first_task("%F_%K"), first_task("%N")
    assert task is not None, "the run ended before it was disturbed"
    if fault == "scancel":
        say("scancel", task)
    elif fault == "requeue":
        say("scontrol", "requeue", task)
        start_again_at_once(task)
    else:
        real_slurm.kill_slurmd(node, cluster)
        real_slurm.kill_processes_of(node, cluster)
        start_again_at_once(task)
    code = sweep.wait(timeout=300)
    assert code == (1 if fault == "scancel" else 0), (folder / "said").read_text()
    if fault == "a node dies":
        real_slurm.start_slurmd(node, cluster)
    trained(here, fault, SLURM_TWO, *LONG)
    assert "Loaded checkpoint" in log.read_text()
    assert differences(outcome(folder), outcome(here / "alone")) == []
