"""The criteria `fast_masked_lm` and `fast_lm`, and `--mask-whole-words` for SentencePiece vocabularies.

The scores of all positions with a target over 32,000 vocabulary entries are by far the largest tensor of
pre-training, and the usual loss makes several copies of it. `linear_cross_entropy` computes them for a few
positions at a time and replaces them by their gradient. The loss is that of fairseq's `masked_lm` and
`cross_entropy`.

`--bag-of-words W` adds a second loss. The masked language model loss does not train the vector of `<s>`,
which a classifier uses later. The second loss predicts from it, through the same head, which tokens are in
the block (Ma et al. 2024, "Drop your Decoder", arXiv 2401.11248). Its weight is W times the number of masked
tokens.

Shapes: B sentences or blocks, L length of the longest, M positions with a target, N = M + B positions with
scores, C embedding size, V vocabulary size, n positions at a time.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.criterions import register_criterion
from fairseq.data import Dictionary
from fairseq.dataclass import FairseqDataclass
from fairseq.logging import metrics
from fairseq.models import BaseFairseqModel
from fairseq.tasks import FairseqTask
from fairseq.utils import get_perplexity
from torch import Tensor

from roberta_small.common.errors import UserError
from roberta_small.common.hardware import sizes_of
from roberta_small.fairseq_plugin.models import parameters
from roberta_small.fairseq_plugin.tasks.batches import packing_of, scored_of
from roberta_small.fairseq_plugin.tasks.objectives import SummedCriterion
from roberta_small.preprocess.dictionary import PADDING_PREFIX, WORD_START


@dataclass
class FastMaskedLmConfig(FairseqDataclass):
    """Flags of the criterion."""

    bag_of_words: float = field(
        default=0.0,
        metadata={"help": "weight of an additional loss that predicts the tokens of the block from <s>"},
    )


@register_criterion("fast_masked_lm", dataclass=FastMaskedLmConfig)
class FastMaskedLmCriterion(SummedCriterion):
    """Summed cross-entropy of the masked tokens in nats (Devlin et al. 2019), for `--arch roberta_small`."""

    def __init__(self, task: FairseqTask, bag_of_words: float = 0.0) -> None:
        super().__init__(task)
        if not 0.0 <= bag_of_words < math.inf:
            raise UserError(f"--bag-of-words {bag_of_words}: must be a finite number, 0 or above")
        self.padding_idx = task.source_dictionary.pad()
        self.num_special = task.source_dictionary.nspecial
        self.bag_of_words = bag_of_words

    def forward(
        self, model: BaseFairseqModel, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """The loss of a batch, the number of masked tokens, and the logging output."""
        if not hasattr(model, "masked_lm_loss"):
            raise UserError("--criterion fast_masked_lm needs --arch roberta_small; or use masked_lm")
        tokens_BL, packing = sample["net_input"]["src_tokens"], packing_of(sample, self.padding_idx)
        index_M, target_M = scored_of(sample, self.padding_idx)
        bags_BV = self._bags(model, tokens_BL, sample["target"]) if self.bag_of_words else None
        sample_size = len(index_M)
        scored = sample_size + (0 if bags_BV is None else len(bags_BV))
        flops = self._flops(model, packing.lengths, scored)
        loss, bag_loss = model.masked_lm_loss(tokens_BL, index_M, target_M, bags_BV, packing)
        return loss, sample_size, {
            "loss": (loss - bag_loss).detach(),
            "bag_loss": bag_loss / self.bag_of_words if self.bag_of_words else 0.0,
            "ntokens": sample["ntokens"],
            "nsentences": sample["nsentences"],
            "sample_size": sample_size,
            "flops": flops,
        }  # fmt: skip

    def _bags(self, model: BaseFairseqModel, tokens_BL: Tensor, target_BL: Tensor) -> Tensor:
        """Soft targets of `<s>`: equal weights for the tokens of its block, fp32 (B, V)."""
        masked_BL = target_BL.ne(self.padding_idx)
        vocab_size = model.encoder.sentence_encoder.embed_tokens.num_embeddings
        original_BL = torch.where(masked_BL, target_BL, tokens_BL)
        bags_BV = torch.zeros(len(tokens_BL), vocab_size, device=tokens_BL.device)
        bags_BV.scatter_(1, original_BL, 1.0)
        bags_BV[:, : self.num_special] = 0.0
        weight_B1 = self.bag_of_words * masked_BL.sum(1, keepdim=True)
        return bags_BV * (weight_B1 / bags_BV.sum(1, keepdim=True).clamp(min=1.0))

    def _flops(self, model: BaseFairseqModel, lengths: Sequence[int], scored: int) -> float:
        """FLOPs of the model, forward and backward, with scores at `scored` positions; 0 in evaluation."""
        if not model.training:
            return 0.0
        args = model.args
        sizes = args.encoder_layers, args.encoder_embed_dim, args.encoder_ffn_embed_dim
        vocab_size = model.encoder.sentence_encoder.embed_tokens.num_embeddings
        head = parameters.masked_lm_head(args.encoder_embed_dim, vocab_size, scored)
        if not hasattr(model.encoder.lm_head, "dense"):  # a linear head lacks the layer (C, C)
            head -= 6.0 * scored * args.encoder_embed_dim**2
        squares = float(sum(length**2 for length in lengths))
        return parameters.encoder(*sizes, float(sum(lengths)), squares) + head

    @staticmethod
    def reduce_metrics(logging_outputs: list[dict[str, Any]]) -> None:
        """Log the mean loss in bits and the perplexity as `masked_lm`; in training, also TFLOP/s."""
        sample_size = sum(int(log.get("sample_size", 0)) for log in logging_outputs)
        if sample_size == 0:
            return
        loss = sum(float(log["loss"]) for log in logging_outputs)
        metrics.log_scalar("loss", loss / sample_size / math.log(2), sample_size)
        metrics.log_derived("ppl", lambda meters: get_perplexity(meters["loss"].avg))
        if bag_loss := sum(float(log.get("bag_loss", 0)) for log in logging_outputs):
            metrics.log_scalar("bag_loss", bag_loss / sample_size / math.log(2), sample_size)
        if flops := sum(float(log.get("flops", 0)) for log in logging_outputs):
            metrics.log_speed("tflops", flops / 1e12, priority=95, round=4)  # shown next to wps


def linear_cross_entropy(
    x_NC: Tensor, weight_VC: Tensor, bias_V: Tensor, target_M: Tensor, bags_BV: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Summed cross-entropy, in nats, of the scores x W^T + b at N positions, without a tensor of all scores.

    Without bags, the loss equals
    `F.cross_entropy(F.linear(x_NC, weight_VC, bias_V), target_M, reduction="sum")`.
    The gradients are computed together with the loss, for one backward pass.

    Args:
        x_NC: features. Matrix products are computed in their dtype; softmax, loss and the gradients of weight
            and bias in fp32.
        weight_VC: output matrix. If it has an attribute `spare_grad`, its gradient is written to that tensor.
        target_M: targets of the first M positions, int64.
        bags_BV: soft targets of the other positions: a weight for every vocabulary entry, fp32.

    Returns the loss, including that of the bags, and the loss of the bags alone, which has no gradient.
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
            loss, bag_loss = torch.zeros((), device=x_NC.device), torch.zeros((), device=x_NC.device)
            sizes = sizes_of(x_NC.device.type)
            rows = max(1, sizes.loss_block_bytes // (len(weight) * weight.element_size()))
            targets = len(target_M)
            for block in _slices(0, len(x_NC), rows):
                scores = x_NC.new_empty(block.stop - block.start, len(weight))
                split = min(max(block.start, targets), block.stop)  # where the bags begin
                step = sizes.loss_rows
                parts = _slices(block.start, split, step), _slices(split, block.stop, step)
                for part in itertools.chain(*parts):
                    out = scores[part.start - block.start : part.stop - block.start]
                    torch.addmm(bias, x_NC[part], weight.t(), out=out)
                    # The sum is computed from the largest probability, exp(largest score) / sum, which cannot
                    # underflow. So the exponentials are computed only once.
                    probs = F.softmax(out, -1, dtype=torch.float32)
                    log_sums = out.amax(1, keepdim=True).float() - probs.amax(1, keepdim=True).log()
                    # `probs` becomes the gradient of the scores: softmax minus one at the target, or weighted
                    # softmax minus bag.
                    if part.start < targets:
                        target = target_M[part]
                        loss += (log_sums - out.gather(1, target[:, None]).float()).sum()
                        probs[torch.arange(len(target), device=target.device), target] -= 1.0
                    else:
                        assert bags_BV is not None  # rows beyond the targets are those of the bags
                        bags = bags_BV[part.start - targets : part.stop - targets]
                        sums = bags.sum(1, keepdim=True)
                        bag_loss += (sums * log_sums).sum() - (bags * out).sum()
                        probs.mul_(sums).sub_(bags)
                    if grads is not None:
                        grads.bias += probs.sum(dim=0)
                        out.copy_(probs)
                if grads is not None:
                    grads.through_product(block, x_NC[block], weight, scores)
        ctx.on_cpu = x_NC.device.type == "cpu"
        ctx.mark_non_differentiable(bag_loss)
        return loss + bag_loss, bag_loss

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        # Not kept in ctx, so that autograd does not copy the 65 MB of the embeddings.
        grads, ctx.grads = ctx.grads, None
        if not ctx.on_cpu or gradient != 1.0:  # a GPU would wait for the comparison
            for grad in (grads.x, grads.weight, grads.bias):
                grad *= gradient
        return grads.x, grads.release_weight(), grads.bias, None, None, None


def _slices(start: int, stop: int, step: int) -> Iterator[slice]:
    """Consecutive slices of `step` elements from `start` to `stop`; the last can be shorter."""
    for at in range(start, stop, step):
        yield slice(at, min(at + step, stop))


class _Gradients:
    """The gradients of `linear_cross_entropy`, accumulated block by block."""

    def __init__(self, x_NC: Tensor, weight_VC: Tensor, bias_V: Tensor) -> None:
        self.parameter: Tensor | None = weight_VC
        self.x = torch.empty_like(x_NC)
        spare = weight_VC.__dict__.pop("spare_grad", None)
        self.weight = torch.empty_like(weight_VC) if spare is None else spare
        self.bias = torch.zeros_like(bias_V)
        if not len(x_NC):
            self.weight.zero_()

    def through_product(self, block: slice, x: Tensor, weight: Tensor, grad_scores: Tensor) -> None:
        """Backpropagate the gradient of a block's scores through the matrix product."""
        torch.mm(grad_scores, weight, out=self.x[block])
        columns = sizes_of(x.device.type).loss_columns
        parts = zip(self.weight.split(columns), grad_scores.split(columns, 1), strict=True)
        for grad_weight, part in parts:
            if block.start == 0:
                grad_weight.copy_(part.t() @ x)  # the first block initializes the memory
            else:
                grad_weight += part.t() @ x

    def release_weight(self) -> Tensor | None:
        """The gradient of the output matrix for autograd, or None if it is already in `parameter.grad`.

        The matrix is tied to the embeddings. If the optimizer supports sparse gradients (see
        `training/optimizer.py`), their gradient is a few rows, which autograd adds to `parameter.grad` in
        place; otherwise it would allocate a third tensor for the sum.
        """
        parameter, self.parameter = self.parameter, None
        assert parameter is not None
        if parameter.grad is not None or not getattr(parameter, "sparse_gradient", False):
            return self.weight
        parameter.grad = self.weight
        return None


