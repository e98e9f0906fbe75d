"""The attention kernels of a GPU, computed on a CPU: the operators of aten, with torch's own derivatives.

They check what the kernels require, and leave uninitialized (here NaN) what the kernels leave so: rows beyond
the last offset, of the result and of the gradients. The seed that a kernel returns for its backward pass
determines the dropout mask.
"""

import contextlib

import torch

CPU = "CPU"
CALLS = []
"""The operators in the order of their calls, `flash` or `efficient`."""


@contextlib.contextmanager
def installed():
    """A context in which aten's variable-length kernels exist on a CPU; yields the list of calls."""
    library = torch.library.Library("aten", "IMPL")
    for name in ("flash", "efficient"):
        for direction in ("forward", "backward"):
            function = globals()[f"{name}_{direction}"]
            library.impl(f"_{name}_attention_{direction}", function, CPU)
    try:
        yield CALLS
    finally:
        library._destroy()


def weights_of(q, k, causal, scale, p, seed):
    """Attention weights of a sentence before and after dropout, (H, l, l)."""
    scores = torch.einsum("qhd,khd->hqk", q, k) * scale
    if causal:
        scores = scores + torch.full(scores.shape[1:], -torch.inf).triu(1)
    weights = scores.softmax(-1)
    generator = torch.Generator().manual_seed(seed)
    return weights, (torch.rand(weights.shape, generator=generator) >= p) / (1 - p) if p else 1.0


def check(q, k, v, offsets, longest):
    """What both kernels require of their arguments."""
    assert offsets.dtype == torch.int32
    assert all(x.stride(-1) == 1 and x.shape == q.shape for x in (q, k, v))
    assert q.size(-1) % 8 == 0
    assert offsets[0] == 0
    assert offsets[-1] <= len(q)
    assert longest >= int(offsets.diff().max())


def forward(q, k, v, offsets, longest, p, causal, scale):
    """The result (T, H, D), and the seed of its dropout."""
    check(q, k, v, offsets, longest)
    seed = int(torch.randint(1 << 30, ()))
    out = torch.full_like(q, torch.nan, memory_format=torch.contiguous_format)
    wide = [x.double() for x in (q, k, v)]
    for number, (start, end) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)):
        one, two, three = (x[start:end] for x in wide)
        weights, factors = weights_of(one, two, causal, scale, p, seed + number)
        out[start:end] = torch.einsum("hqk,khd->qhd", weights * factors, three).to(q.dtype)
    return out, torch.tensor([seed, 0])


def backward(gradient, q, k, v, offsets, p, causal, seed, scale):
    """The gradients of q, k and v, (T, H, D)."""
    grads = [torch.full_like(x, torch.nan, memory_format=torch.contiguous_format) for x in (q, k, v)]
    wide = [x.double() for x in (gradient, q, k, v)]
    for number, (start, end) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)):
        g, one, two, three = (x[start:end] for x in wide)
        weights, factors = weights_of(one, two, causal, scale, p, int(seed[0]) + number)
        of_weights = torch.einsum("qhd,khd->hqk", g, three) * factors
        of_scores = weights * (of_weights - (of_weights * weights).sum(-1, keepdim=True)) * scale
        found = (
            torch.einsum("hqk,khd->qhd", of_scores, two),
            torch.einsum("hqk,qhd->khd", of_scores, one),
            torch.einsum("hqk,qhd->khd", weights * factors, g),
        )
        for grad, each in zip(grads, found, strict=True):
            grad[start:end] = each.to(grad.dtype)
    return tuple(grads)


def flash_forward(q, k, v, first, _, longest, __, p, causal, debug, *, scale=None, **unused):
    CALLS.append("flash")
    out, seed = forward(q, k, v, first, longest, p, causal, scale)
    return out, q.new_zeros(q.size(1), len(q)), seed, q.new_zeros(0), q.new_zeros(0)


def flash_backward(gradient, q, k, v, out, _, first, __, ___, ____, p, causal, seed, _____, *, scale=None):
    return backward(gradient, q, k, v, first, p, causal, seed, scale)


def efficient_forward(q, k, v, bias, first, _, longest, __, p, mask, keep=False, *, scale=None, **unused):
    CALLS.append("efficient")
    assert bias is None
    assert len(q) == 1
    assert keep or not q.requires_grad
    out, seed = forward(q[0], k[0], v[0], first, longest, p, bool(mask), scale)
    return out[None], q.new_zeros(0), seed[:1], seed[1:], longest, longest


def efficient_backward(
    gradient, q, k, v, bias, out, first, _, __, ___, ____, p, seed, offset, mask, _____, *, scale=None
):
    grads = backward(gradient[0], q[0], k[0], v[0], first, p, bool(mask), seed, scale)
    return *(grad[None] for grad in grads), torch.Tensor()
