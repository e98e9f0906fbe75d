"""The arithmetic of int8 products."""

import warnings

import numpy as np
import pytest
import torch

from roberta_small.fairseq_plugin.models.int8 import Int8Linear


@pytest.mark.parametrize("shape", [(5, 16), (2, 3, 16), (1, 16)])
def test_the_product_is_that_of_quantized_numbers(shape):
    torch.manual_seed(1)
    x, weight_OI, bias_O = torch.rand(shape) - 0.3, torch.randn(7, 16), torch.randn(7)
    weight_OI[3] = 0
    # Inputs, divided by the largest of their row: 128 steps from the smallest to the largest quotient, one of
    # which is 0. Weights: 255 steps.
    largest = x.abs().amax(-1, keepdim=True).double().numpy()
    quotients = x.double().numpy() / largest
    low, high = min(0.0, quotients.min()), max(0.0, quotients.max())
    step = (high - low) / 127
    zero = np.clip(np.rint(-low / step), 0, 127)
    x_hat = (np.clip(np.rint(quotients / step) + zero, 0, 127) - zero) * step * largest
    scale_O1 = np.maximum(np.abs(weight_OI.double().numpy()).max(axis=1, keepdims=True), 1e-30) / 127
    weight_hat = np.rint(weight_OI.double().numpy() / scale_O1) * scale_O1
    wanted = x_hat @ weight_hat.T + bias_O.double().numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = Int8Linear(weight_OI, bias_O)(x)
    assert found.shape == (*shape[:-1], 7)
    np.testing.assert_allclose(found.numpy(), wanted, atol=1e-5)
    assert 0 < (found - torch.nn.functional.linear(x, weight_OI, bias_O)).abs().max() < 0.5


def test_a_token_with_large_elements_does_not_change_the_others():
    torch.manual_seed(1)
    x, weight_OI, bias_O = torch.randn(8, 16), torch.randn(7, 16), torch.randn(7)
    with_outlier = torch.cat([x, 1000 * torch.randn(1, 16), torch.zeros(1, 16)])
    linear = Int8Linear(weight_OI, bias_O)
    torch.testing.assert_close(linear(with_outlier)[:8], linear(x), atol=0.05, rtol=0)
    torch.testing.assert_close(linear(with_outlier)[-1], bias_O, atol=1e-6, rtol=0)
