"""One run in its own process: `python -m experiments.methods.transformers.train_run DATA ... --recipe ...`.

`experiments/methods/transformers/sweep.py` starts it, with words like those of fairseq-train. It writes

    tensorboard/             as fairseq does
    trainer/checkpoint-*/    where an interrupted run goes on; removed at the end
    model/                   the best model as a from_pretrained folder; not for LoRA
    base/, adapter/          for LoRA: what it started from, and what was trained at the best epoch
    predictions-*.jsonl      of the best model on every validation subset
    measured.json            parameters, peak memory, for the manifest
    checkpoint_best.pt       the best model as fairseq's checkpoint
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import sys
from pathlib import Path

import torch
from transformers import set_seed

from common.errors import report_errors
from common.files import atomic_write
from fairseq_plugin.training.precision import resolve, resolved, restore

from ..lora import adapters
from ..lora.adapters import ADAPTER, BASE
from ..lora.classify import ALPHA, DROPOUT, RANK, TARGETS
from ..lora.options import add_lora, lora_settings
from .finish import MODEL, finish, save
from .initial import initial_model, with_adapters
from .recipe import parse
from .sweep import CHECKPOINTS, last_checkpoint
from .trainer import ClassifierTrainer, RunLog, log_to_standard_output, read_sentences, training_arguments

logger = logging.getLogger(__name__)
PRECISION = "precision.json"
"""Beside Trainer's checkpoints: what `--precision auto` became, by the kind of device."""


def build_parser() -> argparse.ArgumentParser:
    """Words that are not the recipe's."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.methods.transformers.train_run", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("data")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--save-dir", type=Path, required=True)
    parser.add_argument("--restore-file", type=Path)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--lora", action="store_true")
    add_lora(parser, rank=RANK, alpha=ALPHA, dropout=DROPOUT, targets=TARGETS)
    parser.add_argument("--recipe", nargs=argparse.REMAINDER, required=True, help="the rest is the recipe's")
    return parser


@report_errors
def main(words: list[str] | None = None) -> None:
    """Train one run, from its words to `checkpoint_best.pt`."""
    args = build_parser().parse_args(words)
    log_to_standard_output()
    run, checkpoints = args.save_dir, args.save_dir / CHECKPOINTS
    if not args.resume:
        for name in (MODEL, ADAPTER, BASE, CHECKPOINTS):
            shutil.rmtree(run / name, ignore_errors=True)
    recipe = parse(args.data, args.recipe)
    task = recipe.task()
    device = torch.device("cpu" if args.cpu else "cuda")
    precision = precision_of(checkpoints, recipe.precision, device)
    train = read_sentences(task, "train")
    valid = {name: read_sentences(task, name) for name in recipe.valid_subsets}

    model = initial_model(recipe, task, args.restore_file, args.seed)
    set_seed(args.seed)
    if args.lora:
        model = with_adapters(model, lora_settings(args), run)
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
        classes=task.class_names,
        pad=task.source_dictionary.pad(),
        run=run,
        log=log,
        save_best=lambda model: save(model, run / (ADAPTER if args.lora else MODEL)),
    )
    last = last_checkpoint(checkpoints)
    trainer.train(resume_from_checkpoint=None if last is None else str(last))
    log.close()
    finish(run, recipe, task, trainer, parameters, lora=args.lora)
    shutil.rmtree(checkpoints, ignore_errors=True)


def precision_of(checkpoints: Path, asked: str, device: torch.device) -> str:
    """What `asked` means on the device: what it meant when the run began, where the run goes on."""
    path = checkpoints / PRECISION
    if path.is_file():
        restore(json.loads(path.read_text(encoding="utf-8")))
    precision = resolve(asked, device)
    checkpoints.mkdir(parents=True, exist_ok=True)
    atomic_write(path, json.dumps(resolved()) + "\n")
    return precision


if __name__ == "__main__":
    sys.exit(main())
