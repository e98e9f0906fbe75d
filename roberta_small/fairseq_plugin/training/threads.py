"""The number of CPU threads: at the start of a command of fairseq, and while others use the cores.

torch starts a thread per core, and the threads of an operation wait for each other in a loop. If another
process uses one of the cores, that process and the loop stop each other in every operation: a small training
takes 30 times as long as with one thread. With the variables of the launcher (`common.hardware.TUNING`), each
of an update's hundreds of small operations still waits for the thread that has lost its core.
"""

from __future__ import annotations

import logging
import os
import shlex
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from roberta_small.common import hardware

if TYPE_CHECKING:
    from fairseq.trainer import Trainer

logger = logging.getLogger(__name__)
INTERVAL_SECONDS = 3.0
"""Between two looks at the load."""
LONG_WAIT = 0.3
"""Cores that threads wait for on average, from which there is a thread less."""
IDLE = 0.7
"""Idle cores from which there is a thread more."""


def set_threads() -> None:
    """Use the cores that are idle now, unless the user has set `OMP_NUM_THREADS` or `MKL_NUM_THREADS`.

    The log states the number, and the variables that can only be set before the process starts.
    """
    if any(os.environ.get(name) for name in hardware.THREADS):
        return
    cores, idle = hardware.usable_cores(), hardware.idle_cores()
    threads = cores if idle is None else max(1, min(cores, round(idle)))
    torch.set_num_threads(threads)
    unset = {name: value for name, value in hardware.environment(cores).items() if name not in os.environ}
    start = shlex.join(["env", *(f"{name}={value}" for name, value in unset.items()), "fairseq-train"])
    logger.info("CPU threads: %d (%d cores). The launcher uses: %s ...", threads, cores, start)


class LoadFollower:
    """Sets the number of threads to that of the cores that the process gets, at most its share.

    The launcher divides the cores between the runs that it trains at a time. When fewer are left, each has a
    larger share. A number that the user has chosen stays: another one changes the order of summation.
    """

    def __init__(self, workers: int = 1) -> None:
        """`workers` is the number of processes of this run."""
        self._workers = workers
        self._given = hardware.threads_are_given()
        shared = any(os.environ.get(name) for name in hardware.THREADS)  # by the launcher
        self._least_share = torch.get_num_threads() if shared else hardware.usable_cores()
        self._meter = hardware.LoadMeter()
        self._next = time.monotonic() + INTERVAL_SECONDS

    def update(self) -> None:
        """Look at the load if it is time, and set the number of threads if it has to change."""
        if self._given or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + INTERVAL_SECONDS
        load, threads = self._meter.measure(), torch.get_num_threads()
        if load is None:
            return
        if load.waiting > LONG_WAIT:
            wanted = max(1, threads - max(1, round(load.waiting)))
        else:
            share = self._least_share
            if self._workers == 1:  # several have the same parent, and wait for each other
                share = max(share, hardware.usable_cores() // hardware.siblings())
            wanted = min(share, threads + int(load.idle + 1 - IDLE))
        if wanted != threads:
            torch.set_num_threads(wanted)
            reason = "the cores are busy" if wanted < threads else "cores are idle"
            logger.info("CPU threads: %d (%s)", wanted, reason)


def following_load(
    original: Callable[..., Any], trainer: Trainer, samples: Sequence[Any], *args: Any, **kwargs: Any
) -> Any:
    """Replace `Trainer.train_step`: fewer CPU threads while other processes use the cores."""
    if not trainer.cuda:
        if not hasattr(trainer, "load_follower"):
            trainer.load_follower = LoadFollower(trainer.data_parallel_world_size)
        trainer.load_follower.update()
    return original(trainer, samples, *args, **kwargs)
