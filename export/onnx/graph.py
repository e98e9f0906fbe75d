"""Export a classifier to an ONNX graph, quantize the graph to int8, and run it.

Inputs `input_ids` and `attention_mask`, int64 (B, L); output `logits`, fp32 (B, K), for B sentences, L tokens
and K classes.
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

from roberta_small.eval.graph import INPUTS, OUTPUT
from roberta_small.export.transformers.roberta import BOS, PAD

MAX_SENTENCES = 1 << 16
"""Upper limit of the batch size in the graph."""
NOISY_LOGGERS = ("torch.onnx", "onnxscript", "onnx_ir", "root")


class Logits(nn.Module):
    """The model with tensors as arguments and result, for the exporter."""

    def __init__(self, model: RobertaForSequenceClassification) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """`input_ids` and `attention_mask`, int64 (B, L) -> logits (B, K)."""
        return self.model(input_ids=input_ids, attention_mask=attention_mask).logits


def to_onnx(
    model: RobertaForSequenceClassification, classes: list[str], longest: int, metadata: dict[str, str]
) -> onnx.ModelProto:
    """The graph with dynamic axes; `classes`, `longest` (in tokens) and `metadata` are stored as metadata."""
    # An example of two sentences, because the exporter treats an axis of length 1 as constant.
    ids_BL = torch.full((2, 3), BOS)
    ids_BL[1, 2] = PAD
    axes = {0: torch.export.Dim("batch", max=MAX_SENTENCES), 1: torch.export.Dim("length", max=longest)}
    with _silence(), torch.no_grad():
        program = torch.onnx.export(
            Logits(model).eval(),
            (ids_BL, (ids_BL != PAD).long()),
            dynamo=True,
            verbose=False,
            input_names=list(INPUTS),
            output_names=[OUTPUT],
            dynamic_shapes=dict.fromkeys(INPUTS, axes),
        )
    graph = program.model_proto
    onnx.helper.set_model_props(graph, {"classes": json.dumps(classes), "longest": str(longest)} | metadata)
    return graph


def to_int8(graph: onnx.ModelProto) -> onnx.ModelProto:
    """Quantize weights of linear layers and embeddings to 8 bits per channel; activations dynamically."""
    # Unsigned, because products of an unsigned and a signed byte saturate on processors without VNNI, which
    # would change the logits there (ONNX Runtime, "Quantize ONNX models", when to use reduce_range).
    copy = onnx.ModelProto()
    copy.CopyFrom(graph)
    # The exporter records the shapes of its example, which contradict dynamic axes.
    del copy.graph.value_info[:]
    with tempfile.TemporaryDirectory() as folder, _silence():
        path = Path(folder) / "int8.onnx"
        quantize_dynamic(copy, path, weight_type=QuantType.QUInt8, per_channel=True)
        return onnx.load(path)


class Session:
    """An ONNX Runtime session of a graph, on the CPU."""

    def __init__(self, graph: onnx.ModelProto) -> None:
        self.session = onnxruntime.InferenceSession(
            graph.SerializeToString(), providers=["CPUExecutionProvider"]
        )

    def __call__(self, ids_BL: NDArray[np.int64]) -> NDArray[np.float32]:
        """(B, L) padded ids -> (B, K) logits."""
        feed = dict(zip(INPUTS, (ids_BL, (ids_BL != PAD).astype(np.int64)), strict=True))
        return self.session.run([OUTPUT], feed)[0]


@contextmanager
def _silence() -> Iterator[None]:
    """Suppress warnings and log messages of the exporter and the quantizer."""
    levels = {name: logging.getLogger(name).level for name in NOISY_LOGGERS}
    for name in NOISY_LOGGERS:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
