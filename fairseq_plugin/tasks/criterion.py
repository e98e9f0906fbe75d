"""The criterion `sentence_classification`: cross-entropy, and metrics from exact counts.

Each batch logs its confusion matrix as one tensor. fairseq sums it over batches, accumulation steps and
workers, and every registered metric of a confusion matrix (accuracy, macro-F1, MCC; see `common.metrics`) is
computed from the sums. Values are not rounded: with `--best-checkpoint-metric accuracy`, two epochs tie only
if their accuracies are equal.

Class weights and label smoothing change the training loss only. The validation loss is the plain
cross-entropy, so that it is comparable between runs.

Shapes: B sentences, K classes.
"""

import logging
import math
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from fairseq.logging.meters import MetersDict
from fairseq.models import BaseFairseqModel
from fairseq.tasks import FairseqTask

from roberta_small.common import class_weights
from roberta_small.common.errors import UserError
from roberta_small.common.metrics import logged
from roberta_small.fairseq_plugin.tasks.batches import host_targets, known_packing
from roberta_small.fairseq_plugin.tasks.sentence_classification import SentenceClassificationTask

logger = logging.getLogger(__name__)

# fairseq does not print meters whose names begin with an underscore.
CONFUSION = "_confusion"
"""Meter and logging output: the flattened confusion matrix, int64 (K * K,). Checkpoints contain the name."""
OLD_CELL = "_gold{}_predicted{}"
"""Meter of a cell (label, prediction) in checkpoints of versions that had a meter for each."""


@dataclass
class SentenceClassificationCriterionConfig(FairseqDataclass):
    """Flags of the criterion."""

    classification_head_name: str = field(
        default="sentence_classification_head", metadata={"help": "name of the classification head to use"}
    )
    label_smoothing: float = field(
        default=0.0,
        metadata={
            "help": "part of the target probability that is spread evenly over all classes, at least 0 and "
            "below 1; not used in validation"
        },
    )
    class_weights: str = field(
        default=class_weights.NONE,
        metadata={
            "help": "weights of the classes in the training loss: balanced (inversely proportional to their "
            "training examples), a file with a class, a tab or comma and its weight on each line, a JSON "
            "object, or none; not used in validation"
        },
    )


