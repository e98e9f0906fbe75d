"""What a run starts from: random weights or those of a fairseq checkpoint, with adapters for LoRA."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from fairseq import utils
from peft import PeftModel, TaskType
from safetensors.torch import load_file
from transformers import RobertaForSequenceClassification

from common.errors import UserError
from export.transformers.config import random_classifier, roberta_config, sizes_of
from export.transformers.weights import Source, read_source, to_transformers
from fairseq_plugin.checkpoints.initialization import check_dictionary, check_keys
from fairseq_plugin.tasks.sentence_classification import SentenceClassificationTask

from ..lora import adapters
from ..lora.adapters import BASE, LoraSettings
from .finish import save
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
    recipe: Recipe, task: SentenceClassificationTask, checkpoint: Path | None, seed: int
) -> RobertaForSequenceClassification:
    """The weights that fairseq-train begins with at this seed, weight by weight; drops what the recipe drops.

    Random weights are fairseq's draw; a checkpoint's are put in their place as fairseq does, and a head that
    it lacks stays as it was drawn. What Transformers has beyond them, the row of token types, is zero.
    Raises `UserError` for a checkpoint that is of other sizes than the recipe, or of another dictionary.
    """
    vocabulary, classes = len(task.source_dictionary), task.class_names
    source = None
    if checkpoint is not None:
        check_dictionary(checkpoint, task.source_dictionary)
        source = read_source(checkpoint)
        _check_sizes(source, recipe, vocabulary)
    utils.set_torch_seed(seed)  # as fairseq_cli/train.py before it builds the model
    ours = task.build_model(recipe.cfg.model)
    if source is not None:
        weights = dict(source.weights)
        check_keys(source.path, weights, ours)
        ours.upgrade_state_dict(weights)
        ours.load_state_dict(weights)
    logger.info("initialisation: %s", "random weights" if source is None else f"weights of {checkpoint}")
    model = random_classifier(recipe.sizes(vocabulary), classes)
    head = task.cfg.classification_head_name
    model.load_state_dict(to_transformers(ours.state_dict(), head=head, lm_head=False))
    return model


def _check_sizes(source: Source, recipe: Recipe, vocabulary: int) -> None:
    if vocabulary != source.vocabulary:
        raise UserError(
            f"{source.path}: {source.vocabulary:,} types, but the dictionary of the data has "
            f"{vocabulary:,}, <mask> included; binarize the data with the dictionary that it was trained with"
        )
    theirs, ours = roberta_config(sizes_of(source)), roberta_config(recipe.sizes(vocabulary))
    for name, flag in SIZES.items():
        if (there := getattr(theirs, name)) != (here := getattr(ours, name)):
            raise UserError(
                f"{source.path}: {name} is {there}, in the recipe {here}; give the {flag} of its training"
            )


def with_adapters(base: RobertaForSequenceClassification, lora: LoraSettings, run: Path) -> PeftModel:
    """The frozen base with adapters and a trained head; the base is stored, to reload the adapters on.

    A run that goes on has the base that is stored. Raises `UserError` where a target module is not there.
    """
    if (run / BASE).is_dir():
        stored = load_file(run / BASE / "model.safetensors")
        base.load_state_dict(stored)
    else:
        save(base, run / BASE)
    base.name_or_path = str(run / BASE)  # for adapter_config.json
    return adapters.add_adapters(base, lora, TaskType.SEQ_CLS, [HEAD])


def check(recipe: Recipe, checkpoints: Iterable[Path | None], lora: LoraSettings | None) -> None:
    """Raise `UserError` for what would stop a run at its beginning."""
    task = recipe.task()
    for checkpoint in checkpoints:
        model = initial_model(recipe, task, checkpoint, seed=1)
        if lora is not None:
            adapters.check_targets(model, lora, [HEAD])
