"""Multi-head self-attention within each sentence of a packed batch (Vaswani et al. 2017, section 3.2).

Shapes: T tokens of a batch, sentence after sentence; l tokens of one sentence; B sentences;
H heads, D size of a head, C = H * D.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

KERNEL_MULTIPLE = 8
"""Of the sizes of heads that variable-length kernels take (torch/nested/_internal/sdpa.py)."""


def attend(qkv_TE: Tensor, lengths: Sequence[int], heads: int, p: float, *, causal: bool = False) -> Tensor:
    """Every token attends to its own sentence, or (`causal`) to itself and the earlier ones of it.

    Args:
        qkv_TE: queries, keys and values of all tokens side by side, (T, 3 * C).
        lengths: tokens of each sentence; tokens beyond their sum are padding.
        heads: H.
        p: dropout probability of the attention weights.
        causal: whether later tokens are hidden.

    Returns:
        (T, C), of the dtype of the input; zero for padding.
    """
    if one_by_one(qkv_TE):
        return _SentenceAttention.apply(qkv_TE, tuple(lengths), heads, p, causal)
    return (attend_filled_up if causal else attend_jagged)(qkv_TE, lengths, heads, p)


def one_by_one(x: Tensor) -> bool:
    """Whether sentences are gone through one after the other: on a CPU, where starting an operation is cheap
    and small ones stay in the cache. On a GPU each start costs more than a sentence."""
    return x.device.type == "cpu"


def attend_jagged(qkv_TE: Tensor, lengths: Sequence[int], heads: int, p: float) -> Tensor:
    """As `attend`, by torch's attention on jagged tensors: one variable-length kernel on CUDA.

    Such kernels want heads of a multiple of 8; others are filled up with zeros, which changes no product.
    """
    fillers, size = qkv_TE.size(0) - sum(lengths), qkv_TE.size(1) // (3 * heads)
    if not lengths:
        return qkv_TE.new_zeros(fillers, heads * size)
    ends = ends_of(tuple(lengths), qkv_TE.device)
    q, k, v = (
        torch.nested.nested_tensor_from_jagged(
            F.pad(x_TC.unflatten(1, (heads, size)), (0, -size % KERNEL_MULTIPLE)).contiguous(),
            ends,
            min_seqlen=min(lengths),
            max_seqlen=max(lengths),
        ).transpose(1, 2)
        for x_TC in qkv_TE[: sum(lengths)].chunk(3, dim=1)
    )
    out_BHlD = F.scaled_dot_product_attention(q, k, v, dropout_p=p, scale=size**-0.5)
    out_TC = out_BHlD.transpose(1, 2).values()[..., :size].flatten(1)
    return F.pad(out_TC, (0, 0, 0, fillers))


def attend_filled_up(qkv_TE: Tensor, lengths: Sequence[int], heads: int, p: float) -> Tensor:
    """As causal `attend`, by one call of torch's attention, sentences filled up on the right to the longest.

    No token sees what comes after it, so that none sees a filler.
    """
    if not lengths:
        return qkv_TE.new_zeros(len(qkv_TE), qkv_TE.size(1) // 3)
    x_BnE, _ = _filled_up(qkv_TE, lengths)
    q, k, v = x_BnE.unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
    out_BHnD = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)
    ends, tokens = ends_of(tuple(lengths), qkv_TE.device), sum(lengths)
    places_T = torch.arange(tokens, device=qkv_TE.device)
    sentence_T = torch.searchsorted(ends, places_T, right=True) - 1
    index_T = sentence_T * x_BnE.size(1) + places_T - ends[sentence_T]
    out_TC = out_BHnD.transpose(1, 2).flatten(2).flatten(0, 1).index_select(0, index_T)
    return F.pad(out_TC, (0, 0, 0, len(qkv_TE) - tokens))


@functools.lru_cache(maxsize=1)
def ends_of(lengths: tuple[int, ...], device: torch.device) -> Tensor:
    """Where each sentence begins, and the end of the last: int64 (S + 1,).

    Kept for the next layer: copying it to a GPU waits for all that is queued there.
    """
    with torch.inference_mode(False):  # an inference tensor could not be kept for a backward pass
        return torch.tensor([0, *lengths], device=device).cumsum(0)


class _SentenceAttention(torch.autograd.Function):
    """One sentence after the other, forward and backward written out.

    For sentences of 256 tokens or less, the attention weights of one fit into a core's cache. This takes
    less than half the time of torch's attention on a CPU, which with dropout goes through fp32 and
    one random number an element, and whose memory-saving backward computes the weights again.
    Softmax is in fp32, products in the dtype of the input.

    n is l rounded up to a multiple of 16, for the reason that `packed.Packing` gives. Rows and columns
    beyond l hold zeros, except for weights of rows beyond l, whose gradient is zero.
    """

    MULTIPLE = 16

    @staticmethod
    def forward(
        ctx: Any, qkv_TE: Tensor, lengths: tuple[int, ...], heads: int, p: float, causal: bool
    ) -> Tensor:
        size = qkv_TE.size(1) // (3 * heads)
        ctx.lengths, ctx.scale, ctx.kept_scale = lengths, size**-0.5, 1.0
        out_TC = qkv_TE.new_zeros(qkv_TE.size(0), heads * size)
        saved: list[Tensor | None] = []
        for length, qkv_lE, out_lC in _sentences(lengths, qkv_TE, out_TC):
            q_HnD, k_HnD, v_HnD = _heads_first(qkv_lE.view(length, 3, heads, size))
            q_HnD *= ctx.scale
            scores_Hnn = torch.bmm(q_HnD, k_HnD.transpose(1, 2)).float()
            if causal:
                scores_Hnn += _later(scores_Hnn.size(1))
            else:
                scores_Hnn[:, :, length:] = -torch.inf
            weights_Hnn = torch.softmax(scores_Hnn, dim=-1).to(qkv_TE.dtype)
            kept_Hnn, mask_Hnn = weights_Hnn, None
            if p > 0.0:
                mask_Hnn, ctx.kept_scale = keep_mask(weights_Hnn.shape, p)
                kept_Hnn = weights_Hnn * mask_Hnn.to(weights_Hnn.dtype)
            out_HnD = torch.bmm(kept_Hnn, v_HnD).mul_(ctx.kept_scale)
            out_lC.view(length, heads, size).copy_(out_HnD[:, :length].transpose(0, 1))
            if ctx.needs_input_grad[0]:
                saved += [q_HnD, k_HnD, v_HnD, weights_Hnn, kept_Hnn, mask_Hnn, out_HnD]
        ctx.save_for_backward(*saved)
        return out_TC

    @staticmethod
    def backward(ctx: Any, grad_TC: Tensor) -> tuple[Tensor, None, None, None]:
        saved = iter(ctx.saved_tensors)
        grad_TE = grad_TC.new_zeros(grad_TC.size(0), 3 * grad_TC.size(1))
        for length, grad_lC, grad_lE in _sentences(ctx.lengths, grad_TC, grad_TE):
            q, k, v, weights, kept, mask, out = (next(saved) for _ in range(7))
            heads, _, size = q.shape
            (grad_HnD,) = _heads_first(grad_lC.view(length, 1, heads, size))
            # Through the softmax: w * (g - sum of w * g over keys), where that sum is also the
            # product of output and its gradient (Dao et al. 2022, section 3.1).
            total_Hn1 = (grad_HnD.float() * out.float()).sum(dim=-1, keepdim=True)
            grad_HnD *= ctx.kept_scale
            grad_Hnn = torch.bmm(grad_HnD, v.transpose(1, 2)).float()
            if mask is not None:
                grad_Hnn *= mask.float()
            grad_Hnn = grad_Hnn.sub_(total_Hn1).mul_(weights.float()).to(q.dtype)
            grad_l3HD = grad_lE.view(length, 3, heads, size)
            for part, grad in enumerate(
                (
                    torch.bmm(grad_Hnn, k).mul_(ctx.scale),
                    torch.bmm(grad_Hnn.transpose(1, 2), q),
                    torch.bmm(kept.transpose(1, 2), grad_HnD),
                )
            ):
                grad_l3HD[:, part] = grad[:, :length].transpose(0, 1)
        return grad_TE, None, None, None, None


def _later(tokens: int) -> Tensor:
    """Minus infinity where the column is later than the row, else 0: float32 (n, n).

    Fillers stand after all tokens, so that it hides them too.
    """
    return torch.full((tokens, tokens), -torch.inf).triu_(1)


def _sentences(lengths: Sequence[int], a_T: Tensor, b_T: Tensor) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Each length with the sentence's rows of both tensors."""
    start = 0
    for length in lengths:
        yield length, a_T[start : start + length], b_T[start : start + length]
        start += length


