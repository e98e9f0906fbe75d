"""Attention of a GPU against that of a CPU (which test_generated_sizes.py checks); bulk random bits."""

import pytest
import scipy.stats
import torch

from roberta_small.fairseq_plugin.models import attention
from roberta_small.fairseq_plugin.models.attention import attend
from roberta_small.fairseq_plugin.models.dropout import COLUMNS, DROPOUT_LEVELS, keep_mask, random_bits

HEADS, SIZE = 3, 8
WIDTH = HEADS * SIZE
LENGTHS = (5, 1, 20, 16, 33)
PADDING = 9


@pytest.fixture(params=["flash", "efficient"])
def kernel(request, gpu_path, monkeypatch):
    """One of the kernels of a GPU, whatever the dtype."""
    monkeypatch.setattr(attention, "uses_flash", lambda qkv: request.param == "flash")
    return request.param


@pytest.mark.parametrize(
    ("dtype", "causal", "size", "lengths"),
    [
        (torch.float32, False, 4, (5, 0, 20, 1, 0)),
        (torch.float32, True, 12, (5, 0, 20, 1, 0)),
        (torch.float64, True, 64, (17, 3)),
        (torch.float64, False, 12, (1,)),
    ],
)
def test_the_kernels_of_a_gpu_give_the_values_and_gradients_of_a_cpu(
    kernel, gpu_path, monkeypatch, dtype, causal, size, lengths
):
    """Also for head sizes that the kernels do not have, padding and empty sentences."""
    torch.manual_seed(0)
    tokens = sum(lengths)
    qkv_TE = torch.randn(tokens + PADDING, 3 * HEADS * size, dtype=dtype, requires_grad=True)
    gradient_TC = torch.randn(tokens, HEADS * size, dtype=dtype)
    found = []
    for one_by_one in (False, True):
        monkeypatch.setattr(attention, "one_by_one", lambda x, value=one_by_one: value)
        out_TC = attend(qkv_TE, lengths, HEADS, 0.0, causal=causal)
        assert out_TC.isfinite().all()
        found.append([out_TC[:tokens], *torch.autograd.grad(out_TC[:tokens], qkv_TE, gradient_TC)])
    assert gpu_path == [kernel]
    for one, other in zip(*found, strict=True):
        # The CPU's softmax is in fp32 for every dtype.
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert not found[0][1][tokens:].any()


def test_dropout_of_a_gpu_keeps_the_mean_and_its_gradient_uses_the_same_mask(kernel):
    torch.manual_seed(0)
    x_TE = torch.randn(9, 3 * WIDTH, dtype=torch.float64, requires_grad=True)
    direction_TE = torch.randn_like(x_TE)

    def dropped(x_TE, seed=3):
        torch.manual_seed(seed)
        return attend(x_TE, (4, 5), HEADS, 0.4)

    (slope_TE,) = torch.autograd.grad(dropped(x_TE).sum(), x_TE)
    with torch.no_grad():
        step = 1e-5 * direction_TE
        rise = (dropped(x_TE + step).sum() - dropped(x_TE - step).sum()) / 2e-5
        mean_TC = torch.stack([dropped(x_TE, seed) for seed in range(40)]).mean(0)
        torch.testing.assert_close(mean_TC.mean(), attend(x_TE, (4, 5), HEADS, 0.0).mean(), rtol=0, atol=0.05)
    torch.testing.assert_close(rise, (slope_TE * direction_TE).sum(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("dtype", "size", "ampere", "expected"),
    [
        (torch.bfloat16, 64, True, "flash"),
        (torch.float16, 12, True, "flash"),
        (torch.bfloat16, 64, False, "efficient"),
        (torch.bfloat16, 200, True, "efficient"),
        (torch.float32, 64, True, "efficient"),
    ],
)
def test_the_kernel_depends_on_dtype_head_size_and_gpu(gpu_path, monkeypatch, dtype, size, ampere, expected):
    monkeypatch.setattr(attention, "_has_flash", lambda device: ampere)
    out_TC = attend(torch.randn(5, 3 * 2 * size).to(dtype), (2, 3), 2, 0.1)
    assert gpu_path == [expected]
    assert out_TC.dtype == dtype


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", [4, 12, 64])
def test_attention_on_cuda_equals_that_on_a_cpu(dtype, causal, size):
    torch.manual_seed(0)
    x_TE = torch.randn(sum(LENGTHS) + PADDING, 3 * HEADS * size).to(dtype).float()
    gradient_TC = torch.randn(sum(LENGTHS), HEADS * size).to(dtype).float()
    found = []
    for device, of in (("cpu", torch.float32), ("cuda", dtype)):
        qkv_TE = x_TE.to(device, of).requires_grad_()
        out_TC = attend(qkv_TE, LENGTHS, HEADS, 0.0, causal=causal)
        (grad_TE,) = torch.autograd.grad(out_TC[: sum(LENGTHS)], qkv_TE, gradient_TC.to(device, of))
        attend(qkv_TE, LENGTHS, HEADS, 0.1, causal=causal).sum().backward()
        assert qkv_TE.grad.isfinite().all()
        found.append([x.float().cpu() for x in (out_TC[: sum(LENGTHS)].detach(), grad_TE)])
    near = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 0.05, "atol": 0.05}
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, **near)


