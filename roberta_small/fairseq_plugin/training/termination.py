"""How training ends: a clear error if it diverges or a GPU has too little memory; no loading thread is left.

fairseq stops with a traceback if gradients are NaN or infinite, and continues if the loss is huge but finite.
It leaves out batches for which the memory of a GPU does not suffice.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any

from fairseq.data.iterators import BackgroundConsumer
from fairseq.trainer import Trainer

from roberta_small.common.errors import OUT_OF_MEMORY, UserError

MAX_LOSS = 1e4
"""Bits per sentence or token. For comparison, a uniform guess among a million classes costs 20 bits."""
NON_FINITE = "Nan/Inf"
"""Part of fairseq's error message for gradients that are not finite."""
NOT_FINITE = "gradients are NaN or infinite"
POLL_SECONDS = 0.05


def stopping_at_divergence(
    original: Callable[..., Any], trainer: Trainer, samples: list[Any], raise_oom: bool = False
) -> Any:
    """Replace `Trainer.train_step`: abort on NaN or on a loss above 1e4.

    Raises `UserError`, also if the memory of a GPU does not suffice for a batch of one worker; several have
    to leave out a batch together.
    """
    alone = trainer.data_parallel_world_size == 1
    try:
        output = original(trainer, samples, raise_oom or alone)
    except Exception as error:
        if alone and OUT_OF_MEMORY.search(f"{type(error).__name__}: {error}"):
            raise UserError(
                f"{trainer.cfg.checkpoint.save_dir}: out of GPU memory at update "
                f"{trainer.get_num_updates() + 1}; train fewer runs at a time (--jobs 1), or half the "
                "--batch-size with --update-freq 2 (checkpoints and curves up to here are kept)"
            ) from None
        # Before it raises, fairseq writes crash.pt, which may fail with another error.
        first = error if isinstance(error, FloatingPointError) else error.__context__
        if not (isinstance(first, FloatingPointError) and NON_FINITE in str(first)):
            raise
        raise UserError(divergence(trainer, NOT_FINITE, trainer.get_num_updates())) from None
    check_loss(trainer, output or {}, trainer.get_num_updates())
    return output


def check_loss(trainer: Trainer, output: dict[str, Any], update: int) -> None:
    """Raise `UserError` if the loss of an update, in what fairseq returns for it, is NaN or too large."""
    loss = float(output.get("loss", 0.0))
    if not abs(loss) < MAX_LOSS:  # also true for NaN
        raise UserError(divergence(trainer, f"the loss is {loss:.4g}", update))


def divergence(trainer: Trainer, symptom: str, update: int) -> str:
    """The message of the error."""
    return (
        f"{trainer.cfg.checkpoint.save_dir}: training diverged at update {update}: "
        f"{symptom}, learning rate {trainer.get_lr():.4g}; lower --lr or increase --warmup-updates "
        "(checkpoints and curves up to here are kept)"
    )


def stop_loading() -> None:
    """Stop fairseq's loading threads after their current batches, and wait for them.

    If training ends within an epoch, they are still running. One that is inside torch while the interpreter
    shuts down aborts the process ("terminate called without an active exception").
    """
    threads = [thread for thread in threading.enumerate() if isinstance(thread, BackgroundConsumer)]
    for thread in threads:
        thread._max_len = 0
    for thread in threads:
        while thread.is_alive():
            with contextlib.suppress(queue.Empty):
                while True:  # the thread may be waiting to put a batch into the full queue
                    thread._queue.get_nowait()
            thread.join(POLL_SECONDS)
