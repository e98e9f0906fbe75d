"""The arithmetic of int8 products."""

import warnings

import numpy as np
import pytest
import torch

from roberta_small.fairseq_plugin.models.int8 import Int8Linear


@pytest.mark.parametrize("shape", [(5, 16), (2, 3, 16), (1, 16)])
def test_the_product_is_that_of_quantized_numbers(shape):
    torch.manual_seed(1)
    x, weight_OI, bias_O = torch.randn(shape), torch.randn(7, 16), torch.randn(7)
    weight_OI[3] = 0
    # Inputs: 128 steps from the smallest to the largest element, one of which is 0. Weights: 255 steps.
    low, high = min(0.0, float(x.min())), max(0.0, float(x.max()))
    step = (high - low) / 127
    zero = np.clip(np.rint(-low / step), 0, 127)
    x_hat = (np.clip(np.rint(x.double().numpy() / step) + zero, 0, 127) - zero) * step
    scale_O1 = np.maximum(np.abs(weight_OI.double().numpy()).max(axis=1, keepdims=True), 1e-30) / 127
    weight_hat = np.rint(weight_OI.double().numpy() / scale_O1) * scale_O1
    wanted = x_hat @ weight_hat.T + bias_O.double().numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = Int8Linear(weight_OI, bias_O)(x)
    assert found.shape == (*shape[:-1], 7)
    np.testing.assert_allclose(found.numpy(), wanted, atol=1e-5)
    assert 0 < (found - torch.nn.functional.linear(x, weight_OI, bias_O)).abs().max() < 0.5
