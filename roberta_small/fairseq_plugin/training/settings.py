"""Settings that fairseq's trainer reads in each update are looked up once.

An update reads some fifty of them (`trainer.cfg.common.fp16`), and omegaconf takes ten to twenty microseconds
for each. On a GPU, which waits for the next operation in small updates, this is a part of their time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from fairseq.trainer import Trainer
from omegaconf import DictConfig, Node


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


def remembering_settings(original: Callable[..., None]) -> Callable[..., None]:
    """Replace `Trainer.__init__`: make its configuration a `RememberingConfig`."""

    @functools.wraps(original)
    def build(trainer: Trainer, *args: Any, **kwargs: Any) -> None:
        original(trainer, *args, **kwargs)
        remember(trainer.cfg)

    return build


def remember(config: DictConfig) -> None:
    """Let a configuration and its groups keep what they look up, in place."""
    object.__setattr__(config, "__class__", RememberingConfig)  # as an attribute it would be a setting
    for key in list(config):
        node = config._get_node(key)
        if isinstance(node, DictConfig) and not node._is_none() and not node._is_missing():
            remember(node)
