"""The criterion `sentence_classification`: cross-entropy, and metrics from exact counts.

Each batch logs the cells of its confusion matrix. fairseq sums them over batches, accumulation steps and
workers, and every registered metric of a confusion matrix (accuracy, macro-F1, MCC; see `common.metrics`) is
computed from the sums. Values are not rounded: with `--best-checkpoint-metric accuracy`, two epochs tie only
if their accuracies are equal.

Shapes: B sentences, K classes.
"""

import math
from dataclasses import dataclass, field
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

from common.errors import UserError
from common.metrics import logged

# fairseq does not print meters whose names begin with an underscore.
CELL_PREFIX = "_gold"
CELL = "_gold{}_predicted{}"
"""Meter of a cell: label, prediction. The names are part of checkpoints."""


@dataclass
class SentenceClassificationCriterionConfig(FairseqDataclass):
    """Flags of the criterion."""

    classification_head_name: str = field(
        default="sentence_classification_head", metadata={"help": "name of the classification head to use"}
    )


@register_criterion("sentence_classification", dataclass=SentenceClassificationCriterionConfig)
class SentenceClassificationCriterion(FairseqCriterion):
    """Cross-entropy in nats, summed over the sentences of a batch."""

    def __init__(self, cfg: SentenceClassificationCriterionConfig, task: FairseqTask) -> None:
        super().__init__(task)
        self.head_name = cfg.classification_head_name

    def forward(
        self, model: BaseFairseqModel, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[torch.Tensor, int, dict[str, Any]]:
        """The loss of a batch, the number of sentences, and the logging output."""
        if "target" not in sample:
            raise UserError(
                "--criterion sentence_classification: the task provides no labels; "
                "use --task sentence_classification"
            )
        logits_BK, _ = model(
            **sample["net_input"], features_only=True, classification_head_name=self.head_name
        )
        labels_B = sample["target"].view(-1)
        log_probs_BK = F.log_softmax(logits_BK, dim=-1, dtype=torch.float32)
        loss = F.nll_loss(log_probs_BK, labels_B, reduction="sum")
        sentences = labels_B.numel()
        output = {
            "loss": loss.detach(),
            "ntokens": sample["ntokens"],
            "nsentences": sentences,
            "sample_size": sentences,
        }
        output |= confusion_cells(labels_B, logits_BK.argmax(dim=-1), logits_BK.size(-1))
        return loss, sentences, output

    @staticmethod
    def reduce_metrics(logging_outputs: list[dict[str, Any]]) -> None:
        """Log the loss and every metric from the sums over batches and workers."""
        sentences = sum(int(log.get("sample_size", 0)) for log in logging_outputs)
        if sentences == 0:
            return
        loss = sum(float(log["loss"]) for log in logging_outputs)
        # In bits, as in all criteria of fairseq.
        metrics.log_scalar("loss", loss / sentences / math.log(2), sentences)
        cells = [key for key in logging_outputs[0] if key.startswith(CELL_PREFIX)]
        for key in cells:
            metrics.log_scalar_sum(key, sum(int(log[key]) for log in logging_outputs))
        for metric in logged():
            metrics.log_derived(
                metric.name,
                lambda meters, metric=metric: float(metric.from_confusion(confusion_matrix(meters))),
            )

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """True: all logging outputs are numbers, which fairseq can sum over workers."""
        return True


def confusion_cells(labels_B: torch.Tensor, predicted_B: torch.Tensor, classes: int) -> dict[str, int]:
    """The confusion matrix of a batch as logging output; labels and predictions are int64 (B,)."""
    counts = cell_counts(labels_B, predicted_B, classes).tolist()
    return {CELL.format(cell // classes, cell % classes): n for cell, n in enumerate(counts)}


def cell_counts(labels_B: torch.Tensor, predicted_B: torch.Tensor, classes: int) -> torch.Tensor:
    """The flattened confusion matrix, int64 (K * K,); unlike `bincount`, without GPU synchronization."""
    cells_B = labels_B * classes + predicted_B
    return cells_B.new_zeros(classes**2).scatter_add_(0, cells_B, torch.ones_like(cells_B))


def confusion_matrix(meters: MetersDict) -> np.ndarray:
    """The confusion matrix, int64 (K, K), from fairseq's meters."""
    counts = [meters[key].sum for key in meters if key.startswith(CELL_PREFIX)]
    classes = math.isqrt(len(counts))
    matrix_KK = np.zeros((classes, classes), dtype=np.int64)
    for label in range(classes):
        for predicted in range(classes):
            matrix_KK[label, predicted] = int(meters[CELL.format(label, predicted)].sum)
    return matrix_KK
