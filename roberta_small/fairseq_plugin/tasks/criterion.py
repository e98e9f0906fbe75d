"""The criterion `sentence_classification`: the loss of the kind of labels, and metrics from exact counts.

Loss and sums are those of `objectives`. fairseq adds the sums up over batches, accumulation steps and
workers, and every registered metric of them (accuracy, macro-F1, MCC; see `common.metrics`) is computed from
the totals. Values are not rounded: with `--best-checkpoint-metric accuracy`, two epochs tie only if their
accuracies are equal.

Class weights and label smoothing are for one class per text. They change the training loss only. The
validation loss is the plain cross-entropy, so that it is comparable between runs.

Shapes: B sentences, K classes.
"""

import logging
import math
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from fairseq.criterions import register_criterion
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from fairseq.models import BaseFairseqModel
from fairseq.tasks import FairseqTask

from roberta_small.common import class_weights
from roberta_small.common.errors import UserError
from roberta_small.common.label_kinds import REGRESSION, Labels
from roberta_small.common.metrics import logged
from roberta_small.fairseq_plugin.tasks.batches import host_targets, known_packing
from roberta_small.fairseq_plugin.tasks.objectives import (
    OBJECTIVES,
    SummedCriterion,
    training_loss,
    weight_of,
)
from roberta_small.fairseq_plugin.tasks.sentence_classification import SentenceClassificationTask

logger = logging.getLogger(__name__)


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
class SentenceClassificationCriterion(SummedCriterion):
    """The loss of the task's kind of labels, summed over the sentences of a batch.

    Raises `UserError` for an impossible --label-smoothing; `prepare` checks --class-weights.
    """

    def __init__(self, cfg: SentenceClassificationCriterionConfig, task: FairseqTask) -> None:
        super().__init__(task)
        self.head_name = cfg.classification_head_name
        self.label_smoothing = checked_smoothing(cfg.label_smoothing)
        self.class_weights = cfg.class_weights
        # Tasks of other programs and of pre-training have no labels.
        self.labels: Labels = getattr(task, "labels", None) or Labels.single([])
        self.objective = OBJECTIVES[self.labels.kind.name]
        if self.label_smoothing:
            self.labels.kind.require_exclusive("--label-smoothing")
        if self.class_weights != class_weights.NONE:
            self.labels.kind.require_exclusive(class_weights.FLAG)
        self._weights_K: torch.Tensor | None = None  # float32 (K,), on the device of the logits

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
        exclusive = self.labels.kind.exclusive
        target = sample["target"].view(-1) if exclusive else sample["target"]
        if self.training and exclusive:
            targets = sample.get("soft_target", target)
            if self.weights and self._weights_K is None:
                missing = logits_BK.size(-1) - len(self.weights)  # classes that only --num-classes adds
                self._host_weights_K = torch.tensor([*self.weights.values(), *[1.0] * missing])
                self._weights_K = self._host_weights_K.to(logits_BK.device)
            weights_K = self._weights_K
            known = None if weights_K is None else weight_of(host_targets(sample), self._host_weights_K)
            loss, size = training_loss(logits_BK, targets, weights_K, self.label_smoothing, known)
        else:
            loss, size = self.objective.loss(logits_BK, target)
        output = {
            "loss": loss.detach(),
            "ntokens": sample["ntokens"],
            "nsentences": len(target),
            "sample_size": size,
            self.objective.meter: self.objective.sums(logits_BK, target, self.labels),
        }
        return loss, size, output

    @staticmethod
    def reduce_metrics(logging_outputs: list[dict[str, Any]]) -> None:
        """Log the loss and every metric from the sums over batches and workers."""
        size = sum(float(log.get("sample_size", 0)) for log in logging_outputs)
        if size == 0:
            return
        loss = sum(float(log["loss"]) for log in logging_outputs)
        # In bits, as in all criteria of fairseq, which divide the squared error too.
        metrics.log_scalar("loss", loss / size / math.log(2), size)
        for kind, objective in OBJECTIVES.items():
            if objective.meter not in logging_outputs[0]:
                continue
            total = sum(log[objective.meter] for log in logging_outputs)
            counts = kind != REGRESSION  # fairseq's sum over workers makes them floating-point numbers
            metrics.log_scalar_sum(objective.meter, (total.long() if counts else total.double()).cpu())
            for metric in logged(kind):
                metrics.log_derived(
                    metric.name,
                    lambda meters, metric=metric, objective=objective: float(
                        metric.from_statistics(objective.statistics(meters[objective.meter].sum))
                    ),
                )


def checked_smoothing(value: float) -> float:
    """A value of --label-smoothing; raises `UserError` unless it is at least 0 and below 1."""
    if not 0.0 <= value < 1.0:
        raise UserError(f"--label-smoothing {value}: must be at least 0 and below 1")
    return value
