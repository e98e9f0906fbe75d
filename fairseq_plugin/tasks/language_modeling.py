"""The criterion `fast_masked_lm`: the loss of fairseq's `masked_lm`, without a tensor of all its logits.

The scores of all masked positions over 32,000 types are the largest tensor of pre-training by far, and
the usual loss makes several copies of it. Here they are computed for a few positions at a time, turned
into their own gradient at once, and forgotten.

With `--bag-of-words W` a second loss teaches the vector of `<s>`, which a masked language model never asks
for anything, what a classifier will read there: which tokens the block has. Its cross-entropy against the
set of them (Ma et al. 2024, "Drop your Decoder", arXiv 2401.11248), through the same head, counts as much as
that of W times the masked tokens.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.data import Dictionary
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from fairseq.models import BaseFairseqModel
from fairseq.tasks import FairseqTask
from fairseq.utils import get_perplexity
from torch import Tensor

from common.errors import UserError

from ..models import parameters

ROWS = 128
"""Positions whose scores are computed at a time: 16 MB of fp32 for 32,000 types."""
BLOCK_BYTES = 32 << 20
"""Of the scores' gradients that are kept for one matrix product. Larger tensors than this are mapped anew
each time (`experiments/methods/fairseq.py`, malloc); their page faults cost more than the product."""


@dataclass
class FastMaskedLmConfig(FairseqDataclass):
    """Flags of the criterion."""

    bag_of_words: float = field(
        default=0.0,
        metadata={"help": "weight of a second loss: the pieces of the block, predicted from <s>"},
    )


@register_criterion("fast_masked_lm", dataclass=FastMaskedLmConfig)
class FastMaskedLmCriterion(FairseqCriterion):
    """Cross-entropy of the masked tokens (Devlin et al. 2019), summed; for `--arch roberta_small`."""

    def __init__(self, task: FairseqTask, bag_of_words: float = 0.0) -> None:
        super().__init__(task)
        if not 0.0 <= bag_of_words < math.inf:
            raise UserError(f"--bag-of-words {bag_of_words}: must be a number that is not negative")
        self.padding_idx = task.source_dictionary.pad()
        self.first_piece = task.source_dictionary.nspecial
        self.bag_of_words = bag_of_words

    def forward(
        self, model: BaseFairseqModel, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """The loss of a batch in nats, the number of masked tokens, and what is logged."""
        if not hasattr(model, "masked_lm_loss"):
            raise UserError("--criterion fast_masked_lm needs --arch roberta_small; or use masked_lm")
        tokens_BL, target_BL = sample["net_input"]["src_tokens"], sample["target"]
        masked_BL = target_BL.ne(self.padding_idx)
        sample_size = int(masked_BL.sum())
        bags_BV = self._bags(model, tokens_BL, masked_BL, target_BL) if self.bag_of_words else None
        # Asked before the network's work is queued on a GPU, not after.
        scored = sample_size + (0 if bags_BV is None else len(bags_BV))
        work = self._flops(model, tokens_BL, scored)
        loss, of_bags = model.masked_lm_loss(tokens_BL, masked_BL, target_BL, bags_BV)
        return loss, sample_size, {
            "loss": (loss - of_bags).detach(),
            "bag_loss": of_bags / self.bag_of_words if self.bag_of_words else 0.0,
            "ntokens": sample["ntokens"],
            "nsentences": sample["nsentences"],
            "sample_size": sample_size,
            "flops": work,
        }  # fmt: skip

    def _bags(
        self, model: BaseFairseqModel, tokens_BL: Tensor, masked_BL: Tensor, target_BL: Tensor
    ) -> Tensor:
        """What each `<s>` is to predict: equal weights on the pieces of its block, fp32 (B, V)."""
        types = model.encoder.sentence_encoder.embed_tokens.num_embeddings
        pieces_BL = torch.where(masked_BL, target_BL, tokens_BL)
        bags_BV = torch.zeros(len(tokens_BL), types, device=tokens_BL.device).scatter_(1, pieces_BL, 1.0)
        bags_BV[:, : self.first_piece] = 0.0
        weight_B1 = self.bag_of_words * masked_BL.sum(1, keepdim=True)
        return bags_BV * (weight_B1 / bags_BV.sum(1, keepdim=True).clamp(min=1.0))

    def _flops(self, model: BaseFairseqModel, tokens_BL: Tensor, scored: int) -> float:
        """Of the model's mathematics, both passes, with the types scored so often; 0 outside training."""
        if not model.training:
            return 0.0
        args, lengths_B = model.args, tokens_BL.ne(self.padding_idx).sum(1).double()
        sizes = args.encoder_layers, args.encoder_embed_dim, args.encoder_ffn_embed_dim
        types = model.encoder.sentence_encoder.embed_tokens.num_embeddings
        head = parameters.masked_lm_head(args.encoder_embed_dim, types, scored)
        return parameters.encoder(*sizes, float(lengths_B.sum()), float(lengths_B.square().sum())) + head

    @staticmethod
    def reduce_metrics(logging_outputs: list[dict[str, Any]]) -> None:
        """As `masked_lm`: the mean loss in bits, and the perplexity; in training, model FLOPs a second."""
        sample_size = sum(int(log.get("sample_size", 0)) for log in logging_outputs)
        if sample_size == 0:
            return
        loss = sum(float(log["loss"]) for log in logging_outputs)
        metrics.log_scalar("loss", loss / sample_size / math.log(2), sample_size)
        metrics.log_derived("ppl", lambda meters: get_perplexity(meters["loss"].avg))
        if bags := sum(float(log.get("bag_loss", 0)) for log in logging_outputs):
            metrics.log_scalar("bag_loss", bags / sample_size / math.log(2), sample_size)
        if work := sum(float(log.get("flops", 0)) for log in logging_outputs):
            metrics.log_speed("tflops", work / 1e12, priority=95, round=4)  # model TFLOP/s, beside wps

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """All logging outputs are plain numbers."""
        return True


