"""One run in its own process: initial weights, training, and the files of the best model. It writes

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
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from fairseq import utils
from omegaconf import DictConfig
from peft import PeftModel, TaskType
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification, PreTrainedModel, set_seed
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_callback import TrainerState

from roberta_small.common import predictions
from roberta_small.common.errors import report_errors
from roberta_small.common.families import FAMILIES
from roberta_small.common.files import atomic_open, atomic_write
from roberta_small.experiments.methods.lora import adapters
from roberta_small.experiments.methods.lora.adapters import TOLERANCE
from roberta_small.experiments.methods.lora.settings import ADAPTER, BASE, CLASSIFIER, LoraSettings, add_lora
from roberta_small.experiments.methods.transformers import CHECKPOINTS, MEASURED, last_checkpoint
from roberta_small.experiments.methods.transformers.recipe import parse
from roberta_small.experiments.methods.transformers.trainer import (
    ClassifierTrainer,
    Item,
    log_to_standard_output,
    peak_memory_bytes,
)
from roberta_small.export.transformers.networks import Source, converted, special_ids, to_fairseq
from roberta_small.fairseq_plugin.checkpoints.initialization import load_initial
from roberta_small.fairseq_plugin.checkpoints.loading import LM_HEAD, bare_state
from roberta_small.fairseq_plugin.tasks.sentence_classification import SentenceClassificationTask
from roberta_small.fairseq_plugin.training.precision import resolve, resolved, restore

logger = logging.getLogger(__name__)
MODEL = "model"
"""Folder of the best model, for `from_pretrained`."""
PRECISION = "precision.json"
"""Beside the Trainer's checkpoints: what `--precision auto` resolved to, by device type."""
RELOADED = 16
"""Number of sentences on which the reloaded model is compared with the predictions of training."""


@report_errors
def main(words: list[str] | None = None) -> None:
    """Train one run, from the initial weights to checkpoint_best.pt."""
    parser = argparse.ArgumentParser(prog="train_run", description=__doc__, allow_abbrev=False)
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
    args = parser.parse_args(words)
    log_to_standard_output()
    run, checkpoints = args.save_dir, args.save_dir / CHECKPOINTS
    if not args.resume:
        for name in (MODEL, ADAPTER, BASE, CHECKPOINTS):
            shutil.rmtree(run / name, ignore_errors=True)
    cfg = parse(args.data, args.recipe)
    task = SentenceClassificationTask.setup_task(cfg.task)
    # A resumed run keeps the precision that it started with.
    if (checkpoints / PRECISION).is_file():
        restore(json.loads((checkpoints / PRECISION).read_text(encoding="utf-8")))
    precision = resolve(cfg.model.precision, torch.device("cpu" if args.cpu else "cuda"))
    checkpoints.mkdir(parents=True, exist_ok=True)
    atomic_write(checkpoints / PRECISION, json.dumps(resolved()) + "\n")

    base = initial_model(cfg, task, args.restore_file, args.seed)
    set_seed(args.seed)
    model = with_adapters(base, LoraSettings.of(args), run) if args.lora else base
    parameters = adapters.count(model)
    best = run / (ADAPTER if args.lora else MODEL)
    trainer = ClassifierTrainer(
        model,
        cfg,
        task,
        run,
        lambda model: adapters.save(model, best),
        seed=args.seed,
        bf16=precision == "bf16",
        cpu=args.cpu,
    )
    last = last_checkpoint(checkpoints)
    if last is not None and trainer.has_stopped(TrainerState.load_from_json(str(last / TRAINER_STATE_NAME))):
        logger.info("stopped early (--patience %d): nothing left to train", cfg.checkpoint.patience)
    else:
        trainer.train(resume_from_checkpoint=None if last is None else str(last))
    trainer.log_of_run.close()
    finish(run, task, trainer, parameters, lora=args.lora)
    shutil.rmtree(checkpoints, ignore_errors=True)


def initial_model(
    cfg: DictConfig, task: SentenceClassificationTask, checkpoint: Path | None, seed: int
) -> PreTrainedModel:
    """A classifier with exactly the weights that fairseq-train starts from with this seed.

    Random weights are drawn by fairseq. Those of a checkpoint replace them as in fairseq, and a head that the
    checkpoint does not have stays random. The embedding of the first token type is zero: it is part of the
    positions. Raises `UserError` if architecture or dictionary of the checkpoint do not fit recipe and data.
    """
    utils.set_torch_seed(seed)  # as fairseq_cli/train.py does before it builds the model
    ours = task.build_model(cfg.model)
    if checkpoint is not None:
        load_initial(ours, task, checkpoint)
    logger.info("initialisation: %s", "random weights" if checkpoint is None else f"weights of {checkpoint}")
    path, head = checkpoint or Path(cfg.task.data), task.cfg.classification_head_name
    source = Source(path, cfg.model, dict(ours.state_dict()), head)
    return converted(source, task.labels, special_ids(task.cfg))


