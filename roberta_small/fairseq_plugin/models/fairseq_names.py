"""fairseq's own architectures (`roberta_base`, `roberta_large`, ...) on the plugin's model.

fairseq registers these names for its own `RobertaModel`, which has none of the plugin's flags. The entries of
its registries are replaced: with the task `sentence_classification`, or with one of the plugin's flags, they
build `RobertaSmall` in the sizes of their name, with 512 positions unless `--max-positions` is given. In all
other cases they build fairseq's model as before.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from fairseq.models.roberta.model import RobertaModel
from fairseq.tasks import FairseqTask

from roberta_small.fairseq_plugin.models.roberta import RobertaSmall, set_missing
from roberta_small.fairseq_plugin.tasks.sentence_classification import SentenceClassificationTask

TASK = "sentence_classification"
FLAGS = ("encoder_kind", "precision", "pooling", "layer_norm_eps")
"""The arguments that `RobertaSmall` adds to those of `RobertaModel`."""
POSITIONS = 512
"""Positions of the published RoBERTa of both sizes (Liu et al. 2019)."""


def with_plugin_flags(original: type[RobertaModel]) -> type[RobertaModel]:
    """Replace an entry of `ARCH_MODEL_REGISTRY`: the architecture on the plugin's model, with its flags."""

    class Roberta(original):
        """Builds `RobertaSmall` or fairseq's own model; it has no instances."""

        __wrapped__ = original

        @classmethod
        def add_args(cls, parser: argparse.ArgumentParser) -> None:
            """Add the flags of `RobertaSmall`."""
            RobertaSmall.add_args(parser)

        @classmethod
        def build_model(cls, args: Any, task: FairseqTask) -> RobertaModel:
            """Build the model for the arguments and the task."""
            if not (wants_plugin(args) or isinstance(task, SentenceClassificationTask)):
                return original.build_model(args, task)
            set_missing(args, max_positions=POSITIONS)
            return RobertaSmall.build_model(args, task)

    return Roberta


def with_positions(original: Callable[[Any], None], args: Any) -> None:
    """Replace an entry of `ARCH_CONFIG_REGISTRY`: 512 positions with --task sentence_classification."""
    if wants_plugin(args):
        set_missing(args, max_positions=POSITIONS)
    original(args)


def wants_plugin(args: Any) -> bool:
    """Whether the arguments are for the plugin's task or contain one of its flags."""
    given = any(getattr(args, name, None) is not None for name in FLAGS)
    return given or getattr(args, "task", None) == TASK
