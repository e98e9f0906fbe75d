"""SIGKILL to a sweep and its trainer, at random moments."""

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass

from roberta_small.common import hardware
from roberta_small.common.run import LOG
from roberta_small.experiments.progress import read_log
from roberta_small.experiments.recipe import recipe as recipes
from tests.faults import tiny
from tests.faults.state import State

AIMS = {"save": 1, "copy": 1, "saved": 1, "validate": 4, "log": 60}
"""Phase in which the trainer kills itself, at an exact byte or step -> how often it occurs in an epoch."""
KINDS = ("save", "time", "log", "update", "validate", "time", "copy", "update", "saved", "update")
"""Kinds that are not in `AIMS` are times: after the start, or shortly after an update."""
LONGEST = 900
"""Maximum seconds until a kill or the end, on a busy machine."""


@dataclass(frozen=True)
class Moment:
    """When to kill: at the aim, or `seconds` after the start or after an update of a run."""

    aim: str = ""
    place: tuple[int, int] | None = None
    """Seed and update."""
    seconds: float = 0.0


@dataclass(frozen=True)
class Killed:
    """The phase of the trainer when it was killed, and the fraction of all updates that was logged."""

    phase: str
    fraction: float


def draw(random, kind, part, life, work=tiny.SWEEP):
    """A moment of a kind, after a `part` (0 to 1) of all updates; `life` is the seconds of a run."""
    run, update = divmod(int(part * work.updates * len(work.seeds)), work.updates)
    place = work.seeds[run], 1 + update
    if kind in AIMS:
        times = random.randint(1, AIMS[kind])
        return Moment(aim=f"{kind}:{place[0]}:{place[1]}:{times}:{random.random():.3f}")
    if kind == "update":
        return Moment(place=place, seconds=random.uniform(0, 0.05))
    return Moment(seconds=random.uniform(0, life))


def run_and_kill(folder, moment, work=tiny.SWEEP):
    """Start the work and kill it at the moment; None if it ended before."""
    state = State.new(folder / "state")
    process = tiny.start(folder, work=work, state=folder / "state", aim=moment.aim, trainer=tiny.TRACED)
    begun, deadline = None if moment.place else time.monotonic(), time.monotonic() + LONGEST
    while process.poll() is None:
        now = time.monotonic()
        if begun is None and state.read()[1] >= moment.place:
            begun = now
        if now > deadline or (not moment.aim and begun is not None and now >= begun + moment.seconds):
            kill(process)
        time.sleep(0.001)
    assert time.monotonic() < deadline, "the sweep hangs"
    if process.returncode != -signal.SIGKILL:
        assert process.returncode == 0, (folder / "said").read_text()
        return None
    return Killed(state.read()[0], fraction(folder, work))


def kill(process):
    """Kill all processes at once: the sweep must not notice that its trainer ended."""
    os.kill(process.pid, signal.SIGSTOP)
    for pid in hardware.children(process.pid):
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)  # a process that does not have its own group yet
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def fraction(folder, work):
    """The fraction of all updates that the logs contain."""
    recipe = recipes.load(str(folder.parent / "tiny.txt"))
    updates = sum(read_log(folder / run / LOG, recipe).update for run in work.runs)
    return updates / (work.updates * len(work.runs))
