"""Recipes for the Transformers Trainer.

Recipes are flags of fairseq-train (`recipes/`). They are read by fairseq's own parser, so that types and
defaults are the same and one file describes both trainers. Flags without a counterpart in the Transformers
Trainer are errors.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import DictConfig

import roberta_small.fairseq_plugin  # noqa: F401  registers task, criterion, model and optimizer
from roberta_small.common import class_weights
from roberta_small.common.cli import flags_of
from roberta_small.common.errors import UserError
from roberta_small.common.label_kinds import KINDS, SINGLE_LABEL
from roberta_small.common.metrics import LOSS, logged
from roberta_small.experiments.recipe.fairseq_flags import parser_errors
from roberta_small.export.transformers.networks import (
    Sizes,
    activation_name,
    family_of,
    has_token_types,
)
from roberta_small.fairseq_plugin.models.encoders import ENCODERS
from roberta_small.fairseq_plugin.tasks.criterion import checked_smoothing
from roberta_small.fairseq_plugin.tasks.sentence_classification import SentenceClassificationTask
from roberta_small.fairseq_plugin.training.optimizer import parse_betas

ONLY = {
    "--task": ("sentence_classification",),
    "--criterion": ("sentence_classification",),
    "--arch": ("roberta_small", "roberta", "roberta_base", "roberta_large"),
    "--lr-scheduler": ("polynomial_decay",),
    "--optimizer": ("adam", "fused_adam"),
    "--pooling": ("first",),
    "--encoder": tuple(ENCODERS),  # ignored: fairseq's implementations of the same function
}
"""Flag -> the values that are supported."""
METRIC = "--best-checkpoint-metric"
SUPPORTED = frozenset(ONLY) | {
    METRIC,
    *(flag for kind in KINDS.values() for flag in kind.flags),
    *("--encoder-layers", "--encoder-embed-dim", "--encoder-ffn-embed-dim", "--encoder-attention-heads"),
    *("--dropout", "--attention-dropout", "--pooler-dropout", "--activation-fn", "--layer-norm-eps"),
    *("--pooler-activation-fn", "--family", "--token-types", "--pooling"),
    *("--init-token", "--separator-token", "--max-positions", "--shorten-method", "--keep-eos"),
    *(
        "--batch-size",
        "--batch-size-valid",
        "--max-tokens-valid",
        "--update-freq",
        "--max-epoch",
        "--max-update",
        "--validate-interval",
        "--save-interval",
    ),
    *("--lr", "--total-num-update", "--warmup-updates", "--adam-betas", "--adam-eps"),
    *("--weight-decay", "--clip-norm", "--precision", "--valid-subset"),
    *("--label-smoothing", "--class-weights", "--patience"),
    *("--maximize-best-checkpoint-metric", "--no-epoch-checkpoints", "--num-classes"),
}


@dataclass(frozen=True, kw_only=True)
class Hyperparameters:
    """Hyperparameters of a run."""

    cfg: DictConfig
    """fairseq's full configuration, as it is stored in checkpoints."""
    batch_size: int
    valid_batch_size: int
    accumulation: int
    max_epoch: int
    """0 for no limit, as for `max_update`."""
    max_update: int
    validate_interval: int
    """Epochs until the next validation and checkpoint; the last epoch has both."""
    lr: float
    warmup_updates: int
    total_num_update: int
    betas: tuple[float, float]
    eps: float
    weight_decay: float
    clip_norm: float
    """Maximum norm of the gradients, 0 for no clipping."""
    precision: str
    valid_subsets: tuple[str, ...]
    metric: str
    maximize: bool
    patience: int
    """Validations without a better score after which training stops, 0 for no early stopping."""
    label_smoothing: float
    class_weights: str
    """A value of --class-weights."""

    def weights(self, data: str, classes: Sequence[str]) -> list[float] | None:
        """The weight of each class in the training loss, or None; raises `UserError` if they are wrong."""
        return list(class_weights.resolve(self.class_weights, Path(data), classes).values()) or None

    def updates(self, sentences: int) -> int:
        """Number of updates on a training set of `sentences`: the smaller of both limits."""
        batches = math.ceil(sentences / self.batch_size)
        limits = [self.max_epoch * math.ceil(batches / self.accumulation), self.max_update]
        return min(limit for limit in limits if limit)

    def sizes(self, vocabulary: int) -> Sizes:
        """Sizes of the model for a `vocabulary`, `<mask>` included."""
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
            activation=activation_name(model.activation_fn),
            layer_norm_eps=model.layer_norm_eps,
            family=family_of(model).name,
            token_types=has_token_types(model),
        )

    def task(self) -> SentenceClassificationTask:
        """fairseq's task, which reads the data in the order of the files."""
        self.cfg.task.no_shuffle = True
        return SentenceClassificationTask.setup_task(self.cfg.task)