def _heads_first(x_lXHD: Tensor) -> Tensor:
    """(l, X, H, D) -> (X, H, n, D), a copy; zeros beyond l."""
    length, parts, heads, size = x_lXHD.shape
    rows = length + -length % _SentenceAttention.MULTIPLE
    x_XHnD = x_lXHD.new_zeros(parts, heads, rows, size)
    x_XHnD[:, :, :length] = x_lXHD.permute(1, 2, 0, 3)
    return x_XHnD


def attend_from_one(
    attention: nn.Module, x_TC: Tensor, query_BC: Tensor, lengths: Sequence[int], p: float
) -> Tensor:
    """One token of each sentence attends to all of its sentence: (B, C), before the output projection.

    With one query a sentence, keys and values of the tokens need not be computed: q . (K x + b)
    is (K^T q) . x + q . b, and a weighted sum of (V x + c) is V (weighted sum of x) + c (sum of the
    weights). Work is 2 * T * C * H in place of 2 * T * C * C, the result the same up to rounding.

    Args:
        attention: fairseq's `MultiheadAttention`, whose projections are used.
        x_TC: input of the layer.
        query_BC: the input of these tokens.
        lengths: tokens of each sentence.
        p: dropout probability of the attention weights.
    """
    heads, size = attention.num_heads, attention.head_dim
    q_BHD = (attention.q_proj(query_BC) * size**-0.5).unflatten(1, (heads, size))
    k_HDC, k_HD = attention.k_proj.weight.unflatten(0, (heads, size)), attention.k_proj.bias.view(heads, size)
    v_HDC, v_HD = attention.v_proj.weight.unflatten(0, (heads, size)), attention.v_proj.bias.view(heads, size)
    query_BHC = torch.einsum("bhd,hdc->bhc", q_BHD, k_HDC)
    constant_BH1 = (q_BHD * k_HD).sum(dim=-1, keepdim=True)
    x_BnC, real_Bn = _filled_up(x_TC, lengths)
    scores_BHn = torch.baddbmm(constant_BH1, query_BHC, x_BnC.transpose(1, 2)).float()
    scores_BHn = scores_BHn.masked_fill(~real_Bn.unsqueeze(1), -torch.inf)
    weights_BHn = dropout(torch.softmax(scores_BHn, dim=-1), p)
    sum_BHC = torch.bmm(weights_BHn.to(x_BnC.dtype), x_BnC)
    total_BH1 = weights_BHn.sum(dim=-1, keepdim=True).to(v_HD.dtype)
    return (torch.einsum("bhc,hdc->bhd", sum_BHC, v_HDC) + total_BH1 * v_HD).flatten(1)


