"""Matrix products in int8 for inference on a CPU, by dynamic quantization (Jacob et al. 2018, section 2.3).

Weights are quantized once, symmetrically, with one scale for each output. The input of a product is quantized
when it is computed, with one scale for each token, because a few tokens have elements that are ten times as
large as those of all others (LLM.int8(), Dettmers et al. 2022, section 4). torch has one scale for a whole
tensor only: each token is divided by its largest element before, and its product multiplied by it after. The
smallest and the largest quotient of the batch still set that scale, so logits depend slightly on the other
texts. The products add int8 times uint8 in int32 (oneDNN where torch has it). Embeddings, norms, attention
within sentences and the classification head stay in fp32.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from roberta_small.fairseq_plugin.models.packed import PackedTransformerEncoder

LARGEST = 127
ENGINE = "onednn"
"""On x86, a few percent faster than torch's other kernels."""


class Int8Linear(nn.Module):
    """A linear layer whose product is computed in int8: float32 (..., in) -> float32 (..., out)."""

    def __init__(self, weight_OI: Tensor, bias_O: Tensor) -> None:
        super().__init__()
        largest_O = _largest(weight_OI.detach()).squeeze(1)
        zeros_O = torch.zeros(len(largest_O), dtype=torch.long)
        backend: Any = torch.backends.quantized
        former = backend.engine
        backend.engine = ENGINE if ENGINE in backend.supported_engines else former
        try:
            with warnings.catch_warnings():
                # The kernels take weights of this type only, which torch plans to replace (pytorch#184982).
                warnings.simplefilter("ignore", UserWarning)
                quantized_OI = torch.quantize_per_channel(
                    weight_OI.detach().float(), (largest_O / LARGEST).double(), zeros_O, 0, torch.qint8
                )
                self.packed: Any = torch.ops.quantized.linear_prepack(quantized_OI, None)
        finally:
            backend.engine = former
        self.bias_O = bias_O.detach().float()

    def forward(self, x: Tensor) -> Tensor:
        """The product plus the bias."""
        largest = _largest(x)  # (..., 1)
        # Seven bits of the input, because sums of two products overflow 16 bits on CPUs without VNNI.
        product = torch.ops.quantized.linear_dynamic(x / largest, self.packed, reduce_range=True)
        return product.mul_(largest).add_(self.bias_O)


def _largest(x: Tensor) -> Tensor:
    """The largest absolute value of each row, never 0: (..., in) -> (..., 1)."""
    # Two passes without a copy: faster than those of `abs` and `aminmax`.
    largest = torch.maximum(x.amax(-1, keepdim=True), -x.amin(-1, keepdim=True))
    return largest.clamp_(min=torch.finfo(torch.float32).tiny)


def quantize(encoder: PackedTransformerEncoder) -> None:
    """Replace the linear layers of an encoder on a CPU, in place; it can no longer be trained or saved."""
    for layer in encoder.layers:
        attention = layer.self_attn
        parts = attention.q_proj, attention.k_proj, attention.v_proj
        attention.projection = Int8Linear(
            torch.cat([part.weight for part in parts]), torch.cat([part.bias for part in parts])
        )
        if layer is not encoder.layers[-1]:  # whose single query needs them (`attend_single_query`)
            attention.q_proj = attention.k_proj = attention.v_proj = None
        for parent, name in ((attention, "out_proj"), (layer, "fc1"), (layer, "fc2")):
            linear = getattr(parent, name)
            setattr(parent, name, Int8Linear(linear.weight, linear.bias))
