"""`roberta-small export onnx`: a classifier as ONNX graph, in fp32 or int8, compared with PyTorch.

Inputs of the graph are `input_ids` and `attention_mask`, int64 (B, L); its output is `logits`, fp32 (B, K).

N sentences, B in a batch, L tokens, K classes.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from numpy.typing import NDArray
from onnxruntime.quantization import QuantType, quantize_dynamic
from torch import Tensor, nn
from transformers import PreTrainedModel

from roberta_small.common.errors import UserError
from roberta_small.common.hardware import CPU
from roberta_small.common.label_kinds import Labels, Targets
from roberta_small.common.metrics import label, metrics_of, number, scored
from roberta_small.common.tables import markdown
from roberta_small.eval.graph import INPUTS, OUTPUT, Metadata, computation
from roberta_small.eval.model import Model, open_model
from roberta_small.eval.texts import Compute, logits_of
from roberta_small.export.transformers.networks import (
    converted,
    encoder_config,
    longest_input,
    source_of,
    special_ids,
)
from roberta_small.export.transformers.verify import random_rows
from roberta_small.fairseq_plugin.models.packed import in_second
from roberta_small.preprocess.dictionary import BOS, EOS, PAD
from roberta_small.preprocess.tokenization.transformers_encoder import TransformersEncoder

ATTENTION = "eager"
"""Attention implementation that consists of plain matrix products."""
TORCH = "torch, fp32"
TOLERANCE = 1e-4
"""Largest accepted difference of a logit between ONNX and PyTorch in fp32."""
RANDOM_ROWS = 32
MAX_SENTENCES = 1 << 16
"""Upper limit of the batch size in the graph."""


class Classifier(nn.Module):
    """A classifier as a model of Transformers, with tensors as arguments and result, for the exporter.

    Attributes:
        network: in evaluation mode, with eager attention; its ids are those of the dictionary.
        model: class names, dictionary, tokenizer and data.
        longest: maximum input length in tokens.
        token_types: whether the second text of a pair has a token type of its own.
    """

    def __init__(self, network: PreTrainedModel, model: Model) -> None:
        super().__init__()
        self.network, self.model = network.eval(), model
        self.longest = longest_input(encoder_config(network))
        encoder = model.encoder if model.pairs else None
        self.token_types = isinstance(encoder, TransformersEncoder) and encoder.has_token_types

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """`input_ids` and `attention_mask`, int64 (B, L) -> logits (B, K)."""
        types = {"token_type_ids": in_second(input_ids, EOS).long()} if self.token_types else {}
        return self.network(input_ids=input_ids, attention_mask=attention_mask, **types).logits

    def example_rows(self) -> list[NDArray[np.int64]]:
        """Rows of random ids, for a comparison without data."""
        vocabulary = encoder_config(self.network).vocab_size
        first, _ = special_ids(self.model.input_format)
        return random_rows(RANDOM_ROWS, self.longest, vocabulary, first, pairs=self.token_types)

    def metadata(self) -> Metadata:
        """What text needs; raises `UserError` if there is no tokenizer."""
        model, tokenizer = self.model, self.model.tokenizer
        known = (model.labels, model.input_format, model.pairs, model.normalize_apostrophes)
        recorded: dict[str, Any] = {"columns": model.columns, "checkpoint": model.origin}
        if isinstance(model.encoder, TransformersEncoder):
            return Metadata(*known, **recorded, tokenizer=model.encoder.packed())
        assert tokenizer.model is not None
        dictionary = model.dictionary.read_text(encoding="utf-8")
        return Metadata(*known, tokenizer.model.read_bytes(), dictionary, **recorded)


def open_classifier(path: str | os.PathLike[str]) -> Classifier:
    """The classifier of a run folder or a checkpoint; raises `UserError` for anything else."""
    if (Path(path) / "config.json").is_file():
        raise UserError(
            f"{path}: a folder of Transformers; convert it to a checkpoint with roberta-small export fairseq"
        )
    model = open_model(path)
    network = converted(source_of(model.checkpoint), model.labels, special_ids(model.input_format))
    network.set_attn_implementation(ATTENTION)
    return Classifier(network, model)


def export(
    classifier: Classifier, rows: Sequence[NDArray[np.int64]], *, int8: bool, metadata: Metadata | None = None
) -> tuple[dict[str, NDArray[np.float32]], bytes]:
    """Export the classifier; run PyTorch, ONNX and, with `int8`, the quantized graph on the rows.

    `metadata` is what text needs. Returns the logits (N, K) by name, and the content of the file. Raises
    `UserError` if a logit of the fp32 graph differs from PyTorch's by more than TOLERANCE.
    """

    def by_torch(ids_BL: NDArray[np.int64]) -> NDArray[np.float32]:
        ids = torch.from_numpy(ids_BL)
        with torch.inference_mode():
            return classifier(ids, (ids != PAD).long()).numpy()

    def computed(name: str, compute: Compute) -> NDArray[np.float32]:
        size = classifier.model.labels.size
        return logits_of(rows, compute, size, max_tokens=CPU.prediction_tokens, progress=name)

    graph = to_onnx(classifier, metadata.to_text() if metadata else {})
    logits = {TORCH: computed(TORCH, by_torch), "ONNX, fp32": computed("ONNX", opened(graph))}
    difference = float(np.abs(logits["ONNX, fp32"] - logits[TORCH]).max())
    if not difference <= TOLERANCE:
        raise UserError(f"the graph's logits differ from torch's by {difference:.1e}; nothing was written")
    if int8:
        graph = to_int8(graph)
        logits["ONNX, int8"] = computed("ONNX, int8", opened(graph))
    return logits, graph.SerializeToString()


def table(logits: Mapping[str, NDArray[np.float32]], targets: Targets | None, labels: Labels) -> str:
    """Largest difference from PyTorch's logits and, with `targets`, the metric of the kind of labels."""
    name = labels.kind.metric
    metric = metrics_of(labels.kind.name)[name]
    rows = []
    for form, logits_NK in logits.items():
        row = [form, f"{np.abs(logits_NK - logits[TORCH]).max():.1e}"]
        if targets is not None:
            outputs = scored(labels, targets, labels.outputs(logits_NK))
            row.append(number(float(metric.measure(outputs, np.ones((1, len(targets))))[0]), name))
        rows.append(row)
    return markdown(["", "largest difference of a logit", *([] if targets is None else [label(name)])], rows)


