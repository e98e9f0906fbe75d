"""Self-attention on a CPU: groups of sentences of similar length, with an explicit backward pass.

The attention weights of a group fit into a core's cache. In training this takes less than half the time of
torch's attention on a CPU, which with dropout converts to fp32 and draws one random number per element, and
whose memory-saving backward pass recomputes the weights. One sentence at a time would also fit, but calling
the operations for each short sentence would take longer than computing them.

Shapes: T tokens of the batch; l tokens of a sentence; n the same, rounded up; G sentences and R tokens of a
group; M = G * n; H heads; D size of a head; N = G * H; C = H * D; E = 3 * C.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from roberta_small.fairseq_plugin.models.dropout import keep, keep_mask

ROWS_MULTIPLE = 16
"""n is a multiple of this, for the reason given in `packed.Packing`."""
GROUP_WEIGHTS = 1 << 18
"""Attention weights of a group, unless a single sentence has more: 512 KiB in bf16."""


def attend_in_groups(qkv_TE: Tensor, lengths: Sequence[int], heads: int, p: float, causal: bool) -> Tensor:
    """`attention.attend` on a CPU.

    Without gradient and dropout, it is torch's attention of the groups, which takes two thirds of the time.
    """
    lengths = tuple(lengths)
    trains = p > 0.0 or (torch.is_grad_enabled() and qkv_TE.requires_grad)
    if trains or qkv_TE.dtype != torch.float32:  # of other types, torch's attention was not measured
        return _GroupedAttention.apply(qkv_TE, lengths, heads, p, causal)
    tokens, size = len(qkv_TE), qkv_TE.size(1) // (3 * heads)
    out_TC = qkv_TE.new_empty(tokens, heads * size)
    out_TC[sum(lengths) :] = 0.0
    qkv_T3HD, out_THD = qkv_TE.reshape(tokens, 3, heads, size), out_TC.view(tokens, heads, size)
    for group in groups_of(lengths, heads, tokens):
        qkv_3GHnD, mask_G11n = group.take(qkv_T3HD).permute(2, 0, 3, 1, 4), None
        if group.start is not None:
            qkv_3GHnD = qkv_3GHnD[..., : group.lengths[0], :]
        elif not causal:  # rows beyond l follow all tokens
            mask_G11n = group.real_Gn[:, None, None]
        q_GHnD, k_GHnD, v_GHnD = qkv_3GHnD
        out_GHnD = F.scaled_dot_product_attention(
            q_GHnD, k_GHnD, v_GHnD, attn_mask=mask_G11n, is_causal=causal
        )
        group.put(out_THD, out_GHnD.transpose(1, 2))
    return out_TC


class _GroupedAttention(torch.autograd.Function):
    """Softmax and its gradient are computed in fp32, also of bf16; matrix products in the dtype of the input.

    Rows of a group beyond l belong to other sentences. Their keys have no weight, and what is computed for
    their queries is discarded; its gradient is zero.
    """

    @staticmethod
    def forward(
        ctx: Any, qkv_TE: Tensor, lengths: tuple[int, ...], heads: int, p: float, causal: bool
    ) -> Tensor:
        tokens, size = len(qkv_TE), qkv_TE.size(1) // (3 * heads)
        ctx.groups = groups_of(lengths, heads, tokens)
        ctx.scale, ctx.kept_scale, ctx.real_tokens = size**-0.5, 1.0, sum(lengths)
        out_TC = qkv_TE.new_empty(tokens, heads * size)
        out_TC[ctx.real_tokens :] = 0.0
        qkv_T3HD, out_THD = qkv_TE.reshape(tokens, 3, heads, size), out_TC.view(tokens, heads, size)
        saved: list[Tensor | None] = []
        for group in ctx.groups:
            qkv_Gn3HD = group.take(qkv_T3HD)
            q_NnD, k_NnD, v_NnD = qkv_Gn3HD.permute(2, 0, 3, 1, 4).contiguous().flatten(1, 2)
            q_NnD = q_NnD * ctx.scale
            scores_Nnn = torch.bmm(q_NnD, k_NnD.transpose(1, 2))
            if causal:
                # Rows beyond l follow all tokens, so their keys are masked too.
                scores_Nnn += torch.full((group.rows, group.rows), -torch.inf).triu_(1)
            elif group.start is not None:
                scores_Nnn[..., group.lengths[0] :] = -torch.inf
            else:
                scores_GHnn = scores_Nnn.unflatten(0, (-1, heads))
                scores_GHnn.masked_fill_(~group.real_Gn[:, None, None], -torch.inf)
            weights_Nnn = torch.softmax(scores_Nnn, dim=-1)
            kept_Nnn, mask_Nnn = weights_Nnn, None
            if p > 0.0:
                mask_Nnn, ctx.kept_scale = keep_mask(weights_Nnn.shape, p)
                kept_Nnn = keep(weights_Nnn, mask_Nnn)
            out_NnD = torch.bmm(kept_Nnn, v_NnD).mul_(ctx.kept_scale)
            group.put(out_THD, out_NnD.unflatten(0, (-1, heads)).transpose(1, 2))
            if ctx.needs_input_grad[0]:
                saved += [q_NnD, k_NnD, v_NnD, weights_Nnn, kept_Nnn, mask_Nnn]
        ctx.save_for_backward(*saved)
        return out_TC

    @staticmethod
    def backward(ctx: Any, grad_TC: Tensor) -> tuple[Tensor, None, None, None, None]:
        saved = iter(ctx.saved_tensors)
        tokens, width = grad_TC.shape
        grad_TE = grad_TC.new_empty(tokens, 3 * width)
        grad_TE[ctx.real_tokens :] = 0.0
        for group in ctx.groups:
            q, k, v, weights, kept, mask = (next(saved) for _ in range(6))
            heads, size = width // q.size(2), q.size(2)
            # A copy in any case: with one head, `contiguous` would return the memory of `grad_TC` itself.
            grad_GHnD = group.take(grad_TC.reshape(tokens, heads, size)).transpose(1, 2)
            grad_GHnD = grad_GHnD.clone(memory_format=torch.contiguous_format)
            if group.start is not None:
                grad_GHnD[..., group.lengths[0] :, :] = 0.0
            else:
                grad_GHnD.masked_fill_(~group.real_Gn[:, None, :, None], 0.0)
            grad_NnD = grad_GHnD.flatten(0, 1).mul_(ctx.kept_scale)
            grad_Nnn = torch.bmm(grad_NnD, v.transpose(1, 2))
            if mask is not None:
                keep(grad_Nnn, mask, out=grad_Nnn)
            # The gradient of softmax in one pass: w * (g - sum of w * g over keys), sums in fp32.
            grad_Nnn = torch._softmax_backward_data(grad_Nnn, weights, -1, weights.dtype)
            grad_T3HD = grad_TE.view(tokens, 3, heads, size)
            for part, grad in enumerate(
                (
                    torch.bmm(grad_Nnn, k).mul_(ctx.scale),
                    torch.bmm(grad_Nnn.transpose(1, 2), q),
                    torch.bmm(kept.transpose(1, 2), grad_NnD),
                )
            ):
                group.put(grad_T3HD[:, part], grad.unflatten(0, (-1, heads)).transpose(1, 2))
        return grad_TE, None, None, None, None


class Group:
    """Sentences of a packed batch, with the same number of rows n.

    Attributes:
        rows: n.
        lengths: the number of tokens of each sentence.
        start: the first token of the only sentence, whose rows need not be gathered; else None.
        index_M: int64 (M,), the token of each row; that of a row beyond l is any other token.
        tokens_R, rows_R: int64 (R,), each token of the sentences, and its row in the group.
    """

    def __init__(self, starts: Sequence[int], lengths: Sequence[int], rows: int, tokens: int) -> None:
        self.rows, self.lengths, self.start = rows, lengths, None
        if len(starts) == 1 and starts[0] + rows <= tokens:
            self.start = starts[0]
            return
        places_n = torch.arange(rows)
        self.real_Gn = places_n < torch.tensor(lengths)[:, None]
        self.index_M = (torch.tensor(starts)[:, None] + places_n).flatten().clamp_(max=tokens - 1)
        self.rows_R = self.real_Gn.flatten().nonzero().squeeze(1)
        self.tokens_R = self.index_M.index_select(0, self.rows_R)

    def take(self, x_TX: Tensor) -> Tensor:
        """The rows of the sentences: (T, ...) -> (G, n, ...)."""
        if self.start is not None:
            return x_TX[self.start : self.start + self.rows].unsqueeze(0)
        return x_TX.index_select(0, self.index_M).unflatten(0, (-1, self.rows))

    def put(self, out_TX: Tensor, x_GnX: Tensor) -> None:
        """Write the sentences' tokens into `out_TX`."""
        if self.start is not None:
            length = self.lengths[0]
            out_TX[self.start : self.start + length] = x_GnX[0, :length]
        else:
            out_TX.index_copy_(0, self.tokens_R, x_GnX.flatten(0, 1).index_select(0, self.rows_R))


@functools.lru_cache(maxsize=1)
def groups_of(lengths: tuple[int, ...], heads: int, tokens: int) -> list[Group]:
    """The groups of a batch with `tokens` rows, padding included; cached for the next layer."""
    indices: dict[int, list[int]] = {}
    for index, length in enumerate(lengths):
        if length:  # an empty sentence has no rows
            indices.setdefault(length + -length % ROWS_MULTIPLE, []).append(index)
    starts = list(itertools.accumulate(lengths, initial=0))
    groups = []
    with torch.inference_mode(False):  # a cached inference tensor could not be used in a backward pass
        for rows, members in indices.items():
            size = max(1, GROUP_WEIGHTS // (heads * rows**2))
            for first in range(0, len(members), size):
                part = members[first : first + size]
                groups.append(Group([starts[i] for i in part], [lengths[i] for i in part], rows, tokens))
    return groups
