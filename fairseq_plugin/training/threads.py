"""CPU threads of a command of fairseq that is started directly, without the variables of train.sh.

torch starts a thread per core, and the threads of an operation wait for each other in a loop. If another
process uses one of the cores, that process and the loop stop each other in every operation: a small training
takes 30 times as long as with one thread.
"""

from __future__ import annotations

import logging
import os
import shlex

import torch

from common import cpu

logger = logging.getLogger(__name__)


def set_threads() -> None:
    """Use the cores that are idle now, unless the user has set `OMP_NUM_THREADS` or `MKL_NUM_THREADS`.

    The log states the number, and the variables that can only be set before the process starts.
    """
    if any(os.environ.get(name) for name in cpu.THREADS):
        return
    cores, idle = cpu.usable_cores(), cpu.idle_cores()
    threads = cores if idle is None else max(1, min(cores, round(idle)))
    torch.set_num_threads(threads)
    unset = {name: value for name, value in cpu.environment(cores).items() if name not in os.environ}
    start = shlex.join(["env", *(f"{name}={value}" for name, value in unset.items()), "fairseq-train"])
    logger.info("CPU threads: %d (%d cores). train.sh uses: %s ...", threads, cores, start)
