"""A sweep or a pre-training that is killed at any moment and resumed gives the same results, bit for bit.

FAULTS_KILLS is the number of kills, FAULTS_SEED draws other moments.
"""

import os
import random
import time
from collections import Counter

import pytest

from tests.faults import tiny
from tests.faults.kills import KINDS, draw, kill, run_and_kill
from tests.faults.outcome import differences, outcome

pytestmark = [pytest.mark.faults, pytest.mark.slow]
KILLS = int(os.environ.get("FAULTS_KILLS", "50"))
SEED = int(os.environ.get("FAULTS_SEED", "1"))
IN_ONE_FOLDER = 8
"""Number of successive kills of a sweep; then it finishes and is compared."""
ENOUGH = 20
"""Minimum number of kills for the check that every phase and every quarter of the updates was hit."""
FEWER = max(1, KILLS // 5)
"""Kills of a pre-training over shards, and beside another launcher."""


class Whole:
    """A work and its outcome without kills."""

    def __init__(self, folder, work):
        self.work = work
        self.folder = tiny.prepare(folder, work)
        begun = time.monotonic()
        self.outcome = self.run("alone")
        self.seconds = (time.monotonic() - begun) / len(work.runs)

    def run(self, name):
        folder = self.folder / name
        folder.mkdir()
        return self.finish(folder)

    def finish(self, folder):
        code, said = tiny.run(folder, work=self.work)
        assert code == 0, said
        return outcome(folder, self.work)

    def kill(self, count):
        """The kills, and the number of folders; the outcome of each folder must be that without kills."""
        generator = random.Random(SEED)
        fallen, folders = [], 0
        while len(fallen) < count:
            folders += 1
            folder = self.folder / f"killed{folders}"
            folder.mkdir()
            for part in sorted(generator.random() for _ in range(min(IN_ONE_FOLDER, count - len(fallen)))):
                kind = KINDS[len(fallen) % len(KINDS)]
                fell = run_and_kill(folder, draw(generator, kind, part, self.seconds, self.work), self.work)
                if fell is None:
                    break
                fallen.append(fell)
            assert differences(self.outcome, self.finish(folder)) == [], f"{folder}: see the file said"
        return fallen, folders


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    return Whole(tmp_path_factory.mktemp("kill"), tiny.SWEEP)


def test_the_same_sweep_twice_is_the_same(sweep):
    """Bytes of weights and of the optimizer's state, metrics, tables."""
    assert differences(sweep.outcome, sweep.run("again")) == []


def test_killed_sweeps_have_the_same_outcome(sweep, figures):
    fallen, folders = sweep.kill(KILLS)
    phases = Counter(fell.phase for fell in fallen)
    quarters = Counter(min(3, int(4 * fell.fraction)) for fell in fallen)
    figures["killed sweeps"] = {"kills": len(fallen), "sweeps": folders, **phases}
    if len(fallen) >= ENOUGH:
        assert phases.keys() >= {"start", "train", "validate", "save", "copy", "saved", "log"}
        assert quarters.keys() == {0, 1, 2, 3}


def test_another_launcher_resumes_the_runs_of_a_killed_one(sweep, figures):
    generator = random.Random(SEED + 1)
    for number in range(FEWER):
        folder = sweep.folder / f"two{number}"
        folder.mkdir()
        killed, other = (tiny.start(folder, work=sweep.work) for _ in range(2))
        time.sleep(generator.uniform(0, 2 * sweep.seconds))
        if killed.poll() is None:
            kill(killed)
        assert other.wait() == 0, (folder / "said").read_text()
        assert differences(sweep.outcome, outcome(folder, sweep.work)) == [], f"{folder}: see the file said"
    figures["killed launchers beside another one"] = {"kills": FEWER}


def test_a_killed_pretraining_has_the_same_outcome(tmp_path, figures):
    """With shards, and with model.pt, which is written at the end."""
    fallen, folders = Whole(tmp_path, tiny.PRETRAINING).kill(FEWER)
    phases = Counter(fell.phase for fell in fallen)
    figures["killed pre-trainings"] = {"kills": len(fallen), "pre-trainings": folders, **phases}
