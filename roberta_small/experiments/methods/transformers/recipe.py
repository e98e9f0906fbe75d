"""Recipes for the Transformers Trainer.

Recipes are flags of fairseq-train (`recipes/`). They are read by fairseq's own parser, so that types and
defaults are the same and one file describes both trainers. Flags without a counterpart in the Transformers
Trainer are errors.
"""

from __future__ import annotations

from collections.abc import Sequence

from omegaconf import DictConfig

import roberta_small.fairseq_plugin  # noqa: F401  registers task, criterion, model and optimizer
from roberta_small.common.cli import flags_of
from roberta_small.common.errors import UserError
from roberta_small.common.families import ACTIVATIONS, FAMILIES
from roberta_small.common.label_kinds import KINDS, SINGLE_LABEL
from roberta_small.common.metrics import LOSS, logged
from roberta_small.experiments.recipe.fairseq_flags import configuration
from roberta_small.fairseq_plugin.models.encoders import ENCODERS
from roberta_small.fairseq_plugin.models.roberta import roberta_small_architecture
from roberta_small.fairseq_plugin.tasks.criterion import checked_smoothing
from roberta_small.fairseq_plugin.training.optimizer import parse_betas

ONLY = {
    "--task": ("sentence_classification",),
    "--criterion": ("sentence_classification",),
    "--arch": ("roberta_small", "roberta", "roberta_base", "roberta_large"),
    "--lr-scheduler": ("polynomial_decay",),
    "--optimizer": ("adam", "fused_adam"),
    "--pooling": ("first",),
    "--activation-fn": tuple(dict.fromkeys(ACTIVATIONS.values())),
    "--encoder": tuple(ENCODERS),  # ignored: fairseq's implementations of the same function
}
"""Flag -> the values that are supported."""
METRIC = "--best-checkpoint-metric"
SUPPORTED = frozenset(ONLY) | {
    METRIC,
    *(flag for kind in KINDS.values() for flag in kind.flags),
    *("--encoder-layers", "--encoder-embed-dim", "--encoder-ffn-embed-dim", "--encoder-attention-heads"),
    *("--dropout", "--attention-dropout", "--pooler-dropout", "--layer-norm-eps"),
    *("--pooler-activation-fn", "--family", "--token-types"),
    *("--init-token", "--separator-token", "--max-positions", "--shorten-method", "--keep-eos"),
    *("--batch-size", "--batch-size-valid", "--max-tokens-valid", "--update-freq"),
    *("--max-epoch", "--max-update", "--validate-interval", "--save-interval"),
    *("--lr", "--total-num-update", "--warmup-updates", "--adam-betas", "--adam-eps"),
    *("--weight-decay", "--clip-norm", "--precision", "--valid-subset"),
    *("--label-smoothing", "--class-weights", "--patience"),
    *("--maximize-best-checkpoint-metric", "--no-epoch-checkpoints", "--num-classes"),
}


def parse(data: str, words: Sequence[str]) -> DictConfig:
    """fairseq's configuration for the flags of a recipe, as it is stored in checkpoints.

    Data are read in the order of their files. Raises `UserError` for a flag that is unknown, malformed or not
    supported.
    """
    flags = flags_of(words)
    if unknown := [flag for flag in flags if flag not in SUPPORTED]:
        raise UserError(f"recipe: {' '.join(unknown)}: not supported by --method transformers; remove it")
    kinds = [kind for kind in KINDS.values() if kind.flags and kind.flags[0] in flags]
    metrics = (*(metric.name for metric in logged(kinds[0].name if kinds else SINGLE_LABEL)), LOSS)
    for flag, values in (ONLY | {METRIC: metrics}).items():
        if flag in flags and flags[flag][-1] not in values:
            raise UserError(
                f"recipe: {' '.join(flags[flag])}: the Transformers Trainer supports only {', '.join(values)}"
            )
    cfg = configuration([data, *words], "recipe")
    parse_betas(cfg.optimizer.adam_betas)
    checked_smoothing(cfg.criterion.label_smoothing)
    if not (cfg.optimization.max_epoch or cfg.optimization.max_update):
        raise UserError("recipe: neither --max-epoch nor --max-update is given; add one of them")
    roberta_small_architecture(cfg.model)  # what is not given, as when the model is built
    head = FAMILIES[cfg.model.family].pooler_activation
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
    if not cfg.dataset.batch_size:
        raise UserError("recipe: --batch-size is missing")
    cfg.task.no_shuffle = True
    return cfg