def parse(data: str, words: Sequence[str]) -> Hyperparameters:
    """Parse the flags `words` of a recipe for the data folder `data`.

    Raises `UserError` naming a flag that is unknown, malformed, missing or not supported.
    """
    flags = flags_of(words)
    if unknown := [flag for flag in flags if flag not in SUPPORTED]:
        raise UserError(f"recipe: {' '.join(unknown)}: not supported by --method transformers; remove it")
    for flag, values in (ONLY | {METRIC: _metrics(flags)}).items():
        if flag in flags and flags[flag][-1] not in values:
            raise UserError(
                f"recipe: {' '.join(flags[flag])}: the Transformers Trainer supports only {', '.join(values)}"
            )
    cfg = _configuration(data, words)
    optimization, betas = cfg.optimization, parse_betas(cfg.optimizer.adam_betas)
    if not (optimization.max_epoch or optimization.max_update):
        raise UserError("recipe: neither --max-epoch nor --max-update is given; add one of them")
    try:
        activation_name(cfg.model.activation_fn)
    except UserError as error:
        raise UserError(f"recipe: {error}") from None
    head = family_of(cfg.model).pooler_activation
    if cfg.model.pooler_activation_fn != head:
        raise UserError(
            f"recipe: --pooler-activation-fn {cfg.model.pooler_activation_fn}: the classification head of "
            f"Transformers has {head}"
        )
    if cfg.checkpoint.save_interval != cfg.dataset.validate_interval:
        raise UserError(
            f"recipe: --save-interval {cfg.checkpoint.save_interval} and --validate-interval "
            f"{cfg.dataset.validate_interval}: the Transformers Trainer supports only equal intervals"
        )
    batch_size = cfg.dataset.batch_size
    if not batch_size:
        raise UserError("recipe: --batch-size is missing")
    return Hyperparameters(
        cfg=cfg,
        batch_size=batch_size,
        valid_batch_size=_valid_batch_size(cfg),
        accumulation=optimization.update_freq[0],
        max_epoch=optimization.max_epoch,
        max_update=optimization.max_update,
        validate_interval=cfg.dataset.validate_interval,
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
        patience=max(0, cfg.checkpoint.patience),
        label_smoothing=checked_smoothing(cfg.criterion.label_smoothing),
        class_weights=cfg.criterion.class_weights,
    )


def _metrics(flags: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The metrics that are logged for the kind of labels that the flags choose."""
    kinds = [kind for kind in KINDS.values() if kind.flags and kind.flags[0] in flags]
    return (*(metric.name for metric in logged(kinds[0].name if kinds else SINGLE_LABEL)), LOSS)


def _valid_batch_size(cfg: DictConfig) -> int:
    """Sentences in a validation batch; with `--max-tokens-valid`, so that the longest ones still fit."""
    by_count = cfg.dataset.batch_size_valid or cfg.dataset.batch_size
    tokens = cfg.dataset.max_tokens_valid
    return min(by_count, max(1, tokens // cfg.task.max_positions)) if tokens else by_count


def _configuration(data: str, words: Sequence[str]) -> DictConfig:
    with (
        parser_errors(lambda message: UserError(f"recipe: {message}")),
        warnings.catch_warnings(action="ignore"),  # fairseq's use of hydra is deprecated
    ):
        parser = options.get_training_parser()
        return convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, [data, *words]))
