"""A training whose loss is no number, or beyond all reason, ends in one line.

fairseq stops at gradients that are no numbers, with its own trace of calls; with a loss that is huge, and a
number, it goes on. The checkpoints and the curves up to there are as they were.
"""

from __future__ import annotations

import atexit
import functools
import queue
import threading
from collections.abc import Callable
from typing import Any

from fairseq.data.iterators import BackgroundConsumer
from fairseq.trainer import Trainer

from common.errors import UserError

LARGEST_LOSS = 1e4
"""In bits a sentence or token: a guess among a million types costs 20."""
NO_NUMBER = "Nan/Inf"
"""What fairseq calls gradients that are none."""


def stopping_at_divergence(original: Callable[..., Any]) -> Callable[..., Any]:
    """`Trainer.train_step` that ends a training whose loss is NaN or beyond `LARGEST_LOSS`."""

    @functools.wraps(original)
    def train_step(trainer: Trainer, samples: list[Any], raise_oom: bool = False) -> Any:
        try:
            output = original(trainer, samples, raise_oom)
        except Exception as error:
            # fairseq writes crash.pt before it gives up, which may fail in turn.
            first = error if isinstance(error, FloatingPointError) else error.__context__
            if not (isinstance(first, FloatingPointError) and NO_NUMBER in str(first)):
                raise
            raise UserError(_line(trainer, "gradients that are no numbers")) from None
        loss = (output or {}).get("loss", 0.0)
        if not abs(float(loss)) < LARGEST_LOSS:  # NaN is not
            raise UserError(_line(trainer, f"a loss of {float(loss):.4g}"))
        return output

    return train_step


def _line(trainer: Trainer, what: str) -> str:
    return (
        f"{trainer.cfg.checkpoint.save_dir}: {what} at update {trainer.get_num_updates()}, learning rate "
        f"{trainer.get_lr():.4g}: the training diverges; lower --lr or lengthen --warmup-updates "
        "(the checkpoints and curves up to here are kept)"
    )


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