def with_adapters(base: PreTrainedModel, lora: LoraSettings, run: Path) -> PeftModel:
    """The base, frozen and saved in the run folder or read from there, with adapters and a trainable head."""
    if (run / BASE).is_dir():
        base.load_state_dict(load_file(run / BASE / "model.safetensors"))
    else:
        adapters.save(base, run / BASE)
    base.name_or_path = str(run / BASE)  # for adapter_config.json
    settings, head = _targets(base, lora)
    return adapters.add_adapters(base, settings, TaskType.SEQ_CLS, head)


def _targets(model: PreTrainedModel, lora: LoraSettings) -> tuple[LoraSettings, Sequence[str]]:
    """The settings with the family's names of the attention's layers, and the modules of its head."""
    family = FAMILIES[model.config.model_type]
    names = tuple(map(family.linear, lora.target_modules))
    return replace(lora, target_modules=names), family.head_modules


def check(cfg: DictConfig, checkpoint: Path | None, lora: LoraSettings | None) -> None:
    """Raise `UserError` for mistakes that would otherwise stop a run only after its start."""
    model = initial_model(cfg, SentenceClassificationTask.setup_task(cfg.task), checkpoint, seed=1)
    if lora is not None:
        adapters.check_targets(model, *_targets(model, lora))


def finish(
    run: Path,
    task: SentenceClassificationTask,
    trainer: ClassifierTrainer,
    parameters: dict[str, int],
    *,
    lora: bool,
) -> None:
    """Reload the best model, check its predictions, and write measured.json and checkpoint_best.pt.

    Raises `RuntimeError` if rounding does not explain the differences that merging and reloading cause.
    """
    measured: dict[str, float] = {**parameters, "peak_memory_bytes": peak_memory_bytes(trainer.args.device)}
    subset, sentences = next(iter(trainer.subsets.items()))
    batch = trainer.data_collator([sentences[i] for i in range(min(RELOADED, len(sentences)))])
    if lora:
        adapted_BK = logits(adapters.adapted_classifier(run), batch)
        best = adapters.merged_classifier(run)
        difference = adapters.largest_difference(adapted_BK, logits(best, batch), f"{run / ADAPTER} merged")
        measured["merged_difference"] = difference
        logger.info("adapter merged: largest difference of a logit %.2g", difference)
    else:
        best = AutoModelForSequenceClassification.from_pretrained(run / MODEL, use_safetensors=True).eval()
    # The arithmetic of training: the same weights in fp32 differ by what bf16 rounds, layer after layer.
    module: nn.Module = best  # the decorator of Transformers around `to` has no usable type
    module.to(trainer.args.device)
    with torch.autocast(trainer.args.device.type, torch.bfloat16, enabled=trainer.args.bf16):
        reloaded_BK = logits(best, trainer._prepare_inputs(batch)).float().cpu()
    outputs_BK, file = task.labels.outputs(reloaded_BK.numpy()), run / predictions.file_name(subset)
    written_BK = predictions.to_arrays(predictions.read(file)[: len(outputs_BK)]).outputs
    # Of a regression, that of the standardized values.
    difference = float(np.abs(outputs_BK - written_BK).max()) / task.labels.scaling.scale
    if not difference <= TOLERANCE[16 if trainer.args.bf16 else 32]:
        raise RuntimeError(f"{file}: differs by {difference:.3g} from the predictions of the saved model")
    measured["reloaded_difference"] = difference
    what = "probability" if task.labels.kind.has_classes else "standardized value"
    logger.info("best model reloaded: largest difference of a %s %.2g", what, difference)
    atomic_write(run / MEASURED, json.dumps(measured, indent=2) + "\n")
    write_checkpoint(run / "checkpoint_best.pt", best, trainer, task)


@torch.inference_mode()
def logits(model: nn.Module, batch: Item) -> Tensor:
    """Logits (B, K) of a batch."""
    return model(**{name: value for name, value in batch.items() if name != "labels"}).logits


def write_checkpoint(
    path: Path, model: PreTrainedModel, trainer: ClassifierTrainer, task: SentenceClassificationTask
) -> None:
    """Write a model as fairseq-train would after training with the recipe, but without optimizer state.

    fairseq's classifier also has a language-model head, which is not used. It is random here.
    """
    cfg = trainer.cfg
    with torch.random.fork_rng(devices=[]):
        ours = task.build_model(cfg.model)
    weights = to_fairseq(
        {name: tensor.float().cpu() for name, tensor in model.state_dict().items()},
        FAMILIES[cfg.model.family],
        head=task.cfg.classification_head_name,
        token_types=cfg.model.token_types,
    )
    missing, unexpected = ours.load_state_dict(weights, strict=False)
    wrong = [*unexpected, *(name for name in missing if not name.startswith(LM_HEAD))]
    if wrong:
        raise RuntimeError(f"{path}: fairseq's classifier and Transformers' differ in {', '.join(wrong)}")
    with atomic_open(path, "wb") as stream:
        torch.save(bare_state(ours.state_dict(), cfg, task.get_checkpoint_dict()), stream)


if __name__ == "__main__":
    sys.exit(main())
