"""One run in its own process.

The method (method.py) starts this module with words like those of fairseq-train. It writes

    tensorboard/             as fairseq does
    trainer/checkpoint-*/    to resume an interrupted run; removed at the end
    model/                   the best model as a from_pretrained folder; not for LoRA
    base/, adapter/          for LoRA: the initial weights, and the adapter of the best epoch
    predictions-*.jsonl      of the best model on every validation subset
    thresholds.json          of multi-label data, chosen on the first of them
    measured.json            parameters and peak memory, for the manifest
    checkpoint_best.pt       the best model as a fairseq checkpoint

B sentences, K classes.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import sys
from pathlib import Path

import numpy as np
import torch
from peft import PeftModel
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification, PreTrainedModel, set_seed

from roberta_small.common import predictions
from roberta_small.common.errors import report_errors
from roberta_small.common.files import atomic_open, atomic_write
from roberta_small.common.label_kinds import Labels
from roberta_small.experiments.methods.lora import adapters
from roberta_small.experiments.methods.lora.adapters import ADAPTER, BASE, TOLERANCE, Parameters
from roberta_small.experiments.methods.lora.settings import CLASSIFIER, add_lora, lora_settings
from roberta_small.experiments.methods.transformers.initial import initial_model, with_adapters
from roberta_small.experiments.methods.transformers.recipe import Hyperparameters, parse
from roberta_small.experiments.methods.transformers.run_folder import (
    CHECKPOINTS,
    MEASURED,
    MODEL,
    last_checkpoint,
    peak_memory_bytes,
)
from roberta_small.experiments.methods.transformers.trainer import (
    ClassifierTrainer,
    Item,
    Pad,
    RunLog,
    log_to_standard_output,
    read_sentences,
    training_arguments,
)
from roberta_small.export.transformers.networks import family_of, has_token_types, to_fairseq
from roberta_small.fairseq_plugin.checkpoints.loading import LM_HEAD, bare_state
from roberta_small.fairseq_plugin.tasks.sentence_classification import SentenceClassificationTask
from roberta_small.fairseq_plugin.training.precision import resolve, resolved, restore

logger = logging.getLogger(__name__)
PRECISION = "precision.json"
"""Beside the Trainer's checkpoints: what `--precision auto` resolved to, by device type."""
RELOADED = 16
"""Number of sentences on which the reloaded model is compared with the predictions of training."""


def build_parser() -> argparse.ArgumentParser:
    """The options of a run; the flags of the recipe follow `--recipe`."""
    parser = argparse.ArgumentParser(
        prog="train_run",
        description=__doc__,
        allow_abbrev=False,
    )
    parser.add_argument("data")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--save-dir", type=Path, required=True)
    parser.add_argument("--restore-file", type=Path)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--lora", action="store_true")
    add_lora(parser, CLASSIFIER)
    parser.add_argument(
        "--recipe", nargs=argparse.REMAINDER, required=True, help="flags of the recipe (all remaining words)"
    )
    return parser


@report_errors
def main(words: list[str] | None = None) -> None:
    """Train one run, from the initial weights to checkpoint_best.pt."""
    args = build_parser().parse_args(words)
    log_to_standard_output()
    run, checkpoints = args.save_dir, args.save_dir / CHECKPOINTS
    if not args.resume:
        for name in (MODEL, ADAPTER, BASE, CHECKPOINTS):
            shutil.rmtree(run / name, ignore_errors=True)
    recipe = parse(args.data, args.recipe)
    task = recipe.task()
    device = torch.device("cpu" if args.cpu else "cuda")
    precision = resolve_precision(checkpoints, recipe.precision, device)
    train = read_sentences(task, "train")
    valid = {name: read_sentences(task, name) for name in recipe.valid_subsets}

    base = initial_model(recipe, task, args.restore_file, args.seed)
    set_seed(args.seed)
    model: PreTrainedModel | PeftModel = base
    if args.lora:
        model = with_adapters(base, lora_settings(args), run)
    parameters = adapters.count(model)
    logger.info("%s", parameters)
    log = RunLog(run / "tensorboard")
    trainer = ClassifierTrainer(
        model,
        recipe,
        training_arguments(
            recipe,
            checkpoints,
            sentences=len(train),
            seed=args.seed,
            bf16=precision == "bf16",
            cpu=args.cpu,
        ),
        train=train,
        valid=valid,
        labels=task.labels,
        collate=_collator(recipe, task),
        run=run,
        log=log,
        weights=recipe.weights(args.data, task.class_names),
        save_best=lambda model: adapters.save_model(model, run / (ADAPTER if args.lora else MODEL)),
    )
    last = last_checkpoint(checkpoints)
    if last is not None and trainer.stopped_early(last):
        logger.info("stopped early (--patience %d): nothing left to train", recipe.patience)
    else:
        trainer.train(resume_from_checkpoint=None if last is None else str(last))
    log.close()
    finish(run, recipe, task, trainer, parameters, lora=args.lora)
    shutil.rmtree(checkpoints, ignore_errors=True)