MASK_SHAPE = torch.Size([300, 333])


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_dropout_drops_the_given_fraction_and_preserves_the_mean(p):
    torch.manual_seed(0)
    mask, scale = keep_mask(MASK_SHAPE, p)
    assert mask.dtype == torch.int16
    assert set(mask.unique().tolist()) == {0, -1}  # no bits, all bits
    kept = mask.bool().float().mean().item()
    # Five standard deviations of a binomial proportion.
    assert kept == pytest.approx(1 - p, abs=5 * (p * (1 - p) / MASK_SHAPE.numel()) ** 0.5 + 1e-4)
    assert scale == pytest.approx(1 / (1 - p), rel=1e-3)
    with pytest.raises(ValueError, match=str(1 + p)):
        keep_mask(MASK_SHAPE, 1 + p)


def test_dropout_masks_have_the_statistics_of_independent_elements():
    """The mask as a matrix with a row for each row of numbers in `random_bits`, and one that torch draws.

    The elements of a row have a drawn number in common, and so have those of a column.
    """
    torch.manual_seed(0)
    p, shape = 0.1, torch.Size([1024, 2 * COLUMNS])
    ours, control = (
        (kept.float() - (1 - p)) / (p * (1 - p)) ** 0.5
        for kept in (keep_mask(shape, p)[0].bool(), torch.rand(shape) >= p)
    )
    for distance in (1, 2, 3, 4, COLUMNS, 2 * COLUMNS):
        z = ours.flatten()
        assert abs(float((z[:-distance] * z[distance:]).sum())) < 5 * z.numel() ** 0.5
    for z_RC, control_RC in ((ours, control), (ours.T, control.T)):
        squares_R = z_RC.sum(1) ** 2 / z_RC.size(1)
        assert squares_R.mean().item() == pytest.approx(1.0, abs=5 * (2 / len(squares_R)) ** 0.5)
        assert largest_correlation(z_RC) == pytest.approx(largest_correlation(control_RC), rel=0.2)
    norms = [torch.linalg.matrix_norm(z_RC, 2).item() for z_RC in (ours, control)]
    assert norms[0] == pytest.approx(norms[1], rel=0.02)  # no part of low rank


def largest_correlation(z_RC: torch.Tensor) -> float:
    """The largest correlation of two rows, in standard deviations."""
    products_RR = z_RC @ z_RC.T / z_RC.size(1) ** 0.5
    return float(products_RR.fill_diagonal_(0.0).abs().max())


def test_all_values_of_the_random_bits_are_equally_frequent():
    torch.manual_seed(0)
    values = random_bits(1 << 20) & (DROPOUT_LEVELS - 1)
    for part in (values[0::2], values[1::2]):  # the lower and the upper half of each hash
        counts = torch.bincount(part.int(), minlength=DROPOUT_LEVELS)
        assert scipy.stats.chisquare(counts.numpy()).pvalue > 1e-4
