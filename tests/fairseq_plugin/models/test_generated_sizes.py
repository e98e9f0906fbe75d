"""Functions with a gradient of their own against torch's autograd, over generated sizes, dtypes and views.

The reference computes in float64. A gradient that a function is handed must not change.
"""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given
from hypothesis import strategies as st

from roberta_small.common.hardware import CPU
from roberta_small.fairseq_plugin.models import attention, dropout, grouped_attention
from roberta_small.fairseq_plugin.tasks import language_modeling

DTYPES = st.sampled_from([torch.float32, torch.bfloat16])
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 4e-2}
"""Largest difference relative to the largest element of the reference, and of 1 if that is smaller."""
WORK = 1 << 22
"""Largest number of attention weights times head size in an example."""
VIEWS = st.sampled_from(["contiguous", "columns", "rows", "transposed"])


def tensor(shape, dtype, view, seed):
    """Random numbers; `view` says how they lie in the memory of a larger or another tensor."""
    generator = torch.Generator().manual_seed(seed)
    rows, columns = shape
    if view == "transposed":
        return torch.randn(columns, rows, generator=generator).to(dtype).t().requires_grad_()
    x = torch.randn(2 * rows + 1, columns + 3, generator=generator).to(dtype)
    views = {"columns": x[:rows, 1 : columns + 1], "rows": x[1::2, :columns]}
    return views.get(view, x[:rows, :columns].contiguous()).detach().requires_grad_()


def check(found, wanted, dtype, scale=1.0):
    """Compare tensors of one list with those of another one in float64."""
    for ours, theirs in zip(found, wanted, strict=True):
        limit = scale * TOLERANCE[dtype] * max(1.0, float(theirs.abs().max()) if theirs.numel() else 1.0)
        assert ours.isfinite().all()
        assert float((ours.double() - theirs).abs().max()) <= limit if theirs.numel() else True


def backward(out, gradient, inputs):
    """The gradients of the inputs; `gradient`, which is handed to the function, must be left unchanged."""
    before = gradient.clone()
    found = torch.autograd.grad(out, inputs, gradient)
    assert torch.equal(gradient, before)
    return found


@pytest.fixture
def masks(monkeypatch):
    """The masks of attention and dropout in the order in which they are drawn, with their factors."""
    drawn = []

    def keep_mask(shape, p):
        drawn.append(dropout_mask(shape, p))
        return drawn[-1]

    dropout_mask = dropout.keep_mask
    for module in (dropout, grouped_attention):
        monkeypatch.setattr(module, "keep_mask", keep_mask)
    return drawn


@st.composite
def sentences(draw):
    """Head count and size, lengths of the sentences (some empty) and rows of padding."""
    heads, size = draw(st.integers(1, 16)), draw(st.integers(1, 130))
    longest = max(1, min(512, int(math.sqrt(WORK / (heads * size)))))
    lengths = draw(st.lists(st.one_of(st.integers(0, 24), st.integers(1, longest)), min_size=1, max_size=6))
    assume(sum(lengths))
    return heads, size, tuple(lengths), draw(st.integers(0, 20))


def reference(qkv_TE, lengths, heads, causal, factors):
    """Attention sentence by sentence; `factors` are those of dropout, (H, l, l) for each sentence."""
    parts = []
    for qkv_lE, factor_Hll in zip(qkv_TE[: sum(lengths)].split(lengths), factors, strict=True):
        length = len(qkv_lE)
        if not length:
            continue
        q, k, v = qkv_lE.reshape(length, 3, heads, -1).permute(1, 2, 0, 3)
        scores_Hll = q @ k.transpose(1, 2) * q.size(-1) ** -0.5
        if causal:
            scores_Hll = scores_Hll + torch.full((length, length), -torch.inf).triu(1)
        out_HlD = (scores_Hll.softmax(-1) * factor_Hll) @ v
        parts.append(out_HlD.transpose(0, 1).reshape(length, -1))
    return F.pad(torch.cat(parts), (0, 0, 0, len(qkv_TE) - sum(lengths)))


def factors_of(masks, lengths, heads, tokens):
    """The factor of each attention weight, sentence by sentence, from the masks of the groups."""
    ends = torch.tensor(lengths).cumsum(0).tolist()
    index_of = {end - length: i for i, (end, length) in enumerate(zip(ends, lengths, strict=True)) if length}
    found = [torch.zeros(heads, 0, 0)] * len(lengths)
    groups = grouped_attention.groups_of(lengths, heads, tokens)
    for group, (mask_Nnn, scale) in zip(groups, masks, strict=True):
        alone = group.start is not None
        firsts = [group.start] if alone else group.index_M.view(-1, group.rows)[:, 0].tolist()
        for first, mask_Hnn in zip(firsts, mask_Nnn.unflatten(0, (-1, heads)), strict=True):
            index = index_of[first]
            length = lengths[index]
            found[index] = (mask_Hnn[:, :length, :length] != 0).double() * scale
    return found


