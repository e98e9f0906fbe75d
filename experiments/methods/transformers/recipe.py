"""A recipe of the sweep, understood by the Transformers Trainer.

Recipes are flags of fairseq-train (`recipes/`). fairseq's own parser reads them, so that types and
defaults are fairseq's, and one file describes both trainers. A flag that has no counterpart here is refused.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import DictConfig

import fairseq_plugin  # noqa: F401  registers task, criterion, model and optimizer
from common.cli import flags_of
from common.errors import UserError
from common.metrics import logged
from export.transformers.config import ACTIVATIONS, Sizes
from fairseq_plugin.models.encoders import ENCODERS
from fairseq_plugin.tasks.sentence_classification import SentenceClassificationTask
from fairseq_plugin.training.optimizer import parse_betas

ONLY = {
    "--task": ("sentence_classification",),
    "--criterion": ("sentence_classification",),
    "--arch": ("roberta_small",),
    "--lr-scheduler": ("polynomial_decay",),
    "--optimizer": ("adam", "fused_adam"),
    "--encoder": tuple(ENCODERS),  # of fairseq's engine: the same mathematics
    "--best-checkpoint-metric": (*(metric.name for metric in logged()), "loss"),
}
"""Flag -> the values that can be followed here."""
FOLLOWED = frozenset(ONLY) | {
    *("--encoder-layers", "--encoder-embed-dim", "--encoder-ffn-embed-dim", "--encoder-attention-heads"),
    *("--dropout", "--attention-dropout", "--pooler-dropout", "--activation-fn"),
    *("--init-token", "--separator-token", "--max-positions", "--shorten-method", "--keep-eos"),
    *(
        "--batch-size",
        "--batch-size-valid",
        "--max-tokens-valid",
        "--update-freq",
        "--max-epoch",
        "--max-update",
    ),
    *("--lr", "--total-num-update", "--warmup-updates", "--adam-betas", "--adam-eps"),
    *("--weight-decay", "--clip-norm", "--precision", "--valid-subset"),
    *("--maximize-best-checkpoint-metric", "--no-epoch-checkpoints", "--num-classes"),
}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What the trainer is told; names are those of `TrainingArguments` where it has them."""

    cfg: DictConfig
    """All of it as fairseq keeps it in checkpoints."""
    batch_size: int
    valid_batch_size: int
    accumulation: int
    max_epoch: int
    """0 for no limit, as for `max_update`."""
    max_update: int
    lr: float
    warmup_updates: int
    total_num_update: int
    betas: tuple[float, float]
    eps: float
    weight_decay: float
    clip_norm: float
    """Largest norm of the gradients, 0 for any."""
    precision: str
    valid_subsets: tuple[str, ...]
    metric: str
    maximize: bool

    def updates(self, sentences: int) -> int:
        """Updates of a run on so many sentences: where the nearer limit ends it."""
        batches = math.ceil(sentences / self.batch_size)
        limits = [self.max_epoch * math.ceil(batches / self.accumulation), self.max_update]
        return min(limit for limit in limits if limit)

    def sizes(self, vocabulary: int) -> Sizes:
        """The model's, for a dictionary with so many types (`<mask>` included)."""
        model = self.cfg.model
        return Sizes(
            vocabulary=vocabulary,
            layers=model.encoder_layers,
            embed=model.encoder_embed_dim,
            ffn=model.encoder_ffn_embed_dim,
            heads=model.encoder_attention_heads,
            positions=self.cfg.task.max_positions,
            dropout=model.dropout,
            attention_dropout=model.attention_dropout,
            pooler_dropout=model.pooler_dropout,
            activation=ACTIVATIONS[model.activation_fn],
        )

    def task(self) -> SentenceClassificationTask:
        """fairseq's task, which reads the data in the order of their files."""
        self.cfg.task.no_shuffle = True
        return SentenceClassificationTask.setup_task(self.cfg.task)


def parse(data: str, words: Sequence[str]) -> Recipe:
    """The recipe that `words` spell.

    Raises `UserError` naming a flag that is unknown, malformed or cannot be followed.
    """
    flags = flags_of(words)
    if unknown := [flag for flag in flags if flag not in FOLLOWED]:
        raise UserError(
            f"recipe: {' '.join(unknown)} cannot be followed by the Transformers Trainer; leave it out"
        )
    for flag, values in ONLY.items():
        if flag in flags and flags[flag][-1] not in values:
            raise UserError(f"recipe: {' '.join(flags[flag])}: only {', '.join(values)} can be followed here")
    cfg = _configuration(data, words)
    optimization, betas = cfg.optimization, parse_betas(cfg.optimizer.adam_betas)
    if not (optimization.max_epoch or optimization.max_update):
        raise UserError("recipe: neither --max-epoch nor --max-update says where the training ends")
    if cfg.model.activation_fn not in ACTIVATIONS:
        raise UserError(
            f"recipe: --activation-fn {cfg.model.activation_fn}: not one of {', '.join(ACTIVATIONS)}"
        )
    batch_size = cfg.dataset.batch_size
    if not batch_size:
        raise UserError("recipe: --batch-size is missing")
    return Recipe(
        cfg=cfg,
        batch_size=batch_size,
        valid_batch_size=_valid_batch_size(cfg),
        accumulation=optimization.update_freq[0],
        max_epoch=optimization.max_epoch,
        max_update=optimization.max_update,
        lr=optimization.lr[0],
        warmup_updates=cfg.lr_scheduler.warmup_updates,
        total_num_update=int(cfg.lr_scheduler.total_num_update),
        betas=betas,
        eps=cfg.optimizer.adam_eps,
        weight_decay=cfg.optimizer.weight_decay,
        clip_norm=optimization.clip_norm,
        precision=cfg.model.precision,
        valid_subsets=tuple(cfg.dataset.valid_subset.split(",")),
        metric=cfg.checkpoint.best_checkpoint_metric,
        maximize=cfg.checkpoint.maximize_best_checkpoint_metric,
    )


def _valid_batch_size(cfg: DictConfig) -> int:
    """Sentences of a batch in validation; of `--max-tokens-valid`, as many of the longest as it holds."""
    by_count = cfg.dataset.batch_size_valid or cfg.dataset.batch_size
    tokens = cfg.dataset.max_tokens_valid
    return min(by_count, max(1, tokens // cfg.task.max_positions)) if tokens else by_count


def _configuration(data: str, words: Sequence[str]) -> DictConfig:
    parser = options.get_training_parser()

    def refuse(parser: argparse.ArgumentParser, message: str) -> NoReturn:
        raise UserError(f"recipe: {message}")

    # fairseq builds a second parser once it knows task and model: its errors are the class's too.
    original = argparse.ArgumentParser.error
    argparse.ArgumentParser.error = refuse
    try:
        with warnings.catch_warnings(action="ignore"):  # fairseq uses hydra as of some years ago
            return convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, [data, *words]))
    finally:
        argparse.ArgumentParser.error = original
