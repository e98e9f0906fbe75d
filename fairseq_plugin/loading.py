"""Threads that still load data when training ends are stopped before the interpreter is.

fairseq reads batches ahead in a daemon thread (fairseq/data/iterators.py, BufferedIterator). Where the
last update is not the last of an epoch, that thread is still at work when Python shuts down; if it is
then inside torch, it takes the process with it: "terminate called without an active exception", and a
training that has ended well exits with an error.
"""

from __future__ import annotations

import atexit
import queue
import threading

from fairseq.data.iterators import BackgroundConsumer

POLL_SECONDS = 0.05


def stop_at_exit() -> None:
    """Call `stop_loading` when the process ends."""
    atexit.register(stop_loading)


def stop_loading() -> None:
    """End fairseq's loading threads, each after the batch it is at, and wait for them."""
    threads = [thread for thread in threading.enumerate() if isinstance(thread, BackgroundConsumer)]
    for thread in threads:
        thread._max_len = 0
    for thread in threads:
        while thread.is_alive():
            _make_room(thread._queue)  # it may wait for a place in the queue
            thread.join(POLL_SECONDS)


def _make_room(batches: queue.Queue) -> None:
    try:
        while True:
            batches.get_nowait()
    except queue.Empty:
        pass