@given(sentences(), DTYPES, VIEWS, VIEWS, st.booleans(), st.sampled_from([0.0, 0.1, 0.9]), st.integers(0, 99))
def test_attention(masks, sizes, dtype, view, gradient_view, causal, p, seed):
    heads, size, lengths, padding = sizes
    masks.clear()
    torch.manual_seed(seed)
    tokens, width = sum(lengths) + padding, heads * size
    qkv_TE = tensor((tokens, 3 * width), dtype, view, seed)
    gradient_TC = tensor((tokens, width), dtype, gradient_view, seed + 1).detach()
    out_TC = attention.attend(qkv_TE, lengths, heads, p, causal=causal)
    assert out_TC.dtype == dtype
    (found,) = backward(out_TC, gradient_TC, qkv_TE)

    exact = qkv_TE.detach().double().requires_grad_()
    factors = factors_of(masks, lengths, heads, tokens) if p else [torch.ones(heads, 1, 1)] * len(lengths)
    wanted = reference(exact, lengths, heads, causal, factors)
    (wanted_gradient,) = torch.autograd.grad(wanted, exact, gradient_TC.double())
    check([out_TC, found], [wanted, wanted_gradient], dtype, scale=3 if p == 0.9 else 1)
    if p == 0.0:  # another function computes it without a gradient
        check([attention.attend(qkv_TE.detach(), lengths, heads, p, causal=causal)], [wanted], dtype)


@given(
    st.integers(0, 40), st.integers(1, 70), DTYPES, VIEWS, VIEWS,
    st.sampled_from([0.0, 0.1, 0.5, 1.0]), st.sampled_from([None, torch.float32, "same"]),
)  # fmt: skip
def test_dropout(masks, rows, columns, dtype, view, gradient_view, p, residual_dtype):
    masks.clear()
    x = tensor((rows, columns), dtype, view, 1)
    if residual_dtype is None:
        out, inputs = dropout.dropout(x, p), [x]
    else:
        kind = dtype if residual_dtype == "same" else residual_dtype
        residual = tensor((rows, columns), kind, gradient_view, 3)
        out, inputs = dropout.add_dropout(residual, x, p, training=True), [x, residual]
        assert out.dtype == kind
    gradient = tensor((rows, columns), out.dtype, gradient_view, 2).detach()
    found = backward(out, gradient, inputs)
    factor = (masks[0][0] != 0).double() * masks[0][1] if masks else torch.ones(rows, columns)
    wanted = x.detach().double() * factor
    wanted = wanted + residual.detach().double() if len(inputs) == 2 else wanted
    check([out, *found], [wanted, gradient.double() * factor, gradient.double()][: 1 + len(inputs)], dtype)


@given(
    st.integers(0, 70), st.integers(1, 40), st.integers(1, 300), DTYPES, VIEWS,
    st.integers(0, 3), st.sampled_from([1.0, 0.25]), st.booleans(),
)  # fmt: skip
def test_cross_entropy(monkeypatch, positions, width, vocabulary, dtype, view, bags, factor, spare):
    small = replace(CPU, loss_rows=3, loss_block_bytes=4096, loss_columns=16)
    monkeypatch.setattr(language_modeling, "sizes_of", lambda device_type: small)
    x = tensor((positions + bags, width), dtype, view, 1)
    weight = tensor((vocabulary, width), torch.float32, "contiguous", 2)
    bias = tensor((1, vocabulary), torch.float32, "contiguous", 3).detach()[0].requires_grad_()
    generator = torch.Generator().manual_seed(4)
    target = torch.randint(vocabulary, (positions,), generator=generator)
    bags_BV = torch.rand(bags, vocabulary, generator=generator) / vocabulary if bags else None
    if spare:
        weight.spare_grad = torch.full_like(weight, torch.nan)
    loss, bag_loss = language_modeling.linear_cross_entropy(x, weight, bias, target, bags_BV)
    assert not bag_loss.requires_grad
    gradient = torch.tensor(factor)
    found = backward(loss, gradient, [x, weight, bias])

    exact = [each.detach().double().requires_grad_() for each in (x, weight, bias)]
    scores = F.linear(exact[0], *(each.to(dtype).double() for each in exact[1:]))
    log_probs = scores.log_softmax(-1)
    wanted_bags = -(bags_BV.double() * log_probs[positions:]).sum() if bags else torch.zeros(())
    wanted = -log_probs[torch.arange(positions), target].sum() + wanted_bags
    check([loss / max(1, positions), bag_loss], [wanted.detach() / max(1, positions), wanted_bags], dtype)
    check(found, torch.autograd.grad(wanted, exact, gradient.double()), dtype, scale=2)