def to_onnx(classifier: Classifier, metadata: dict[str, str]) -> onnx.ModelProto:
    """The graph with dynamic axes; class names and maximum length in tokens are added to the metadata."""
    # An example of two sentences, because the exporter treats an axis of length 1 as constant.
    ids_BL = torch.full((2, 3), BOS)
    ids_BL[1, 2] = PAD
    axes = {
        0: torch.export.Dim("batch", max=MAX_SENTENCES),
        1: torch.export.Dim("length", max=classifier.longest),
    }
    with _silence(), torch.no_grad():
        program = torch.onnx.export(
            classifier.eval(),
            (ids_BL, (ids_BL != PAD).long()),
            dynamo=True,
            verbose=False,
            input_names=list(INPUTS),
            output_names=[OUTPUT],
            dynamic_shapes=dict.fromkeys(INPUTS, axes),
        )
    assert program is not None  # with dynamo
    graph = program.model_proto
    known = {"classes": json.dumps(classifier.model.classes), "longest": str(classifier.longest)}
    onnx.helper.set_model_props(graph, known | metadata)
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


def opened(graph: onnx.ModelProto) -> Compute:
    """The function of a graph, on the CPU."""
    providers = ["CPUExecutionProvider"]
    return computation(onnxruntime.InferenceSession(graph.SerializeToString(), providers=providers))


@contextmanager
def _silence() -> Iterator[None]:
    """Suppress warnings and log messages of the exporter and the quantizer."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
