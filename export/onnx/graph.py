"""A classifier as an ONNX graph, in fp32 and quantized to int8, and the session that runs it.

B sentences, L tokens, K classes. Inputs `input_ids` and `attention_mask`, int64 (B, L); output `logits`, fp32
(B, K).
"""

from __future__ import annotations

import json
import logging
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from numpy.typing import NDArray
from onnxruntime.quantization import QuantType, quantize_dynamic
from torch import Tensor, nn
from transformers import RobertaForSequenceClassification

from ..transformers.config import BOS, PAD

INPUTS = ("input_ids", "attention_mask")
MOST_SENTENCES = 1 << 16
NOISY = ("torch.onnx", "onnxscript", "onnx_ir", "root")


class Logits(nn.Module):
    """The model with tensors going in and one coming out, as a graph has it."""

    def __init__(self, model: RobertaForSequenceClassification) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """(B, L) int64, twice -> (B, K)."""
        return self.model(input_ids=input_ids, attention_mask=attention_mask).logits


def to_onnx(model: RobertaForSequenceClassification, classes: list[str], longest: int) -> onnx.ModelProto:
    """The graph, both axes dynamic; it carries `classes` and `longest` (tokens) as metadata."""
    # Two sentences, one padded: an axis of length 1 would be taken for constant.
    ids_BL = torch.full((2, 3), BOS)
    ids_BL[1, 2] = PAD
    axes = {0: torch.export.Dim("batch", max=MOST_SENTENCES), 1: torch.export.Dim("length", max=longest)}
    with _silence(), torch.no_grad():
        program = torch.onnx.export(
            Logits(model).eval(),
            (ids_BL, (ids_BL != PAD).long()),
            dynamo=True,
            verbose=False,
            input_names=list(INPUTS),
            output_names=["logits"],
            dynamic_shapes=dict.fromkeys(INPUTS, axes),
        )
    graph = program.model_proto
    onnx.helper.set_model_props(graph, {"classes": json.dumps(classes), "longest": str(longest)})
    return graph


def to_int8(graph: onnx.ModelProto) -> onnx.ModelProto:
    """Weights of products and embeddings in 8 bits, a scale for each output; activations as they come."""
    # Unsigned, because products of an unsigned and a signed byte saturate on processors without VNNI, and the
    # same file would answer otherwise there (ONNX Runtime, "Quantize ONNX models", when to use reduce_range).
    copy = onnx.ModelProto()
    copy.CopyFrom(graph)
    # The exporter's notes on shapes are those of its example, which onnx takes for contradictions.
    del copy.graph.value_info[:]
    with tempfile.TemporaryDirectory() as folder, _silence():
        path = Path(folder) / "int8.onnx"
        quantize_dynamic(copy, path, weight_type=QuantType.QUInt8, per_channel=True)
        return onnx.load(path)


class Session:
    """A graph ready to answer, on the CPU."""

    def __init__(self, graph: onnx.ModelProto) -> None:
        self.session = onnxruntime.InferenceSession(
            graph.SerializeToString(), providers=["CPUExecutionProvider"]
        )

    def __call__(self, ids_BL: NDArray[np.int64]) -> NDArray[np.float32]:
        """(B, L) padded ids -> (B, K) logits."""
        feed = {"input_ids": ids_BL, "attention_mask": (ids_BL != PAD).astype(np.int64)}
        return self.session.run(["logits"], feed)[0]


@contextmanager
def _silence() -> Iterator[None]:
    """Keep what the exporter and the quantizer say about themselves from the user's terminal."""
    levels = {name: logging.getLogger(name).level for name in NOISY}
    for name in NOISY:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
