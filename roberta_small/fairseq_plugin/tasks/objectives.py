"""The training loss and the logged sums of each kind of labels (`common.label_kinds`).

Each batch logs its sums as one tensor, which fairseq adds up over batches, accumulation steps and workers.
The metrics are computed from the totals (`common.metrics`).

    single_label_classification   target int64 (B,); sums: confusion matrix, int64 (K * K,)
    multi_label_classification    target float32 (B, K), 0 or 1; sums: per class true positives, false
                                  positives, false negatives and true negatives, then the number of examples
                                  without an error, int64 (4 * K + 1,)
    regression                    target float32 (B,), standardized; sums: `Moments` in the unit of the
                                  labels, float64 (6,)

In training, a class of multi-label data is predicted if its probability is at least 0.5.

Shapes: B sentences, K classes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from fairseq.criterions import FairseqCriterion
from torch import Tensor

from roberta_small.common.label_kinds import MULTI_LABEL, REGRESSION, SINGLE_LABEL, Labels
from roberta_small.common.metrics import LabelCounts, Moments

Loss = tuple[Tensor, int | float]
"""The sum over a batch, and the number to divide it by for the mean."""


class SummedCriterion(FairseqCriterion):
    """A criterion whose logging outputs are numbers or tensors of them, which fairseq sums over workers."""

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """True."""
        return True


class SingleLabel:
    """Cross-entropy."""

    meter = "_confusion"

    def loss(self, logits_BK: Tensor, target: Tensor) -> Loss:
        """The cross-entropy in nats; see `training_loss`."""
        return training_loss(logits_BK, target)

    def sums(self, logits_BK: Tensor, target: Tensor, labels: Labels) -> Tensor:
        """The flattened confusion matrix."""
        return cell_counts(target, logits_BK.argmax(dim=-1), logits_BK.size(-1))

    def statistics(self, sums: Any) -> np.ndarray:
        """The confusion matrix, int64 (K, K)."""
        if not torch.is_tensor(sums):
            return np.zeros((1, 1), dtype=np.int64)
        classes = math.isqrt(sums.numel())
        return sums.numpy().reshape(classes, classes)


class MultiLabel:
    """Binary cross-entropy, of an example the mean over the classes, as in Transformers."""

    meter = "_label_counts"

    def loss(self, logits_BK: Tensor, target: Tensor) -> Loss:
        """The binary cross-entropy in nats."""
        loss = F.binary_cross_entropy_with_logits(logits_BK.float(), target.float(), reduction="sum")
        return loss / logits_BK.size(-1), len(target)

    def sums(self, logits_BK: Tensor, target: Tensor, labels: Labels) -> Tensor:
        """The counts of each class and of the examples without an error."""
        predicted_BK, true_BK = logits_BK >= 0, target > 0.5
        signs = (
            (true_BK, predicted_BK),
            (~true_BK, predicted_BK),
            (true_BK, ~predicted_BK),
            (~true_BK, ~predicted_BK),
        )
        cells_K4 = torch.stack([(one & other).sum(dim=0) for one, other in signs], dim=-1)
        exact = (true_BK == predicted_BK).all(dim=-1).sum()
        return torch.cat([cells_K4.flatten(), exact[None]])

    def statistics(self, sums: Any) -> LabelCounts:
        """The counts as arrays."""
        counts = sums.numpy() if torch.is_tensor(sums) else np.zeros(5, dtype=np.int64)
        return LabelCounts(counts[:-1].reshape(-1, 4), counts[-1])


class Regression:
    """Mean squared error of the standardized labels."""

    meter = "_moments"

    def loss(self, logits_BK: Tensor, target: Tensor) -> Loss:
        """The squared error."""
        return F.mse_loss(logits_BK.view(-1).float(), target.float(), reduction="sum"), len(target)

    def sums(self, logits_BK: Tensor, target: Tensor, labels: Labels) -> Tensor:
        """The moments of the differences from the mean label of training."""
        scale = labels.scaling.scale
        t_B, p_B = target.double() * scale, logits_BK.detach().view(-1).double() * scale
        return torch.stack([torch.ones_like(t_B), t_B, p_B, t_B * t_B, p_B * p_B, t_B * p_B]).sum(dim=1)

    def statistics(self, sums: Any) -> Moments:
        """The moments as an array."""
        return Moments(sums.numpy() if torch.is_tensor(sums) else np.zeros(6))


OBJECTIVES: dict[str, SingleLabel | MultiLabel | Regression] = {
    SINGLE_LABEL: SingleLabel(),
    MULTI_LABEL: MultiLabel(),
    REGRESSION: Regression(),
}
"""The objective of each kind of labels.

`meter` is the name of its sums in logging outputs, fairseq's meters and checkpoints; fairseq does not print
meters whose names begin with an underscore. `loss` is without class weights and label smoothing. `sums` are
those of a batch, without GPU synchronization, and `statistics` what `common.metrics.measure_statistics`
takes, from the total, which is no tensor if there was no batch since fairseq's meters were reset.
"""


def training_loss(
    logits_BK: Tensor,
    targets: Tensor,
    weights_K: Tensor | None = None,
    smoothing: float = 0.0,
    size: float | None = None,
) -> Loss:
    """The sum over a batch of the cross-entropy in nats, and the number to divide it by for the mean.

    Sums and numbers of several batches are added before the division, which gives
    `torch.nn.functional.cross_entropy` with `weight` and `label_smoothing` over all their sentences: the mean
    weighted by the weight of each true class. Label smoothing (Szegedy et al. 2016, section 7) mixes the
    target with the uniform distribution over the classes.

    `targets` are the classes, int64 (B,), or their probabilities, float (B, K): loss and weight of an example
    are then averaged over the classes with these probabilities (Hinton et al. 2015, section 2, at temperature
    1). The number is B without weights. With weights it is `weight_of` the targets, and can be given
    (`size`).
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


def weight_of(targets: Tensor, weights_K: Tensor) -> float:
    """The sum of the weights of targets, which are as in `training_loss`; a GPU waits."""
    weights = weights_K[targets] if targets.dim() == 1 else targets.float() * weights_K
    return float(weights.sum())


def cell_counts(labels_B: torch.Tensor, predicted_B: torch.Tensor, classes: int) -> torch.Tensor:
    """The flattened confusion matrix, int64 (K * K,); unlike `bincount`, without GPU synchronization."""
    cells_B = labels_B * classes + predicted_B
    return cells_B.new_zeros(classes**2).scatter_add_(0, cells_B, torch.ones_like(cells_B))
