"""Initial weights of a run: random or from a fairseq checkpoint, with adapters for LoRA."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from fairseq import utils
from peft import PeftModel, TaskType
from safetensors.torch import load_file
from transformers import RobertaForSequenceClassification

from common.errors import UserError
from export.transformers.roberta import (
    Source,
    random_classifier,
    read_source,
    roberta_config,
    sizes_of,
    special_ids,
    to_transformers,
)
from fairseq_plugin.checkpoints.initialization import check_dictionary, check_keys
from fairseq_plugin.tasks.sentence_classification import SentenceClassificationTask

from ..lora import adapters
from ..lora.adapters import BASE
from ..lora.settings import LoraSettings
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
"""Sizes that must be equal in a checkpoint and a recipe -> the recipe's flag."""


def initial_model(
    recipe: Recipe, task: SentenceClassificationTask, checkpoint: Path | None, seed: int
) -> RobertaForSequenceClassification:
    """A classifier with exactly the weights that fairseq-train starts from with this seed.

    Random weights are drawn by fairseq. Those of a checkpoint replace them as in fairseq, and a head that the
    checkpoint does not have stays random. The embedding of token types, which only Transformers has, is zero.
    Dropout is that of the recipe.

    Raises `UserError` if sizes or dictionary of the checkpoint are not those of the recipe and the data.
    """
    vocabulary, classes = len(task.source_dictionary), task.class_names
    source = None
    if checkpoint is not None:
        check_dictionary(checkpoint, task.source_dictionary)
        source = read_source(checkpoint)
        _check_sizes(source, recipe, vocabulary)
    utils.set_torch_seed(seed)  # as fairseq_cli/train.py does before it builds the model
    ours = task.build_model(recipe.cfg.model)
    if source is not None:
        weights = dict(source.weights)
        check_keys(source.path, weights, ours)
        ours.upgrade_state_dict(weights)
        ours.load_state_dict(weights)
    logger.info("initialisation: %s", "random weights" if source is None else f"weights of {checkpoint}")
    model = random_classifier(recipe.sizes(vocabulary), classes, special_ids(task.cfg))
    head = task.cfg.classification_head_name
    model.load_state_dict(to_transformers(ours.state_dict(), head=head, lm_head=False))
    return model


def _check_sizes(source: Source, recipe: Recipe, vocabulary: int) -> None:
    if vocabulary != source.vocabulary:
        raise UserError(
            f"{source.path}: vocabulary of {source.vocabulary:,}, but the dictionary of the data has "
            f"{vocabulary:,} entries, <mask> included; binarize the data with the checkpoint's dictionary"
        )
    theirs, ours = roberta_config(sizes_of(source)), roberta_config(recipe.sizes(vocabulary))
    for name, flag in SIZES.items():
        if (there := getattr(theirs, name)) != (here := getattr(ours, name)):
            raise UserError(
                f"{source.path}: {name} is {there}, in the recipe {here}; set {flag} as in pre-training"
            )


def with_adapters(base: RobertaForSequenceClassification, lora: LoraSettings, run: Path) -> PeftModel:
    """The frozen base with adapters and a trainable head.

    The base is saved in the run folder, to reload the adapters onto; a resumed run uses the saved one. Raises
    `UserError` if a target module does not exist.
    """
    if (run / BASE).is_dir():
        stored = load_file(run / BASE / "model.safetensors")
        base.load_state_dict(stored)
    else:
        adapters.save_model(base, run / BASE)
    base.name_or_path = str(run / BASE)  # for adapter_config.json
    return adapters.add_adapters(base, lora, TaskType.SEQ_CLS, [HEAD])


def check(recipe: Recipe, checkpoints: Iterable[Path | None], lora: LoraSettings | None) -> None:
    """Raise `UserError` for mistakes that would otherwise stop a run only after its start."""
    task = recipe.task()
    for checkpoint in checkpoints:
        model = initial_model(recipe, task, checkpoint, seed=1)
        if lora is not None:
            adapters.check_targets(model, lora, [HEAD])