def resolve_precision(checkpoints: Path, requested: str, device: torch.device) -> str:
    """The precision that `requested` means on the device; a resumed run keeps the one it started with."""
    path = checkpoints / PRECISION
    if path.is_file():
        restore(json.loads(path.read_text(encoding="utf-8")))
    precision = resolve(requested, device)
    checkpoints.mkdir(parents=True, exist_ok=True)
    atomic_write(path, json.dumps(resolved()) + "\n")
    return precision


def finish(
    run: Path,
    recipe: Hyperparameters,
    task: SentenceClassificationTask,
    trainer: ClassifierTrainer,
    parameters: Parameters,
    *,
    lora: bool,
) -> None:
    """Reload the best model, check its predictions, and write measured.json and checkpoint_best.pt."""
    measured: dict[str, float] = {
        "trainable_parameters": parameters.trainable,
        "parameters": parameters.total,
        "peak_memory_bytes": peak_memory_bytes(trainer.args.device),
    }
    subset, sentences = next(iter(trainer.subsets.items()))
    batch = _collator(recipe, task)([sentences[i] for i in range(min(RELOADED, len(sentences)))])
    predicted = run / predictions.file_name(subset)
    if lora:
        best, measured["merged_difference"] = merged(run, batch)
    else:
        best = AutoModelForSequenceClassification.from_pretrained(run / MODEL, use_safetensors=True).eval()
    # The arithmetic of training: the same weights in fp32 differ by what bf16 rounds, layer after layer.
    module: nn.Module = best  # the decorator of Transformers around `to` has no usable type
    module.to(trainer.args.device)
    with torch.autocast(trainer.args.device.type, torch.bfloat16, enabled=trainer.args.bf16):
        reloaded_BK = logits(best, trainer._prepare_inputs(batch)).float().cpu()
    bits = 16 if trainer.args.bf16 else 32
    measured["reloaded_difference"] = check_reloaded(reloaded_BK, predicted, task.labels, bits)
    atomic_write(run / MEASURED, json.dumps(measured, indent=2) + "\n")
    write_checkpoint(run / "checkpoint_best.pt", best, recipe, task)


def merged(run: Path, batch: Item) -> tuple[PreTrainedModel, float]:
    """The best adapter merged into its base, and the largest difference of a logit that merging causes.

    Raises `RuntimeError` if rounding does not explain the difference.
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


def check_reloaded(reloaded_BK: Tensor, predicted: Path, labels: Labels, bits: int) -> float:
    """Largest difference between the probabilities of a reloaded model and those in the file `predicted`.

    `reloaded_BK` are its logits for the first sentences. Of a regression, it is that of the standardized
    values. `bits` is the precision of training. Raises `RuntimeError` if rounding does not explain the
    difference.
    """
    outputs_BK = labels.outputs(reloaded_BK.numpy())
    written_BK = predictions.to_arrays(predictions.read_any(predicted)[: len(outputs_BK)]).outputs
    difference = float(np.abs(outputs_BK - written_BK).max()) / labels.scaling.scale
    if not difference <= TOLERANCE[bits]:
        raise RuntimeError(
            f"{predicted}: differs by {difference:.3g} from the predictions of the saved model"
        )
    what = "probability" if labels.kind.has_classes else "standardized value"
    logger.info("best model reloaded: largest difference of a %s %.2g", what, difference)
    return difference


@torch.inference_mode()
def logits(model: nn.Module, batch: Item) -> Tensor:
    """Logits (B, K) of a batch."""
    return model(**{name: value for name, value in batch.items() if name != "labels"}).logits


def _collator(recipe: Hyperparameters, task: SentenceClassificationTask) -> Pad:
    return Pad(task.source_dictionary.pad(), has_token_types(recipe.cfg.model))


def write_checkpoint(
    path: Path,
    model: PreTrainedModel,
    recipe: Hyperparameters,
    task: SentenceClassificationTask,
) -> None:
    """Write a model as fairseq-train would after training with the recipe, but without optimizer state.

    fairseq's classifier also has a language-model head, which is not used. It is random here.
    """
    head = task.cfg.classification_head_name
    with torch.random.fork_rng(devices=[]):
        ours = task.build_model(recipe.cfg.model)
    weights = to_fairseq(
        {name: tensor.float().cpu() for name, tensor in model.state_dict().items()},
        family_of(recipe.cfg.model),
        head=head,
        token_types=has_token_types(recipe.cfg.model),
    )
    missing, unexpected = ours.load_state_dict(weights, strict=False)
    wrong = [*unexpected, *(name for name in missing if not name.startswith(LM_HEAD))]
    if wrong:
        raise RuntimeError(f"{path}: fairseq's classifier and Transformers' differ in {', '.join(wrong)}")
    with atomic_open(path, "wb") as stream:
        torch.save(bare_state(ours.state_dict(), recipe.cfg, task.get_checkpoint_dict()), stream)


if __name__ == "__main__":
    sys.exit(main())
