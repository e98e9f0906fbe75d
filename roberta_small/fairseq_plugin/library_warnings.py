"""Warnings of Hydra and torch about calls inside fairseq, which a user of this plugin cannot change.

fairseq reads its command line with names that Hydra has renamed; `initializing` and `composing` make the same
calls with today's names. The remaining calls are in the middle of longer functions; `filter_warnings` ignores
their warnings and no others.
"""

from __future__ import annotations

import logging
import os
import warnings
from typing import Any

import fairseq.dataclass
import hydra
from omegaconf import DictConfig, OmegaConf

HYDRA_VERSION = "1.1"
"""What Hydra assumes, with a warning, for callers that name no version."""
COMPOSING = (
    "In 'config': Usage of deprecated keyword in package header",
    "'config' is validated against ConfigStore schema with the same name",
)
"""Beginnings of Hydra's warnings about fairseq's own configuration (fairseq/config/config.yaml)."""


def initializing(original: Any, config_path: str, **kwargs: Any) -> Any:
    """Replace `hydra.experimental.initialize`: today's name, without a deprecation warning."""
    # fairseq's path is relative to its own file, for which Hydra would read the sources of the stack.
    folder = os.path.normpath(os.path.join(os.path.dirname(fairseq.dataclass.__file__), config_path))
    return hydra.initialize_config_dir(folder, version_base=HYDRA_VERSION, **kwargs)


def composing(original: Any, config_name: str, *, strict: bool | None = None, **kwargs: Any) -> DictConfig:
    """Replace `hydra.experimental.compose`: today's name, without a deprecation warning.

    `strict` is deprecated in Hydra; it only sets the struct flag of the result.
    """
    with warnings.catch_warnings():
        for message in COMPOSING:
            warnings.filterwarnings("ignore", rf"\s*{message}", UserWarning)
        cfg = hydra.compose(config_name, **kwargs)
    if strict is not None:
        OmegaConf.set_struct(cfg, strict)
    return cfg


def filter_warnings() -> None:
    """Ignore messages about single calls inside fairseq; each filter gives its reason."""
    # FairseqTask.train_step uses torch.cuda.amp.autocast, disabled unless --amp is given, in each update.
    warnings.filterwarnings("ignore", r"`torch\.cuda\.amp\.", FutureWarning, r"fairseq\.")
    # fairseq's data loaders request pinned memory on machines without a GPU, too.
    warnings.filterwarnings("ignore", r"'pin_memory' argument", UserWarning, r"torch\.utils\.data\.")
    # fairseq-validate sets the root logger's level to DEBUG when it imports fairseq's speech models.
    logging.getLogger("hydra").setLevel(logging.INFO)
    # runpy, if `python -m` runs a module of this package that it has already imported.
    warnings.filterwarnings("ignore", r"'(roberta_small\.)?fairseq_plugin\.", RuntimeWarning, "runpy")
