"""fairseq's loading threads end before the process does."""

import subprocess
import sys
import threading
import time

import pytest
import torch
from fairseq.data.iterators import BufferedIterator

from fairseq_plugin.training.termination import stop_loading


class Batches:
    """Many, each of which takes some work."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.made = seconds, 0

    def __len__(self) -> int:
        return 1_000_000

    def __iter__(self):
        for _ in range(len(self)):
            time.sleep(self.seconds)
            self.made += 1
            yield torch.ones(64, 64) @ torch.ones(64, 64)


@pytest.mark.parametrize("seconds", [0.0, 0.01])  # waiting for a place in the queue, and at work
def test_a_thread_stops_within_a_batch(seconds):
    batches = Batches(seconds)
    loaded = BufferedIterator(2, batches)
    next(loaded)
    stop_loading()
    assert not loaded._consumer.is_alive()
    made = batches.made
    time.sleep(0.05)
    assert batches.made == made


def test_other_threads_are_left_alone():
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    stop_loading()
    assert thread.is_alive()
    ended.set()
    thread.join()


def test_the_plugin_stops_them_at_exit():
    script = (
        "import atexit, sys; sys.path.insert(0, sys.argv[1])\n"
        "atexit.register(lambda: print('alive:', loaded._consumer.is_alive()))\n"  # first in, last out
        "from test_loading import Batches\n"  # imports the plugin
        "from fairseq.data.iterators import BufferedIterator\n"
        "loaded = BufferedIterator(2, Batches(0.01))\n"
        "next(loaded)\n"
    )
    folder = __file__.rsplit("/", 1)[0]
    ended = subprocess.run(
        [sys.executable, "-c", script, folder], capture_output=True, text=True, timeout=120
    )
    assert (ended.returncode, ended.stdout) == (0, "alive: False\n"), ended.stderr
