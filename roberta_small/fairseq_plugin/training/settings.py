"""Settings of a training: checked before the first update, and looked up once in all updates.

fairseq accepts some settings and fails on them later, or silently follows them in the wrong direction: with a
misspelt `--best-checkpoint-metric` it fails after the first epoch, and without
`--maximize-best-checkpoint-metric` it keeps the checkpoint with the lowest accuracy.

An update reads some fifty settings, and omegaconf takes ten to twenty microseconds for each. In small updates
on a GPU, which waits for the next operation, this is a part of their time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from fairseq.trainer import Trainer
from omegaconf import DictConfig, Node

from roberta_small.common.errors import UserError
from roberta_small.common.metrics import check_selectable, find, lower_is_better
from roberta_small.fairseq_plugin.tasks.criterion import SentenceClassificationCriterion

logger = logging.getLogger(__name__)


def checking_settings(
    original: Callable[..., None],
    trainer: Trainer,
    cfg: Any,
    task: Any,
    model: Any,
    criterion: Any,
    *args: Any,
    **kwargs: Any,
) -> None:
    """Replace `Trainer.__init__`: a wrong metric or class weight is an error before the first update.

    A model with a method `prepare(task)` computes some of its weights from the training data. A run that
    resumes loads them from its own checkpoint afterwards; those of another run would not fit the data.

    Raises `UserError` if the flags select a metric that does not exist, or the worst checkpoint by a metric
    whose direction is known, and for an initial checkpoint of a model that has `prepare`.
    """
    checkpoint = cfg.checkpoint
    name, maximize = checkpoint.best_checkpoint_metric, checkpoint.maximize_best_checkpoint_metric
    if isinstance(criterion, SentenceClassificationCriterion):
        check_selectable(name, criterion.labels.kind.name)
        criterion.prepare()
    lower = lower_is_better(name)
    if lower == maximize and (lower or find(name) is not None):
        which, change = ("lower", "remove") if lower else ("higher", "add")
        raise UserError(
            f"--best-checkpoint-metric {name}: {which} is better; {change} --maximize-best-checkpoint-metric"
        )
    if hasattr(model, "prepare"):
        if checkpoint.finetune_from_model or checkpoint.reset_optimizer:
            raise UserError(
                f"--arch {model.args.arch}: cannot start from a checkpoint, because its weights belong to "
                "other training data; train it on both data sets at once, or use --inits random"
            )
        logger.info(model.prepare(task))
    original(trainer, cfg, task, model, criterion, *args, **kwargs)


class RememberingConfig(DictConfig):
    """A group of settings that keeps what it has looked up, until a setting of the group changes.

    Python calls `__getattr__` only for what is not an attribute; a value kept as one is found at once.
    References to other settings are looked up each time, because these may change.
    """

    def __getattr__(self, key: str) -> Any:
        value = super().__getattr__(key)
        node = self._get_node(key)
        if isinstance(node, Node) and not node._is_interpolation() and not key.startswith("_"):
            self.__dict__[key] = value
        return value

    def _set_item_impl(self, key: Any, value: Any) -> None:
        self._forget()
        super()._set_item_impl(key, value)

    def _set_value(self, value: Any, flags: dict[str, bool] | None = None) -> None:
        self._forget()
        super()._set_value(value, flags)

    def __delitem__(self, key: Any) -> None:
        self._forget()
        super().__delitem__(key)

    def __delattr__(self, key: str) -> None:
        self._forget()
        super().__delattr__(key)

    def _forget(self) -> None:
        for key in [key for key in self.__dict__ if not key.startswith("_")]:
            del self.__dict__[key]


def remembering_settings(original: Callable[..., None], trainer: Trainer, *args: Any, **kwargs: Any) -> None:
    """Replace `Trainer.__init__`: settings are looked up once; omegaconf would take a part of each update."""
    original(trainer, *args, **kwargs)
    remember(trainer.cfg)


def remember(config: DictConfig) -> None:
    """Let a configuration and its groups keep what they look up, in place."""
    object.__setattr__(config, "__class__", RememberingConfig)  # as an attribute it would be a setting
    for key in list(config):
        node = config._get_node(key)
        if isinstance(node, DictConfig) and not node._is_none() and not node._is_missing():
            remember(node)
