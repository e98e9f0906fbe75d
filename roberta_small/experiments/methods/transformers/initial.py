"""Initial weights of a run: random or from a fairseq checkpoint, with adapters for LoRA."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from fairseq import utils
from peft import PeftModel, TaskType
from safetensors.torch import load_file
from transformers import PreTrainedModel

from roberta_small.common.errors import UserError
from roberta_small.common.families import FAMILIES, Family
from roberta_small.experiments.methods.lora import adapters
from roberta_small.experiments.methods.lora.adapters import BASE
from roberta_small.experiments.methods.lora.settings import LoraSettings
from roberta_small.experiments.methods.transformers.recipe import Hyperparameters
from roberta_small.export.transformers.folder import describe_labels, output_names
from roberta_small.export.transformers.networks import (
    HEADS,
    Source,
    build,
    family_of,
    read_source,
    special_ids,
    to_transformers,
)
from roberta_small.fairseq_plugin.checkpoints.initialization import (
    check_architecture,
    check_dictionary,
    check_keys,
    fit_head,
    labels_of_data,
)
from roberta_small.fairseq_plugin.tasks.sentence_classification import SentenceClassificationTask

logger = logging.getLogger(__name__)


def initial_model(
    recipe: Hyperparameters, task: SentenceClassificationTask, checkpoint: Path | None, seed: int
) -> PreTrainedModel:
    """A classifier with exactly the weights that fairseq-train starts from with this seed.

    Random weights are drawn by fairseq. Those of a checkpoint replace them as in fairseq, and a head that the
    checkpoint does not have stays random. The embedding of the first
    token type is zero: it is part of the positions.
    Dropout is that of the recipe.

    Raises `UserError` if architecture or dictionary of the checkpoint are not those of recipe and data.
    """
    vocabulary, labels = len(task.source_dictionary), task.labels
    source = None
    if checkpoint is not None:
        check_dictionary(checkpoint, task.source_dictionary)
        source = read_source(checkpoint)
        _check_vocabulary(source, vocabulary)
    utils.set_torch_seed(seed)  # as fairseq_cli/train.py does before it builds the model
    ours = task.build_model(recipe.cfg.model)
    if source is not None:
        weights = dict(source.weights)
        state = {"cfg": {"model": source.arguments}, "model": weights}
        check_architecture(str(source.path), source.path, state, ours, keeps_optimizer=False)
        check_keys(source.path, weights, ours)
        ours.upgrade_state_dict(weights)
        own = {name: weight for name, weight in ours.state_dict().items() if name.startswith(HEADS)}
        if (head := source.classification_head) is not None:
            fit_head(weights, own, head, labels_of_data(task))
        ours.load_state_dict(weights)
    logger.info("initialisation: %s", "random weights" if source is None else f"weights of {checkpoint}")
    model = build(recipe.sizes(vocabulary), output_names(labels), special_ids(task.cfg))
    describe_labels(model, labels)
    family, name = family_of(recipe.cfg.model), task.cfg.classification_head_name
    model.load_state_dict(to_transformers(ours.state_dict(), family, head=name, lm_head=False))
    return model


def _check_vocabulary(source: Source, vocabulary: int) -> None:
    if vocabulary != source.vocabulary:
        raise UserError(
            f"{source.path}: vocabulary of {source.vocabulary:,}, but the dictionary of the data has "
            f"{vocabulary:,} entries, <mask> included; prepare the data with the checkpoint's dictionary"
        )


def with_adapters(base: PreTrainedModel, lora: LoraSettings, run: Path) -> PeftModel:
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
    family = FAMILIES[base.config.model_type]
    return adapters.add_adapters(base, _targets(lora, family), TaskType.SEQ_CLS, family.head_modules)


def _targets(lora: LoraSettings, family: Family) -> LoraSettings:
    """The settings with the family's names of the attention's layers."""
    return replace(lora, target_modules=tuple(map(family.linear, lora.target_modules)))


def check(recipe: Hyperparameters, checkpoint: Path | None, lora: LoraSettings | None) -> None:
    """Raise `UserError` for mistakes that would otherwise stop a run only after its start."""
    model = initial_model(recipe, recipe.task(), checkpoint, seed=1)
    if lora is not None:
        family = FAMILIES[model.config.model_type]
        adapters.check_targets(model, _targets(lora, family), family.head_modules)
