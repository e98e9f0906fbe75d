"""Dropout from bulk random bits."""

import pytest
import torch

from fairseq_plugin.models.attention import dropout, keep_mask

SIZE = torch.Size([300, 333])


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_drops_the_share_asked_for_and_keeps_the_mean(p):
    torch.manual_seed(0)
    mask, scale = keep_mask(SIZE, p)
    assert set(mask.unique().tolist()) == {0.0, 1.0}
    kept = mask.float().mean().item()
    # Five standard deviations of a binomial share.
    assert kept == pytest.approx(1 - p, abs=5 * (p * (1 - p) / SIZE.numel()) ** 0.5 + 1e-4)
    assert scale == pytest.approx(1 / (1 - p), rel=1e-3)


def test_decisions_are_independent_of_their_neighbours():
    """The four decisions of one draw among them."""
    torch.manual_seed(0)
    kept = keep_mask(SIZE, 0.3)[0].float().flatten() - 0.7
    for distance in (1, 2, 3, 4, 5):
        correlation = (kept[:-distance] * kept[distance:]).mean() / kept.var()
        assert abs(correlation) < 5 / SIZE.numel() ** 0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradient_flows_where_values_were_kept(dtype):
    torch.manual_seed(0)
    x = torch.randn(SIZE, dtype=dtype, requires_grad=True)
    y = dropout(x, 0.25)
    y.sum().backward()
    assert y.dtype == x.grad.dtype == dtype
    assert torch.equal(y == 0, x.grad == 0)
    torch.testing.assert_close(y, x * x.grad)
    torch.testing.assert_close(x.grad.max().item(), 4 / 3, rtol=5e-3, atol=0)


def test_a_seed_gives_a_mask():
    first, second, third = (torch.manual_seed(s) and keep_mask(SIZE, 0.1)[0] for s in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, third)


def test_nothing_to_drop_and_everything():
    x = torch.randn(7)
    assert dropout(x, 0.5, training=False) is x
    assert dropout(x, 0.0) is x
    assert torch.equal(dropout(x, 1.0), torch.zeros(7))
