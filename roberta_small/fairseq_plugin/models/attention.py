"""Multi-head self-attention within each sentence of a packed batch (Vaswani et al. 2017, section 3.2).

In a packed batch the sentences follow each other; padding is at the end. Shapes: T tokens of the batch; l
tokens of one sentence; n the same, rounded up; B sentences; H heads; D size of a head; C = H * D; E = 3 * C.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from fairseq.modules import MultiheadAttention
from torch import Tensor

from roberta_small.fairseq_plugin.models.dropout import dropout
from roberta_small.fairseq_plugin.models.grouped_attention import ROWS_MULTIPLE, attend_in_groups

KERNEL_MULTIPLE = 8
"""The kernels of a GPU need head sizes that are multiples of this."""
FLASH_SIZE = 192
"""Largest head size of the flash kernel: above it, some GPUs have no backward pass or no dropout."""


def attend(
    qkv_TE: Tensor,
    lengths: Sequence[int],
    heads: int,
    p: float,
    *,
    causal: bool = False,
    offsets: Tensor | None = None,
) -> Tensor:
    """Self-attention within each sentence, before the output projection.

    Args:
        qkv_TE: queries, keys and values of all tokens, concatenated; tokens beyond the sum of the lengths are
            padding.
        p: dropout probability of the attention weights.
        offsets: `kernel_offsets` of the lengths, int32, on the device of `qkv_TE`. Without them, a GPU waits
            for their copy. A CPU does not use them.

    Returns (T, C), of the dtype of the input. The rows of padding are finite and belong to no sentence.
    """
    if one_by_one(qkv_TE):
        return attend_in_groups(qkv_TE, lengths, heads, p, causal)
    if not lengths:
        return qkv_TE.new_zeros(len(qkv_TE), qkv_TE.size(1) // 3)
    if offsets is None:
        offsets = torch.tensor(kernel_offsets(lengths, len(qkv_TE)), dtype=torch.int32, device=qkv_TE.device)
    longest = max(*lengths, len(qkv_TE) - sum(lengths))
    # One call of a variable-length kernel: FlashAttention-2 (Dao 2023, arXiv 2307.08691) or xFormers'
    # memory-efficient attention (Rabe & Staats 2021, arXiv 2112.05682), for which all sentences are one row
    # of a batch. Of torch's interfaces to them, jagged tensors make thousands of Python calls, and
    # `torch.nn.attention.varlen` has no dropout. Other head sizes than the kernels' are padded with zeros,
    # which do not change any product.
    size = qkv_TE.size(1) // (3 * heads)
    qkv_T3HD = qkv_TE.contiguous().unflatten(1, (3, heads, size))
    if size % KERNEL_MULTIPLE:
        qkv_T3HD = F.pad(qkv_T3HD, (0, -size % KERNEL_MULTIPLE))
    spans, scale = (offsets, offsets, longest, longest), size**-0.5
    if uses_flash(qkv_T3HD):
        q, k, v = qkv_T3HD.unbind(1)
        out_THD = torch.ops.aten._flash_attention_forward(q, k, v, *spans, p, causal, False, scale=scale)[0]
    else:
        q, k, v = qkv_T3HD.unsqueeze(0).unbind(2)
        differentiate = qkv_TE.requires_grad  # then the kernel keeps what its backward pass needs
        out_THD = torch.ops.aten._efficient_attention_forward(
            q, k, v, None, *spans, p, int(causal), differentiate, scale=scale
        )[0][0]
    return out_THD[..., :size].flatten(1)


def one_by_one(x: Tensor) -> bool:
    """Whether sentences are processed one by one, or few at a time.

    On a CPU they are: calling an operation is cheap, and the tensors of one sentence fit into the cache. On a
    GPU a kernel launch costs more than the work on a sentence, so all sentences are processed in one call.
    """
    return x.device.type == "cpu"


def kernel_offsets(lengths: Sequence[int], tokens: int) -> list[int]:
    """The first token of each sentence, and `tokens`, with padding as one more sentence.

    The kernels leave rows beyond the last offset uninitialized, in the result and in the gradients. As a
    sentence, padding costs less than cutting it off and adding it again in each layer.
    """
    offsets = list(itertools.accumulate(lengths, initial=0))
    return offsets if offsets[-1] == tokens else [*offsets, tokens]


def uses_flash(qkv_T3HD: Tensor) -> bool:
    """Whether the flash kernel supports this dtype, head size and GPU; the other kernel supports them all."""
    half = qkv_T3HD.dtype in (torch.bfloat16, torch.float16)
    return half and qkv_T3HD.size(-1) <= FLASH_SIZE and _has_flash(qkv_T3HD.device)


@functools.cache
def _has_flash(device: torch.device) -> bool:
    """Whether the GPU is of the generation Ampere or later, and torch was built with the kernel."""
    available = torch.backends.cuda.is_flash_attention_available()
    return available and torch.cuda.get_device_capability(device) >= (8, 0)


def attend_single_query(
    attention: MultiheadAttention, x_TC: Tensor, query_BC: Tensor, lengths: Sequence[int], p: float
) -> Tensor:
    """Attention of one token per sentence to its sentence, before the output projection.

    With one query per sentence, keys and values need not be computed: q . (K x + b) is
    (K^T q) . x + q . b, and a weighted sum of (V x + c) is V (weighted sum of x) + c (sum of the weights).
    This takes 2 * T * C * H instead of 2 * T * C * C operations. The result is the same up to rounding.

    `x_TC` is the input of the layer, `query_BC` its rows that are the queries. Returns (B, C).
    """
    heads, size = attention.num_heads, attention.head_dim
    q_BHD = (attention.q_proj(query_BC) * size**-0.5).unflatten(1, (heads, size))
    k_HDC, k_HD = attention.k_proj.weight.unflatten(0, (heads, size)), attention.k_proj.bias.view(heads, size)
    v_HDC, v_HD = attention.v_proj.weight.unflatten(0, (heads, size)), attention.v_proj.bias.view(heads, size)
    query_BHC = torch.einsum("bhd,hdc->bhc", q_BHD, k_HDC)
    constant_BH1 = (q_BHD * k_HD).sum(dim=-1, keepdim=True)
    # Each sentence as a row, n being the longest length, rounded up for the reason given in `packed.Packing`.
    # Other elements contain the rows of `x_TC` that follow.
    offsets = torch.tensor([0, *lengths], device=x_TC.device).cumsum(0)
    places_n = torch.arange(max(lengths) + -max(lengths) % ROWS_MULTIPLE, device=x_TC.device)
    index_Bn = (offsets[:-1, None] + places_n).clamp(max=len(x_TC) - 1)
    x_BnC = x_TC.index_select(0, index_Bn.flatten()).unflatten(0, index_Bn.shape)
    real_Bn = places_n < offsets.diff()[:, None]
    scores_BHn = torch.baddbmm(constant_BH1, query_BHC, x_BnC.transpose(1, 2)).float()
    scores_BHn = scores_BHn.masked_fill(~real_Bn.unsqueeze(1), -torch.inf)
    weights_BHn = dropout(torch.softmax(scores_BHn, dim=-1), p)
    sum_BHC = torch.bmm(weights_BHn.to(x_BnC.dtype), x_BnC)
    total_BH1 = weights_BHn.sum(dim=-1, keepdim=True).to(v_HD.dtype)
    return (torch.einsum("bhc,hdc->bhd", sum_BHC, v_HDC) + total_BH1 * v_HD).flatten(1)
