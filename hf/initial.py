"""What a run starts from: random weights or those of a fairseq checkpoint, with adapters for LoRA."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from peft import PeftModel, TaskType
from transformers import RobertaForSequenceClassification

from common.errors import UserError
from fairseq_plugin.initialisation import check_dictionary
from fairseq_plugin.task import SentenceClassificationTask

from . import lora_adapters
from .finish import save
from .lora_adapters import BASE, LoraSettings
from .models import pretrained_classifier, random_classifier
from .recipe import Recipe

logger = logging.getLogger(__name__)
HEAD = "classifier"
SIZES = {
    "num_hidden_layers": "--encoder-layers",
    "hidden_size": "--encoder-embed-dim",
    "intermediate_size": "--encoder-ffn-embed-dim",
    "num_attention_heads": "--encoder-attention-heads",
    "max_position_embeddings": "--max-positions",
}
"""What must be the same in a checkpoint and a recipe -> the recipe's flag."""


def initial_model(
    recipe: Recipe, task: SentenceClassificationTask, checkpoint: Path | None
) -> RobertaForSequenceClassification:
    """Random weights, or those of a fairseq checkpoint under a random head; drops what the recipe drops.

    Raises `UserError` for a checkpoint that is of other sizes than the recipe, or of another dictionary.
    """
    vocabulary, classes = len(task.source_dictionary), task.class_names
    model = random_classifier(recipe.sizes(vocabulary), classes)
    if checkpoint is None:
        logger.info("initialisation: random weights")
        return model
    check_dictionary(checkpoint, task.source_dictionary)
    source = pretrained_classifier(checkpoint, classes, vocabulary=vocabulary)
    for name, flag in SIZES.items():
        theirs, ours = getattr(source.config, name), getattr(model.config, name)
        if theirs != ours:
            raise UserError(
                f"{checkpoint}: {name} is {theirs}, in the recipe {ours}; give the {flag} of its training"
            )
    model.roberta.load_state_dict(source.roberta.state_dict())
    logger.info("initialisation: weights of %s, the head is random", checkpoint)
    return model


def with_adapters(base: RobertaForSequenceClassification, lora: LoraSettings, run: Path) -> PeftModel:
    """The frozen base with adapters and a trained head; the base is stored, to reload the adapters on.

    Raises `UserError` where a target module is not there.
    """
    if not (run / BASE).is_dir():
        save(base, run / BASE)
    base.name_or_path = str(run / BASE)  # for adapter_config.json
    return lora_adapters.add_adapters(base, lora, TaskType.SEQ_CLS, [HEAD])


def check(recipe: Recipe, checkpoints: Iterable[Path | None], lora: LoraSettings | None) -> None:
    """Raise `UserError` for what would stop a run at its beginning."""
    task = recipe.task()
    for checkpoint in checkpoints:
        model = initial_model(recipe, task, checkpoint)
        if lora is not None:
            lora_adapters.check_targets(model, lora, [HEAD])
