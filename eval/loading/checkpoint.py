"""Reading the checkpoint of a classifier: weights, model arguments and task settings.

Supported models: RoBERTa trained with this project's task or fairseq's `sentence_prediction`, and this
project's left-to-right and n-gram classifiers.
"""

from __future__ import annotations

import argparse
import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from roberta_small.common.errors import UserError
from roberta_small.eval.loading.precision import recorded_precision
from roberta_small.fairseq_plugin.checkpoints.architecture import arch_name, model_arguments
from roberta_small.fairseq_plugin.checkpoints.loading import load_checkpoint
from roberta_small.fairseq_plugin.models.causal import CausalLmSmall, CausalRobertaSmall
from roberta_small.fairseq_plugin.models.ngrams import NgramClassifier
from roberta_small.fairseq_plugin.models.roberta import RobertaSmall
from roberta_small.fairseq_plugin.tasks.sentence_classification import (
    SentenceClassificationConfig,
    SentenceClassificationTask,
)

TASKS = ("sentence_classification", "sentence_prediction")
MODELS: dict[str, type[RobertaSmall] | type[NgramClassifier]] = {
    **dict.fromkeys(
        ("roberta_small", "roberta", "roberta_base", "roberta_large", "roberta_prenorm"), RobertaSmall
    ),
    "causal_roberta_small": CausalRobertaSmall,
    "causal_lm_small": CausalLmSmall,
    "ngram_classifier": NgramClassifier,
}
"""Architecture -> model class; stock RoBERTa has the same parameter names as the plugin's model."""


@dataclass(frozen=True)
class Checkpoint:
    """The content of a classifier's checkpoint."""

    path: Path
    arguments: argparse.Namespace
    """The arguments from which fairseq builds the model."""
    settings: dict[str, Any]
    """The configuration of the task."""
    weights: dict[str, Tensor]
    dictionary_sha256: str | None
    """SHA-256 of the symbols including `<mask>` (`dictionary_digest`); None for stock fairseq."""
    class_names: list[str] | None
    """In the order of the logits; None for stock fairseq."""
    precision: str | None = None
    """`fp32` or `bf16`, of training; None if it is not recorded."""

    @property
    def model(self) -> type[RobertaSmall] | type[NgramClassifier]:
        """The model class."""
        return MODELS[arch_name(self.arguments)]

    @property
    def head(self) -> str:
        """Name of the classification head."""
        return self.settings["classification_head_name"]

    @property
    def classes(self) -> int:
        """The number of logits."""
        return len(self.weights[head_weight(self.head)])

    def task_config(self, data: str = "") -> SentenceClassificationConfig:
        """The task's configuration as in training, for the data folder `data`, without shuffling."""
        known = {field.name for field in dataclasses.fields(SentenceClassificationConfig)}
        values = {key: value for key, value in self.settings.items() if key in known and value is not None}
        values |= {"data": data, "num_classes": self.classes, "no_shuffle": True}
        return SentenceClassificationConfig(**values)


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a classifier's checkpoint.

    Raises `UserError` if the file is not a checkpoint (see `load_checkpoint`), has another architecture or
    task, or has no classification head.
    """
    state = load_checkpoint(path, optimizer=False)
    arguments = model_arguments(state)
    cfg = state.get("cfg")
    settings = dict(vars(arguments)) if cfg is None else dict(cfg["task"] or {})
    _check_architecture(path, arguments)
    settings.setdefault("classification_head_name", "sentence_classification_head")
    settings["seed"] = settings["seed"] if isinstance(settings.get("seed"), int) else 1
    _check_head(path, state["model"], settings)
    recorded = (state.get("extra_state") or {}).get(SentenceClassificationTask.__name__) or {}
    return Checkpoint(
        path=path,
        arguments=arguments,
        settings=settings,
        weights=state["model"],
        dictionary_sha256=recorded.get("dictionary_sha256"),
        class_names=recorded.get("class_names"),
        precision=recorded_precision(arguments, state),
    )


def head_weight(head: str) -> str:
    """Name of the weight (K, C) with one row per class."""
    return f"classification_heads.{head}.out_proj.weight"


def _check_architecture(path: Path, arguments: argparse.Namespace) -> None:
    if (name := arch_name(arguments)) not in MODELS:
        raise UserError(
            f"{path}: unsupported architecture '{name}' (supported: {', '.join(MODELS)}); "
            "specify a checkpoint of a sentence classifier"
        )


def _check_head(path: Path, weights: dict[str, Tensor], settings: dict[str, Any]) -> None:
    if head_weight(settings["classification_head_name"]) not in weights:
        raise UserError(
            f"{path}: no classification head (a pretrained model?); fine-tune it first: "
            f"./train.sh --data DATA --pretrained {path}"
        )
    task = settings.get("_name") or settings.get("task")
    if task not in TASKS or settings.get("regression_target"):
        kind = "a regression" if settings.get("regression_target") else f"the task '{task}'"
        raise UserError(f"{path}: trained for {kind}, not for {' or '.join(TASKS)}; specify a classifier")
