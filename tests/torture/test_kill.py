"""A sweep that is killed at any moment ends as one that was left alone, bit for bit.

TORTURE_KILLS is the number of kills, TORTURE_SEED draws other moments.
"""

import os
import random
import time
from collections import Counter

import pytest
import tiny
from attack import KINDS, attack, draw
from outcome import differences, outcome

pytestmark = [pytest.mark.torture, pytest.mark.slow]
KILLS = int(os.environ.get("TORTURE_KILLS", "50"))
SEED = int(os.environ.get("TORTURE_SEED", "1"))
IN_ONE_FOLDER = 8
"""After so many kills, one after the other over its whole life, a sweep may end, and is compared."""
ENOUGH = 20
"""From so many kills on every phase and every quarter of the life must have been hit."""


class Whole:
    """Sweeps that nobody disturbs."""

    def __init__(self, folder):
        self.folder = tiny.prepare(folder)
        begun = time.monotonic()
        self.outcome = self.run("alone")
        self.seconds = time.monotonic() - begun

    def run(self, name):
        folder = self.folder / name
        folder.mkdir()
        finish(folder)
        return outcome(folder)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return Whole(tmp_path_factory.mktemp("kill"))


def finish(folder):
    code, said = tiny.run(folder)
    assert code == 0, said


def test_the_same_sweep_twice_is_the_same(whole):
    """Bytes of weights and of the optimizer's state, metrics, tables."""
    assert differences(whole.outcome, whole.run("again")) == []


def test_killed_sweeps_end_as_whole_ones(whole, capsys):
    generator = random.Random(SEED)
    fallen, folders = [], 0
    begun = time.monotonic()
    while len(fallen) < KILLS:
        folders += 1
        folder = whole.folder / f"killed{folders}"
        folder.mkdir()
        for part in sorted(generator.random() for _ in range(min(IN_ONE_FOLDER, KILLS - len(fallen)))):
            kind = KINDS[len(fallen) % len(KINDS)]
            fell = attack(folder, draw(generator, kind, part, whole.seconds / len(tiny.SEEDS)))
            if fell is None:
                break
            fallen.append(fell)
        finish(folder)
        assert differences(whole.outcome, outcome(folder)) == [], f"{folder}: see the file said"
    phases = Counter(fell.phase for fell in fallen)
    quarters = Counter(min(3, int(4 * fell.share)) for fell in fallen)
    with capsys.disabled():
        print(f"\n{len(fallen)} kills in {folders} sweeps, {time.monotonic() - begun:.0f} s: {dict(phases)}")
        print(f"by quarters of the updates: {[quarters[i] for i in range(4)]}")
    if len(fallen) >= ENOUGH:
        assert phases.keys() >= {"start", "train", "validate", "save", "copy", "saved", "log"}
        assert quarters.keys() == {0, 1, 2, 3}
