"""`hydra.compose` for tests, which read hundreds of command lines of fairseq: the same result, but faster.

The configuration of a task, criterion, optimizer and schedule without further values is composed once. Values
are then set as Hydra sets them (`ConfigLoaderImpl._apply_overrides_to_config`).
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from typing import Any

import hydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

COMPOSE = hydra.compose


def install() -> None:
    """Replace `hydra.compose` in this process."""
    hydra.compose = compose


def compose(config_name: str, overrides: Sequence[str] = (), **kwargs: Any) -> DictConfig:
    """As `hydra.compose`; overrides select a group (`task=masked_lm`) or set a value (`common.seed=1`)."""
    values = [override for override in overrides if "." in override.partition("=")[0]]
    groups = [override for override in overrides if override not in values]
    cfg = copy.deepcopy(_composed(config_name, tuple(groups), **kwargs))
    for override in map(_parsed, values):
        OmegaConf.update(cfg, override.key_or_group, override.value(), merge=True)
    return cfg


@functools.cache
def _composed(config_name: str, groups: tuple[str, ...], **kwargs: Any) -> DictConfig:
    return COMPOSE(config_name, overrides=list(groups), **kwargs)


@functools.cache
def _parsed(override: str) -> Override:
    return OverridesParser.create().parse_override(override)
