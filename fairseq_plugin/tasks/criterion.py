"""The criterion `sentence_classification`: cross-entropy, and metrics from exact counts.

Every batch adds its cells to one confusion matrix. fairseq sums the cells over batches, accumulation
steps and workers, and every registered metric of a confusion matrix (accuracy, macro-F1, MCC; see
`common.metrics`) is computed from the sums. The values are not rounded: with
`--best-checkpoint-metric accuracy`, two epochs tie only if they are equal.
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

# fairseq does not show meters whose name begins with an underscore.
CELL = "_gold{}_predicted{}"


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
        """The loss of a batch, the number of sentences, and the numbers to sum for logging."""
        if "target" not in sample:
            raise UserError(
                "--criterion sentence_classification: the task gives no labels to it; "
                "use --task sentence_classification"
            )
        logits_BK, _ = model(
            **sample["net_input"], features_only=True, classification_head_name=self.head_name
        )
        gold_B = sample["target"].view(-1)
        log_probs_BK = F.log_softmax(logits_BK, dim=-1, dtype=torch.float32)
        loss = F.nll_loss(log_probs_BK, gold_B, reduction="sum")
        sentences = gold_B.numel()
        output = {
            "loss": loss.detach(),
            "ntokens": sample["ntokens"],
            "nsentences": sentences,
            "sample_size": sentences,
        }
        output |= confusion_cells(gold_B, logits_BK.argmax(dim=-1), logits_BK.size(-1))
        return loss, sentences, output

    @staticmethod
    def reduce_metrics(logging_outputs: list[dict[str, Any]]) -> None:
        """Hand the sums of all batches and workers to fairseq's meters."""
        sentences = sum(int(log.get("sample_size", 0)) for log in logging_outputs)
        if sentences == 0:
            return
        loss = sum(float(log["loss"]) for log in logging_outputs)
        # In bits, as all of fairseq's criterions log it.
        metrics.log_scalar("loss", loss / sentences / math.log(2), sentences)
        cells = [key for key in logging_outputs[0] if key.startswith("_gold")]
        for key in cells:
            metrics.log_scalar_sum(key, sum(int(log[key]) for log in logging_outputs))
        for metric in logged():
            metrics.log_derived(
                metric.name,
                lambda meters, metric=metric: float(metric.from_confusion(confusion_matrix(meters))),
            )

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """All logging outputs are plain numbers, so that workers need exchange only their sums."""
        return True


def confusion_cells(gold_B: torch.Tensor, predicted_B: torch.Tensor, classes: int) -> dict[str, int]:
    """Counts of a batch as one named number per cell (rows true classes, columns predicted ones)."""
    counts = cell_counts(gold_B, predicted_B, classes).tolist()
    return {CELL.format(cell // classes, cell % classes): n for cell, n in enumerate(counts)}


def cell_counts(gold_B: torch.Tensor, predicted_B: torch.Tensor, classes: int) -> torch.Tensor:
    """The confusion matrix row by row, int64 (K * K,); unlike `bincount` it does not wait for a GPU."""
    cells_B = gold_B * classes + predicted_B
    return cells_B.new_zeros(classes**2).scatter_add_(0, cells_B, torch.ones_like(cells_B))


def confusion_matrix(meters: MetersDict) -> np.ndarray:
    """The matrix (K, K), int64, from fairseq's meters."""
    counts = [meters[key].sum for key in meters if key.startswith("_gold")]
    classes = math.isqrt(len(counts))
    matrix_KK = np.zeros((classes, classes), dtype=np.int64)
    for gold in range(classes):
        for predicted in range(classes):
            matrix_KK[gold, predicted] = int(meters[CELL.format(gold, predicted)].sum)
    return matrix_KK
