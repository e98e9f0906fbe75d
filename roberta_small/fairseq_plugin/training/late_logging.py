"""On a GPU, what an update logs is read one update later.

fairseq reads the gradient norm twice, the loss and the confusion matrix in each update. Each time the CPU
waits until the GPU is done, and then the GPU waits until the CPU has launched the next operations. Here they
are copied together, while the GPU works, and logged when the next update has been launched, or when metrics
are read (`logging_first`). The numbers are the same.

An update with a norm that is not finite changes no weight (`FairseqFusedAdam.clip_grad_norm`), so that this
error, too, can be reported one update later. With several workers, or with an optimizer of fairseq's,
everything is read at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from fairseq.logging import metrics
from fairseq.logging.meters import MetersDict
from fairseq.trainer import Trainer
from torch import Tensor

from roberta_small.common.errors import UserError
from roberta_small.fairseq_plugin.training import termination
from roberta_small.fairseq_plugin.training.optimizer import FairseqFusedAdam

FINITE = torch.zeros(())
"""What fairseq gets as the norm of an update, which is read later; it only checks that it is finite."""
_updates: list[Update] = []
"""Updates that are not logged yet."""


def keeping_norm(clip: Callable[..., Tensor], trainer: Trainer, *args: Any) -> Tensor:
    """Replace `Trainer.clip_grad_norm`: a GPU does not wait until the gradient norm is read."""
    norm = clip(trainer, *args)
    if not logs_late(trainer):
        return norm
    trainer.unread_norm = norm
    return FINITE


def logging_late(
    log: Callable[..., Any],
    trainer: Trainer,
    outputs: list[dict[str, Any]],
    sample_size: float,
    norm: Tensor | None = None,
) -> Any:
    """Replace `Trainer._reduce_and_log_stats`: on a GPU, log an update when the next one is launched."""
    if norm is not FINITE:
        return log(trainer, outputs, sample_size, norm)
    _updates.append(Update(log, trainer, outputs, sample_size))
    return _updates.pop(0).log() if len(_updates) > 1 else {}


def logging_first(read: Callable[..., Any], name: str) -> Any:
    """Replace `metrics.get_smoothed_values`: metrics are those of all updates."""
    while _updates:
        _updates.pop(0).log()
    return read(name)


def logs_late(trainer: Trainer) -> bool:
    """Whether what an update logs is read later."""
    return (
        trainer.cuda
        and trainer.data_parallel_world_size == 1
        and isinstance(trainer.optimizer, FairseqFusedAdam)
    )


class Update:
    """The arguments of `_reduce_and_log_stats` for an update, whose tensors are on their way to the CPU."""

    def __init__(
        self, log: Callable[..., Any], trainer: Trainer, outputs: list[dict[str, Any]], sample_size: float
    ) -> None:
        self._log, self._trainer, self._outputs = log, trainer, outputs
        self._sample_size, self._number = sample_size, trainer.get_num_updates()
        self._aggregators = metrics._active_aggregators.copy()
        norm = trainer.unread_norm
        del trainer.unread_norm
        self._places = [
            (output, name)
            for output in outputs
            for name, value in output.items()
            if torch.is_tensor(value) and value.device == norm.device
        ]
        tensors = [norm, *(output[name] for output, name in self._places)]
        self._like = [(x.shape, x.dtype) for x in tensors]
        flat = torch.cat([x.detach().flatten().double() for x in tensors])  # exact for counts up to 2^53
        self._flat = flat.to("cpu", non_blocking=True)  # nothing waits for it before it is needed
        self._copied = torch.cuda.Event()
        self._copied.record()

    def log(self) -> Any:
        """Log the update, and return what fairseq returns. Raises `UserError` if training has diverged."""
        self._copied.synchronize()
        parts = self._flat.split([shape.numel() for shape, _ in self._like])
        norm, *values = (x.view(shape).to(dtype) for x, (shape, dtype) in zip(parts, self._like, strict=True))
        if not norm.isfinite():
            raise UserError(termination.divergence(self._trainer, termination.NOT_FINITE, self._number))
        for (output, name), value in zip(self._places, values, strict=True):
            output[name] = value
        now = metrics._active_aggregators.copy()
        self._activate(self._aggregators)  # what was active when the update was made
        try:
            logged = self._log(self._trainer, self._outputs, self._sample_size, norm)
        finally:
            self._activate(now)
        termination.check_loss(self._trainer, logged, self._number)
        return logged

    @staticmethod
    def _activate(aggregators: dict[str, MetersDict]) -> None:
        metrics._active_aggregators.clear()
        metrics._active_aggregators.update(aggregators)
