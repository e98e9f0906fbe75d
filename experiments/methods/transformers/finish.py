"""The end of a run: its best model read back, proved to answer as it did in training, and passed on.

B sentences, K classes.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import RobertaForSequenceClassification

from common import predictions
from common.files import atomic_folder, atomic_open, atomic_write
from export.transformers.weights import to_fairseq
from fairseq_plugin.tasks.sentence_classification import SentenceClassificationTask

from ..lora import adapters
from ..lora.adapters import ADAPTER, TOLERANCE, Parameters
from .recipe import Recipe
from .run_folder import peak_memory_bytes
from .sweep import MEASURED
from .trainer import ClassifierTrainer, Item, Pad

logger = logging.getLogger(__name__)
MODEL = "model"
PROVED = 16
"""Sentences that a model which is read back must answer as it did in training."""


def finish(
    run: Path,
    recipe: Recipe,
    task: SentenceClassificationTask,
    trainer: ClassifierTrainer,
    parameters: Parameters,
    *,
    lora: bool,
) -> None:
    """Read the best model back, prove it, write it in fairseq's format and say what the run took."""
    measured: dict[str, float] = {
        "trainable_parameters": parameters.trainable,
        "parameters": parameters.total,
        "peak_memory_bytes": peak_memory_bytes(trainer.args.device),
    }
    subset, sentences = next(iter(trainer.subsets.items()))
    batch = Pad(task.source_dictionary.pad())([sentences[i] for i in range(min(PROVED, len(sentences)))])
    if lora:
        best, measured["merged_difference"] = merged(run, batch)
    else:
        best = RobertaForSequenceClassification.from_pretrained(run / MODEL, use_safetensors=True).eval()
    bits = 16 if trainer.args.bf16 else 32
    measured["reloaded_difference"] = check_reloaded(best, batch, run / predictions.file_name(subset), bits)
    atomic_write(run / MEASURED, json.dumps(measured, indent=2) + "\n")
    write_checkpoint(run / "checkpoint_best.pt", best, recipe, task)


def merged(run: Path, batch: Item) -> tuple[RobertaForSequenceClassification, float]:
    """The best adapter, read back on the stored base and merged; and how far merging moves a logit.

    Raises `RuntimeError` where that is more than rounding.
    """
    best = adapters.merged_classifier(run)
    difference = adapters.largest_difference(
        lambda model: logits(model, batch),
        adapters.adapted_classifier(run),
        best,
        f"{run / ADAPTER} merged",
    )
    logger.info("adapter merged: largest difference of a logit %.2g", difference)
    return best, difference


def check_reloaded(model: nn.Module, batch: Item, predicted: Path, bits: int) -> float:
    """Largest difference between the probabilities of a model read back and those written in training.

    `bits` are those of the products in training. Raises `RuntimeError` where it is more than rounding.
    """
    answers_BK = torch.softmax(logits(model, batch).double(), dim=-1)
    written = predictions.read(predicted)[: len(answers_BK)]
    written_BK = torch.tensor([list(prediction.probabilities.values()) for prediction in written])
    difference = float((answers_BK - written_BK).abs().max())
    if not difference <= TOLERANCE[bits]:
        raise RuntimeError(f"{predicted}: differs by {difference:.3g} from what the saved model answers")
    logger.info("best model read back: largest difference of a probability %.2g", difference)
    return difference


@torch.inference_mode()
def logits(model: nn.Module, batch: Item) -> Tensor:
    """(B, K)."""
    return model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits


def save(model: nn.Module, folder: Path) -> None:
    """A model's folder, or an adapter's, that is whole or absent."""
    with atomic_folder(folder) as new:
        if hasattr(model, "peft_config"):
            adapters.save(model, new)
        else:
            model.save_pretrained(new)


LM_HEAD = "encoder.lm_head."


def write_checkpoint(
    path: Path, model: RobertaForSequenceClassification, recipe: Recipe, task: SentenceClassificationTask
) -> None:
    """Write the weights as fairseq does after training with the recipe; without optimizer's state.

    fairseq's classifier has a language-model head too, which is not used: it is random here.
    """
    head = task.cfg.classification_head_name
    with torch.random.fork_rng(devices=[]):
        ours = task.build_model(recipe.cfg.model)
    weights = to_fairseq(
        {name: tensor.float().cpu() for name, tensor in model.state_dict().items()}, head=head
    )
    lacking, unexpected = ours.load_state_dict(weights, strict=False)
    wrong = [*unexpected, *(name for name in lacking if not name.startswith(LM_HEAD))]
    if wrong:
        raise RuntimeError(f"{path}: fairseq's classifier and Transformers' differ in {', '.join(wrong)}")
    state = {
        "args": None,
        "cfg": recipe.cfg,
        "model": ours.state_dict(),
        "optimizer_history": [],
        "extra_state": task.get_checkpoint_dict(),
    }
    with atomic_open(path, "wb") as stream:
        torch.save(state, stream)
