"""Checks of flags that fairseq would accept and fail on later, or silently follow in the wrong direction.

With a misspelt `--best-checkpoint-metric` fairseq fails after the first epoch, and without
`--maximize-best-checkpoint-metric` it keeps the checkpoint with the lowest accuracy.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

from fairseq.trainer import Trainer

from roberta_small.common.errors import UserError
from roberta_small.common.metrics import check_selectable, find, lower_is_better
from roberta_small.fairseq_plugin.tasks.criterion import SentenceClassificationCriterion

logger = logging.getLogger(__name__)
MAXIMIZE = "--maximize-best-checkpoint-metric"


def checking_settings(original: Callable[..., None]) -> Callable[..., None]:
    """Replace `Trainer.__init__`: check the best checkpoint's metric, and read what the data determine."""

    @functools.wraps(original)
    def build(
        trainer: Trainer, cfg: Any, task: Any, model: Any, criterion: Any, *args: Any, **kwargs: Any
    ) -> None:
        if isinstance(criterion, SentenceClassificationCriterion):
            check_selectable(cfg.checkpoint.best_checkpoint_metric, criterion.labels.kind.name)
            criterion.prepare()
        check_direction(cfg.checkpoint)
        prepare_model(cfg.checkpoint, task, model)
        original(trainer, cfg, task, model, criterion, *args, **kwargs)

    return build


def prepare_model(checkpoint: Any, task: Any, model: Any) -> None:
    """Call `model.prepare(task)` of a model that has it: statistics of the training data become weights.

    A run that resumes loads them from its own checkpoint afterwards. Those of another run would not fit the
    data: raises `UserError` if an initial checkpoint is given. `checkpoint` is fairseq's `CheckpointConfig`.
    """
    if not hasattr(model, "prepare"):
        return
    if checkpoint.finetune_from_model or checkpoint.reset_optimizer:
        raise UserError(
            f"--arch {model.args.arch}: cannot start from a checkpoint, because its weights belong to other "
            "training data; train it on both data sets at once, or use --inits random"
        )
    logger.info(model.prepare(task))


def check_direction(checkpoint: Any) -> None:
    """Raise `UserError` if the flags select the worst checkpoint by a metric whose direction is known.

    `checkpoint` is fairseq's `CheckpointConfig`.
    """
    name, maximize = checkpoint.best_checkpoint_metric, checkpoint.maximize_best_checkpoint_metric
    if lower_is_better(name) and maximize:
        raise UserError(f"--best-checkpoint-metric {name}: lower is better; remove {MAXIMIZE}")
    if find(name) is not None and not lower_is_better(name) and not maximize:
        raise UserError(f"--best-checkpoint-metric {name}: higher is better; add {MAXIMIZE}")