@register_criterion("fast_lm")
class FastLmCriterion(FastMaskedLmCriterion):
    """Summed cross-entropy of the next tokens in nats; logged in bits per token, with the perplexity 2^bits.

    The logged FLOPs count attention as if every token attended to its whole sentence (the convention of
    Chowdhery et al. 2022, appendix B).
    """

    def forward(
        self, model: BaseFairseqModel, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """The loss of a batch, the number of targets, and the logging output."""
        if "future" not in getattr(model, "supported_targets", ()):
            raise UserError("--criterion fast_lm needs --arch causal_lm_small or causal_roberta_small")
        return super().forward(model, sample, reduce)


def marking_word_starts(original: Callable[..., Tensor], args: Any, dictionary: Dictionary) -> Tensor:
    """Replace `get_whole_word_mask`: --mask-whole-words with SentencePiece vocabularies.

    Returns for each id whether its token begins a word: uint8 (V,). Special symbols, `<mask>` and padding
    entries are separate words. Raises `UserError` if no token begins a word, because then the dictionary is
    not that of a SentencePiece model.
    """
    symbols = dictionary.symbols
    if not any(symbol.startswith(WORD_START) for symbol in symbols):
        raise UserError(
            f"--mask-whole-words: no token of the dictionary begins with {WORD_START}, with which "
            "SentencePiece marks the beginning of a word; prepare the text with a SentencePiece model, or "
            "omit the flag"
        )
    return torch.tensor(
        [
            row < dictionary.nspecial or symbol == "<mask>" or symbol.startswith((WORD_START, PADDING_PREFIX))
            for row, symbol in enumerate(symbols)
        ],
        dtype=torch.uint8,
    )


def setting_args(original: Callable[..., None], task: FairseqTask, *args: Any, **kwargs: Any) -> None:
    """Replace `MaskedLMTask.__init__`: also set `args`, which `--mask-whole-words` reads, to `cfg`.

    A subclass can assign `args` itself, before or after.
    """
    original(task, *args, **kwargs)
    if not hasattr(task, "args"):
        task.args = task.cfg