@register_criterion("sentence_classification", dataclass=SentenceClassificationCriterionConfig)
class SentenceClassificationCriterion(FairseqCriterion):
    """Cross-entropy in nats, summed over the sentences of a batch; `training_loss` in training.

    Raises `UserError` for an impossible --label-smoothing; `prepare` checks --class-weights.
    """

    def __init__(self, cfg: SentenceClassificationCriterionConfig, task: FairseqTask) -> None:
        super().__init__(task)
        self.head_name = cfg.classification_head_name
        self.label_smoothing = checked_smoothing(cfg.label_smoothing)
        self.class_weights = cfg.class_weights
        self._weights_K: torch.Tensor | None = None

    def prepare(self) -> None:
        """Read and log the class weights, before the first update. Raises `UserError` if they are wrong."""
        if self.label_smoothing:
            logger.info("label smoothing: %g", self.label_smoothing)
        if self.weights:
            logger.info("class weights: %s", class_weights.describe(self.weights))

    @cached_property
    def weights(self) -> class_weights.Weights:
        """The weight of each class; empty without --class-weights.

        They are read on first use, because validation of a checkpoint needs neither the file nor the
        training data.
        """
        if self.class_weights == class_weights.NONE:
            return {}
        if not isinstance(self.task, SentenceClassificationTask):
            raise UserError("--class-weights: the task has no classes; use --task sentence_classification")
        cfg = self.task.cfg
        return class_weights.resolve(
            self.class_weights, Path(cfg.data), self.task.class_names, cfg.train_subset.split(",")
        )

    def forward(
        self, model: BaseFairseqModel, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[torch.Tensor, int | float, dict[str, Any]]:
        """The loss of a batch, the number that its gradient is divided by, and the logging output.

        That number is the number of sentences, or the sum of their class weights in training.
        """
        if "target" not in sample:
            raise UserError(
                "--criterion sentence_classification: the task provides no labels; "
                "use --task sentence_classification"
            )
        logits_BK, _ = model(
            **sample["net_input"],
            features_only=True,
            classification_head_name=self.head_name,
            **known_packing(model, sample),
        )
        labels_B = sample["target"].view(-1)
        if self.training:
            targets = sample.get("soft_target", labels_B)
            weights_K = self._weights_for(logits_BK)
            known = None if weights_K is None else weight_of(host_targets(sample), self._host_weights_K)
            loss, size = training_loss(logits_BK, targets, weights_K, self.label_smoothing, known)
        else:
            loss, size = training_loss(logits_BK, labels_B)
        output = {
            "loss": loss.detach(),
            "ntokens": sample["ntokens"],
            "nsentences": labels_B.numel(),
            "sample_size": size,
            CONFUSION: cell_counts(labels_B, logits_BK.argmax(dim=-1), logits_BK.size(-1)),
        }
        return loss, size, output

    def _weights_for(self, logits_BK: torch.Tensor) -> torch.Tensor | None:
        """float32 (K,) on the device of the logits; 1 for classes that only --num-classes adds."""
        if not self.weights:
            return None
        if self._weights_K is None:
            missing = logits_BK.size(-1) - len(self.weights)
            self._host_weights_K = torch.tensor([*self.weights.values(), *[1.0] * missing])
            self._weights_K = self._host_weights_K.to(logits_BK.device)
        return self._weights_K

    @staticmethod
    def reduce_metrics(logging_outputs: list[dict[str, Any]]) -> None:
        """Log the loss and every metric from the sums over batches and workers."""
        size = sum(float(log.get("sample_size", 0)) for log in logging_outputs)
        if size == 0:
            return
        loss = sum(float(log["loss"]) for log in logging_outputs)
        # In bits, as in all criteria of fairseq.
        metrics.log_scalar("loss", loss / size / math.log(2), size)
        cells = sum(log[CONFUSION] for log in logging_outputs)
        metrics.log_scalar_sum(CONFUSION, cells.long().cpu())
        for metric in logged():
            metrics.log_derived(
                metric.name,
                lambda meters, metric=metric: float(metric.from_confusion(confusion_matrix(meters))),
            )

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """True: all logging outputs are numbers or tensors of them, which fairseq can sum over workers."""
        return True


def checked_smoothing(value: float) -> float:
    """A value of --label-smoothing; raises `UserError` unless it is at least 0 and below 1."""
    if not 0.0 <= value < 1.0:
        raise UserError(f"--label-smoothing {value}: must be at least 0 and below 1")
    return value


def training_loss(
    logits_BK: torch.Tensor,
    targets: torch.Tensor,
    weights_K: torch.Tensor | None = None,
    smoothing: float = 0.0,
    size: float | None = None,
) -> tuple[torch.Tensor, int | float]:
    """The sum over a batch of the cross-entropy in nats, and the number to divide it by for the mean.

    Sums and numbers of several batches are added before the division, which gives
    `torch.nn.functional.cross_entropy` with `weight` and `label_smoothing` over all their sentences: the mean
    weighted by the weight of each true class. Label smoothing (Szegedy et al. 2016, section 7) mixes the
    target with the uniform distribution over the classes.

    `targets` are the classes, int64 (B,), or their probabilities, float (B, K): loss and weight of an example
    are then averaged over the classes with these probabilities (Hinton et al. 2015, section 2, at temperature
    1). `weights_K` is float32.
    The number is B without weights. With weights it is `weight_of` the targets, and can be given (`size`).
    """
    log_probs_BK = F.log_softmax(logits_BK, dim=-1, dtype=torch.float32)
    if targets.dim() == 1:
        loss = F.nll_loss(log_probs_BK, targets, weights_K, reduction="sum")
    else:
        p_BK = targets.float() if weights_K is None else targets.float() * weights_K
        loss = -(p_BK * log_probs_BK).sum()
    if size is None:
        size = len(targets) if weights_K is None else weight_of(targets, weights_K)
    if smoothing:
        weighted_BK = log_probs_BK if weights_K is None else log_probs_BK * weights_K
        loss = (1 - smoothing) * loss - smoothing / logits_BK.size(-1) * weighted_BK.sum()
    return loss, size


def weight_of(targets: torch.Tensor, weights_K: torch.Tensor) -> float:
    """The sum of the weights of targets, which are as in `training_loss`; a GPU waits."""
    weights = weights_K[targets] if targets.dim() == 1 else targets.float() * weights_K
    return float(weights.sum())


def cell_counts(labels_B: torch.Tensor, predicted_B: torch.Tensor, classes: int) -> torch.Tensor:
    """The flattened confusion matrix, int64 (K * K,); unlike `bincount`, without GPU synchronization."""
    cells_B = labels_B * classes + predicted_B
    return cells_B.new_zeros(classes**2).scatter_add_(0, cells_B, torch.ones_like(cells_B))


def confusion_matrix(meters: MetersDict) -> np.ndarray:
    """The confusion matrix, int64 (K, K), from fairseq's meters."""
    cells = meters[CONFUSION].sum
    if not torch.is_tensor(cells):  # no batch since the meters were reset
        return np.zeros((1, 1), dtype=np.int64)
    classes = math.isqrt(cells.numel())
    matrix_KK = cells.numpy().reshape(classes, classes)
    if OLD_CELL.format(0, 0) not in meters:
        return matrix_KK
    # The run began with a version that had a meter for each cell.
    old = [int(meters[OLD_CELL.format(k, j)].sum) for k in range(classes) for j in range(classes)]
    return matrix_KK + np.array(old).reshape(classes, classes)