def linear_cross_entropy(
    x_NC: Tensor, weight_VC: Tensor, bias_V: Tensor, target_M: Tensor, bags_BV: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Sum over N positions of the cross-entropy, in nats, of the scores x W^T + b; and the bags' part of it.

    The first M positions have one target each, and without bags the sum equals
    `F.cross_entropy(F.linear(x_NC, weight_VC, bias_V), target_M, reduction="sum")`. The last B have a bag:
    a weight for every type, fp32. Products are in the dtype of `x_NC`; softmax, loss and the gradients of
    weight and bias in fp32. The gradients are computed along with the loss; the bags' part has none. Where
    `weight_VC` has a tensor `spare_grad`, its gradient is written there.
    """
    return _LinearCrossEntropy.apply(x_NC, weight_VC, bias_V, target_M, bags_BV, torch.is_grad_enabled())


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x_NC: Tensor,
        weight_VC: Tensor,
        bias_V: Tensor,
        target_M: Tensor,
        bags_BV: Tensor | None,
        differentiate: bool,
    ) -> tuple[Tensor, Tensor]:
        with torch.autocast(x_NC.device.type, enabled=False):
            weight, bias = weight_VC.to(x_NC.dtype), bias_V.to(x_NC.dtype)
            ctx.grads = grads = _Gradients(x_NC, weight_VC, bias_V) if differentiate else None
            loss, of_bags = torch.zeros((), device=x_NC.device), torch.zeros((), device=x_NC.device)
            rows = max(1, BLOCK_BYTES // (len(weight) * weight.element_size()))
            for block in _slices(0, len(x_NC), rows):
                scores = x_NC.new_empty(block.stop - block.start, len(weight))
                for part in _parts(block, len(target_M)):
                    out = scores[part.start - block.start : part.stop - block.start]
                    torch.addmm(bias, x_NC[part], weight.t(), out=out)
                    probs, log_sums = softmax_and_log_sum(out)
                    if part.start < len(target_M):
                        gold = target_M[part]
                        loss += (log_sums - out.gather(1, gold[:, None]).float()).sum()
                        if grads is not None:
                            grads.of_scores(probs, gold, out)
                    else:
                        bags = bags_BV[part.start - len(target_M) : part.stop - len(target_M)]
                        of_bags += (bags.sum(1, keepdim=True) * log_sums).sum() - (bags * out).sum()
                        if grads is not None:
                            grads.of_bags(probs, bags, out)
                if grads is not None:
                    grads.of_products(block, x_NC[block], weight, scores)
        ctx.mark_non_differentiable(of_bags)
        return loss + of_bags, of_bags

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        # Handed over, not kept, so that the 65 MB of the embeddings are not copied; hence once only.
        grads, ctx.grads = ctx.grads, None
        if gradient.device.type != "cpu" or gradient != 1.0:  # a GPU is not asked, which would wait for it
            grads.scale(gradient)
        return grads.x, grads.give_weight(), grads.bias, None, None, None


def softmax_and_log_sum(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Softmax (n, V) of scores (n, V) and the logarithm of the sum of their exponentials (n, 1), fp32.

    The sum is read off the largest probability, exp(largest score) / sum, which cannot underflow: one pass
    of exponentials serves both.
    """
    probs = F.softmax(scores, -1, dtype=torch.float32)
    return probs, scores.amax(1, keepdim=True).float() - probs.amax(1, keepdim=True).log()


def _slices(start: int, stop: int, step: int) -> Iterator[slice]:
    """From `start` to `stop` in steps, the last as long as it is."""
    for at in range(start, stop, step):
        yield slice(at, min(at + step, stop))


def _parts(block: slice, targets: int) -> Iterator[slice]:
    """At most `ROWS` positions each, of the first `targets` positions or of the others, never of both."""
    border = min(max(block.start, targets), block.stop)
    yield from _slices(block.start, border, ROWS)
    yield from _slices(border, block.stop, ROWS)


class _Gradients:
    """Gradients of `linear_cross_entropy`, added up block by block."""

    COLUMNS = 8000
    """Types whose embeddings get their gradient at a time."""

    def __init__(self, x_MC: Tensor, weight_VC: Tensor, bias_V: Tensor) -> None:
        self.parameter = weight_VC
        self.x = torch.empty_like(x_MC)
        spare = weight_VC.__dict__.pop("spare_grad", None)
        self.weight = torch.empty_like(weight_VC) if spare is None else spare
        self.bias = torch.zeros_like(bias_V)
        if not len(x_MC):
            self.weight.zero_()

    def of_scores(self, probs: Tensor, gold: Tensor, out: Tensor) -> None:
        """Softmax minus one at the target, into `out`; `probs` is used up."""
        probs[torch.arange(len(gold), device=gold.device), gold] -= 1.0
        self.bias += probs.sum(dim=0)
        out.copy_(probs)

    def of_bags(self, probs: Tensor, bags: Tensor, out: Tensor) -> None:
        """Softmax as often as the bag weighs, minus the bag, into `out`; `probs` is used up."""
        probs.mul_(bags.sum(1, keepdim=True)).sub_(bags)
        self.bias += probs.sum(dim=0)
        out.copy_(probs)

    def of_products(self, block: slice, x: Tensor, weight: Tensor, scores: Tensor) -> None:
        """Through the matrix product of one block of positions."""
        torch.mm(scores, weight, out=self.x[block])
        for columns, part in zip(self.weight.split(self.COLUMNS), scores.split(self.COLUMNS, 1), strict=True):
            if block.start == 0:
                columns.copy_(part.t() @ x)  # nothing to add it to: its zeros need not be written
            else:
                columns += part.t() @ x

    def scale(self, factor: Tensor) -> None:
        """Multiply all by the gradient of the loss."""
        for grad in (self.x, self.weight, self.bias):
            grad *= factor

    def give_weight(self) -> Tensor | None:
        """For autograd; or put where autograd will add the rows of the embeddings in place.

        The weight is the embedding matrix too, whose other gradient is a few rows where the optimizer
        takes these (see `optimizer.py`). Autograd would add the two into a third tensor.
        """
        parameter, self.parameter = self.parameter, None
        if parameter.grad is not None or not getattr(parameter, "takes_rows", False):
            return self.weight
        parameter.grad = self.weight
        return None


@register_criterion("fast_lm")
class FastLmCriterion(FastMaskedLmCriterion):
    """Cross-entropy in nats, summed; logged in bits a token, with the perplexity 2^bits.

    The model FLOPs that it logs count attention as if every token saw its whole sentence (the convention of
    Chowdhery et al. 2022, appendix B).
    """

    def forward(
        self, model: BaseFairseqModel, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """The loss of a batch, the number of targets, and what is logged."""
        if "future" not in getattr(model, "supported_targets", ()):
            raise UserError("--criterion fast_lm needs --arch causal_lm_small or causal_roberta_small")
        return super().forward(model, sample, reduce)

    def _flops(self, model: BaseFairseqModel, tokens_BL: Tensor, scored: int) -> float:
        """As of masked models, but for a linear head, which lacks their product of C by C."""
        total = super()._flops(model, tokens_BL, scored)
        if not total or hasattr(model.encoder.lm_head, "dense"):
            return total
        return total - 6.0 * scored * model.args.encoder_embed_dim**2


WORD_START = "▁"


def word_beginnings(_args: Any, dictionary: Dictionary) -> Tensor:
    """For each id whether a word begins there: uint8 (V,), in the place of `get_whole_word_mask`.

    Special symbols, `<mask>` and the padding symbols of a dictionary's size are words of their own. Raises
    `UserError` where no piece begins a word: then the dictionary is none of SentencePiece's.
    """
    pieces = dictionary.symbols
    if not any(piece.startswith(WORD_START) for piece in pieces):
        raise UserError(
            f"--mask-whole-words: no piece of the dictionary begins with {WORD_START}, which is how "
            "SentencePiece marks the beginning of a word; binarize with a SentencePiece model, or leave the "
            "flag out"
        )
    return torch.tensor(
        [
            row < dictionary.nspecial or piece == "<mask>" or piece.startswith((WORD_START, "madeupword"))
            for row, piece in enumerate(pieces)
        ],
        dtype=torch.uint8,
    )


def finding_word_beginnings(original: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`word_beginnings` in the place of fairseq's `get_whole_word_mask`, which is not called."""

    @wraps(original)
    def beginnings(args: Any, dictionary: Dictionary) -> Tensor:
        return word_beginnings(args, dictionary)

    return beginnings


def giving_arguments(original: None) -> Callable[[FairseqTask], Any]:
    """The attribute `args` that `--mask-whole-words` reads of `MaskedLMTask`, which has `cfg` only."""

    def arguments(task: FairseqTask) -> Any:
        return task.cfg

    return arguments