def _filled_up(x_TC: Tensor, lengths: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Each sentence as a row (B, n, C), and where its own tokens are, bool (B, n).

    What follows in `x_TC` fills the rows up. n is the longest length rounded up, for the reason that
    `packed.Packing` gives.
    """
    rows = max(lengths) + -max(lengths) % _SentenceAttention.MULTIPLE
    ends = ends_of(tuple(lengths), x_TC.device)
    places_n = torch.arange(rows, device=x_TC.device)
    index_Bn = (ends[:-1, None] + places_n).clamp(max=len(x_TC) - 1)
    x_BnC = x_TC.index_select(0, index_Bn.flatten()).unflatten(0, index_Bn.shape)
    return x_BnC, places_n < ends.diff()[:, None]


STEPS = 1 << 15
ONE_BF16 = 0x3F80
"""The bits of 1.0 in bfloat16."""


def dropout(x: Tensor, p: float, training: bool = True) -> Tensor:
    """Zero elements of `x`, of any shape, with probability p; scale the rest by 1 / (1 - p)."""
    if not training or p == 0.0:
        return x
    if x.device.type != "cpu":
        return F.dropout(x, p)
    return _BulkDropout.apply(x, p)


def keep_mask(shape: torch.Size, p: float) -> tuple[Tensor, float]:
    """What to keep, as bfloat16 zeros and ones of `shape`, and the scale of what is kept."""
    dropped = round(p * STEPS)
    if dropped >= STEPS:
        return torch.zeros(shape, dtype=torch.bfloat16), 0.0
    count = shape.numel()
    draws = torch.empty((count + 3) // 4, dtype=torch.int64).random_()
    bits = draws.view(torch.int16)[:count].bitwise_and_(STEPS - 1)
    # (dropped - 1 - bits) is negative where bits >= dropped, and the shift makes that 0xFFFF, else 0.
    bits.neg_().add_(dropped - 1).bitwise_right_shift_(15).bitwise_and_(ONE_BF16)
    return bits.view(torch.bfloat16).view(shape), STEPS / (STEPS - dropped)


class _BulkDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        mask, ctx.scale = keep_mask(x.shape, p)
        ctx.save_for_backward(mask)
        return (x * mask.to(x.dtype)).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        return (gradient * mask.to(gradient.dtype)).mul_(ctx.scale), None
