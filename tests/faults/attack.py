"""Kill -9 of a sweep and its trainer, at moments that are drawn from a seed."""

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import tiny
from state import State

from common.run import LOG
from experiments import recipes
from experiments.progress import read_log

AIMS = {"save": 1, "copy": 1, "saved": 1, "validate": 4, "log": 60}
"""Phases in which the trainer kills itself, at an exact byte or step -> how many times in an epoch."""
KINDS = ("save", "time", "log", "update", "validate", "time", "copy", "update", "saved", "update")
"""The other moments are free: so long after the start, or shortly after an update."""
LONGEST = 900
"""Seconds that one life may take, on a machine that has much else to do."""


@dataclass(frozen=True)
class Moment:
    """When a kill falls: at the aim, or so long after the start or after an update of a run."""

    aim: str = ""
    place: tuple[int, int] | None = None
    """Seed and update."""
    seconds: float = 0.0


@dataclass(frozen=True)
class Fell:
    """Where a kill has fallen: what the trainer did, and which part of the whole work was logged."""

    phase: str
    share: float


def draw(random, kind, part, life, work=tiny.SWEEP):
    """A moment of a kind, when a part of all updates of the work is done.

    `life` is how long one of its runs takes, in seconds.
    """
    run, update = divmod(int(part * work.updates * len(work.seeds)), work.updates)
    place = work.seeds[run], 1 + update
    if kind in AIMS:
        times = random.randint(1, AIMS[kind])
        return Moment(aim=f"{kind}:{place[0]}:{place[1]}:{times}:{random.random():.3f}")
    if kind == "update":
        return Moment(place=place, seconds=random.uniform(0, 0.05))
    return Moment(seconds=random.uniform(0, life))


def attack(folder, moment, work=tiny.SWEEP):
    """Run the work and kill it at the moment; None where it has ended by itself before."""
    state = State.new(folder / "state")
    process = tiny.start(folder, work=work, state=folder / "state", aim=moment.aim, trainer=tiny.VICTIM)
    begun, deadline = None if moment.place else time.monotonic(), time.monotonic() + LONGEST
    while process.poll() is None:
        now = time.monotonic()
        if begun is None and state.read()[1] >= moment.place:
            begun = now
        if now > deadline or (not moment.aim and begun is not None and now >= begun + moment.seconds):
            kill(process)
        time.sleep(0.001)
    assert time.monotonic() < deadline, "it hangs"
    if process.returncode != -signal.SIGKILL:
        assert process.returncode == 0, (folder / "said").read_text()
        return None
    return Fell(state.read()[0], share(folder, work))


def kill(process):
    """All at once: the sweep must not see how its trainer ends."""
    os.kill(process.pid, signal.SIGSTOP)
    for pid in children(process.pid):
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)  # one that is about to get a group of its own
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def children(parent):
    """The processes that it has started, by their ids."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError, IndexError):
            if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(entry.name))
    return found


def share(folder, work):
    """Part of all updates of the work that its logs tell of."""
    recipe = recipes.load(str(folder.parent / "tiny.txt"))
    updates = sum(read_log(folder / run / LOG, recipe).update for run in work.runs)
    return updates / (work.updates * len(work.runs))
