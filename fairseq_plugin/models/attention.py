"""Multi-head self-attention within each sentence of a packed batch (Vaswani et al. 2017, section 3.2).

In a packed batch the sentences follow each other; padding is at the end.

Shapes: T tokens of the batch; l tokens of one sentence; n the same, rounded up; B sentences; H heads; D size
of a head; C = H * D; E = 3 * C.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from fairseq.modules import MultiheadAttention
from torch import Tensor

from roberta_small.fairseq_plugin.models.dropout import dropout
from roberta_small.fairseq_plugin.models.grouped_attention import ROWS_MULTIPLE, attend_in_groups

KERNEL_MULTIPLE = 8
"""The head size must be a multiple of this for variable-length kernels (torch/nested/_internal/sdpa.py)."""


def attend(qkv_TE: Tensor, lengths: Sequence[int], heads: int, p: float, *, causal: bool = False) -> Tensor:
    """Self-attention within each sentence, before the output projection.

    Args:
        qkv_TE: queries, keys and values of all tokens, concatenated: (T, 3 * C).
        lengths: number of tokens of each sentence; tokens beyond their sum are padding.
        heads: H.
        p: dropout probability of the attention weights.
        causal: whether a token attends only to itself and earlier tokens.

    Returns:
        (T, C), of the dtype of the input; zero for padding.
    """
    if one_by_one(qkv_TE):
        return attend_in_groups(qkv_TE, lengths, heads, p, causal)
    return (attend_padded if causal else attend_jagged)(qkv_TE, lengths, heads, p)


def one_by_one(x: Tensor) -> bool:
    """Whether sentences are processed one by one, or few at a time.

    On a CPU they are: calling an operation is cheap, and the tensors of one sentence fit into the cache. On a
    GPU a kernel launch costs more than the work on a sentence, so all sentences are processed in one call.
    """
    return x.device.type == "cpu"


def attend_jagged(qkv_TE: Tensor, lengths: Sequence[int], heads: int, p: float) -> Tensor:
    """`attend` with torch's attention on jagged tensors, one variable-length kernel on CUDA.

    The kernels need head sizes that are multiples of 8. Other heads are padded with zeros, which do not
    change any product.
    """
    padding, size = qkv_TE.size(0) - sum(lengths), qkv_TE.size(1) // (3 * heads)
    if not lengths:
        return qkv_TE.new_zeros(padding, heads * size)
    offsets = sentence_offsets(tuple(lengths), qkv_TE.device)
    q, k, v = (
        torch.nested.nested_tensor_from_jagged(
            F.pad(x_TC.unflatten(1, (heads, size)), (0, -size % KERNEL_MULTIPLE)).contiguous(),
            offsets,
            min_seqlen=min(lengths),
            max_seqlen=max(lengths),
        ).transpose(1, 2)
        for x_TC in qkv_TE[: sum(lengths)].chunk(3, dim=1)
    )
    out_BHlD = F.scaled_dot_product_attention(q, k, v, dropout_p=p, scale=size**-0.5)
    out_TC = out_BHlD.transpose(1, 2).values()[..., :size].flatten(1)
    return F.pad(out_TC, (0, 0, 0, padding))


def attend_padded(qkv_TE: Tensor, lengths: Sequence[int], heads: int, p: float) -> Tensor:
    """Causal `attend` with one call of torch's attention, sentences padded on the right to the longest.

    No token attends to padding, because padding follows all tokens of a sentence.
    """
    if not lengths:
        return qkv_TE.new_zeros(len(qkv_TE), qkv_TE.size(1) // 3)
    x_BnE, _ = _pad(qkv_TE, lengths)
    q, k, v = x_BnE.unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
    out_BHnD = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)
    offsets, tokens = sentence_offsets(tuple(lengths), qkv_TE.device), sum(lengths)
    places_T = torch.arange(tokens, device=qkv_TE.device)
    sentence_T = torch.searchsorted(offsets, places_T, right=True) - 1
    index_T = sentence_T * x_BnE.size(1) + places_T - offsets[sentence_T]
    out_TC = out_BHnD.transpose(1, 2).flatten(2).flatten(0, 1).index_select(0, index_T)
    return F.pad(out_TC, (0, 0, 0, len(qkv_TE) - tokens))


@functools.lru_cache(maxsize=1)
def sentence_offsets(lengths: tuple[int, ...], device: torch.device) -> Tensor:
    """The index of the first token of each sentence, and the number of tokens: int64 (B + 1,).

    Cached for the next layer, because copying it to a GPU synchronizes.
    """
    with torch.inference_mode(False):  # a cached inference tensor could not be used in a backward pass
        return torch.tensor([0, *lengths], device=device).cumsum(0)


def attend_single_query(
    attention: MultiheadAttention, x_TC: Tensor, query_BC: Tensor, lengths: Sequence[int], p: float
) -> Tensor:
    """Attention of one token per sentence to its sentence, before the output projection.

    With one query per sentence, keys and values need not be computed: q . (K x + b) is
    (K^T q) . x + q . b, and a weighted sum of (V x + c) is V (weighted sum of x) + c (sum of the weights).
    This takes 2 * T * C * H instead of 2 * T * C * C operations. The result is the same up to rounding.

    Args:
        attention: its projections are used.
        x_TC: input of the layer.
        query_BC: the rows of `x_TC` that are the queries.
        lengths: number of tokens of each sentence.
        p: dropout probability of the attention weights.

    Returns:
        (B, C).
    """
    heads, size = attention.num_heads, attention.head_dim
    q_BHD = (attention.q_proj(query_BC) * size**-0.5).unflatten(1, (heads, size))
    k_HDC, k_HD = attention.k_proj.weight.unflatten(0, (heads, size)), attention.k_proj.bias.view(heads, size)
    v_HDC, v_HD = attention.v_proj.weight.unflatten(0, (heads, size)), attention.v_proj.bias.view(heads, size)
    query_BHC = torch.einsum("bhd,hdc->bhc", q_BHD, k_HDC)
    constant_BH1 = (q_BHD * k_HD).sum(dim=-1, keepdim=True)
    x_BnC, real_Bn = _pad(x_TC, lengths)
    scores_BHn = torch.baddbmm(constant_BH1, query_BHC, x_BnC.transpose(1, 2)).float()
    scores_BHn = scores_BHn.masked_fill(~real_Bn.unsqueeze(1), -torch.inf)
    weights_BHn = dropout(torch.softmax(scores_BHn, dim=-1), p)
    sum_BHC = torch.bmm(weights_BHn.to(x_BnC.dtype), x_BnC)
    total_BH1 = weights_BHn.sum(dim=-1, keepdim=True).to(v_HD.dtype)
    return (torch.einsum("bhc,hdc->bhd", sum_BHC, v_HDC) + total_BH1 * v_HD).flatten(1)


def _pad(x_TC: Tensor, lengths: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Each sentence as a row (B, n, C), and which elements are its tokens, bool (B, n).

    The other elements contain the rows of `x_TC` that follow. n is the longest length, rounded up for the
    reason given in `packed.Packing`.
    """
    rows = max(lengths) + -max(lengths) % ROWS_MULTIPLE
    offsets = sentence_offsets(tuple(lengths), x_TC.device)
    places_n = torch.arange(rows, device=x_TC.device)
    index_Bn = (offsets[:-1, None] + places_n).clamp(max=len(x_TC) - 1)
    x_BnC = x_TC.index_select(0, index_Bn.flatten()).unflatten(0, index_Bn.shape)
    return x_BnC, places_n < offsets.diff()[:, None]
