"""`roberta-small export onnx`: a classifier as ONNX graph, in fp32 or int8, compared with PyTorch in logits,
accuracy and speed.

Inputs of the graph are `input_ids` and `attention_mask`, int64 (B, L); its output is `logits`, fp32 (B, K).

N sentences, B in a batch, L tokens, K classes.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from numpy.typing import NDArray
from onnxruntime.quantization import QuantType, quantize_dynamic
from torch import Tensor, nn
from tqdm import tqdm
from transformers import PreTrainedModel

from roberta_small.common.data_folder import dictionary_digest
from roberta_small.common.errors import UserError
from roberta_small.common.families import FAMILIES
from roberta_small.common.label_kinds import KINDS, MULTI_LABEL, REGRESSION
from roberta_small.common.sizes import CPU
from roberta_small.eval.graph import INPUTS, OUTPUT, Metadata
from roberta_small.eval.model import BESIDE, Model, open_model
from roberta_small.eval.network import Checkpoint, Examples, head_weight
from roberta_small.eval.origin import DataFolder, OptionalPath, RunCheckpoint
from roberta_small.eval.texts import Compute, batches, pad
from roberta_small.export.onnx_report import TOLERANCE, Measured
from roberta_small.export.transformers.folder import labels_of, load_folder, output_names, read_carried
from roberta_small.export.transformers.networks import (
    configured_ids,
    converted,
    encoder_config,
    longest_input,
    source_of,
    special_ids,
)
from roberta_small.fairseq_plugin.models.token_types import in_second
from roberta_small.preprocess import dictionary as fairseq_dictionary
from roberta_small.preprocess.dictionary import BOS, EOS, NO_SEPARATOR, PAD, UNK
from roberta_small.preprocess.tokenization.choice import Located, beside
from roberta_small.preprocess.tokenization.transformers_encoder import TransformersEncoder

ATTENTION = "eager"
"""Attention implementation that consists of plain matrix products."""
RANDOM_ROWS = 32
MAX_SENTENCES = 1 << 16
"""Upper limit of the batch size in the graph."""
NOISY_LOGGERS = ("torch.onnx", "onnxscript", "onnx_ir", "root")


@dataclass(frozen=True)
class Classifier:
    """A classifier as a model of Transformers."""

    network: PreTrainedModel
    """In evaluation mode, with eager attention; its ids are those of the dictionary."""
    model: Model
    """Class names, dictionary, tokenizer and data."""

    @property
    def longest(self) -> int:
        """Maximum input length in tokens."""
        return longest_input(encoder_config(self.network))

    @property
    def token_types(self) -> bool:
        """Whether the second text of a pair has a token type of its own."""
        encoder = self.model.encoder if self.model.pairs else None
        return isinstance(encoder, TransformersEncoder) and encoder.has_token_types

    def metadata(self) -> Metadata:
        """What text needs; raises `UserError` with the reason where it cannot be stored in a graph."""
        model, tokenizer = self.model, self.model.tokenizer
        known = (model.labels, model.input_format, model.pairs, model.normalize_apostrophes)
        if isinstance(model.encoder, TransformersEncoder):
            return Metadata(*known, tokenizer=model.encoder.packed())
        assert tokenizer.model is not None
        dictionary = model.dictionary.read_text(encoding="utf-8")
        return Metadata(*known, tokenizer.model.read_bytes(), dictionary)

    def examples(self, data: OptionalPath, split: str) -> Examples | None:
        """A split of `data`, by default of the training data; None if these are not available.

        Raises `UserError` if the data are malformed or were binarized with another dictionary.
        """
        if data is None and not self.model.data.dictionary.is_file():
            return None
        return self.model.examples(split, data)


def open_classifier(path: str | os.PathLike[str]) -> Classifier:
    """The classifier of a run folder, a checkpoint or a from_pretrained folder.

    Raises `UserError` for any other path, and for a masked language model.
    """
    if (Path(path) / "config.json").is_file():
        folder = Path(path)
        loaded = load_folder(folder, attention=ATTENTION)
        if not loaded.is_classifier:
            raise UserError(f"{folder}: a masked language model, not a classifier; fine-tune it first")
        given = FolderModel(RunCheckpoint(folder / "config.json", None, None), transformers=loaded.model)
        if given.located is not None:
            _reorder(loaded.model, given.encoder.order)
        return Classifier(loaded.model, given)
    model = open_model(path)
    network = converted(
        source_of(model.checkpoint), output_names(model.labels), special_ids(model.input_format)
    )
    network.set_attn_implementation(ATTENTION)
    return Classifier(network, model)


def _reorder(network: PreTrainedModel, order: NDArray[np.int64]) -> None:
    """Bring the token embeddings into the order of fairseq's dictionary."""
    embeddings: Any = network.get_input_embeddings()
    embeddings.weight = nn.Parameter(embeddings.weight.detach()[torch.from_numpy(order)])
    config = encoder_config(network)
    embeddings.padding_idx = config.pad_token_id = PAD
    embeddings.num_embeddings = config.vocab_size = len(order)


@dataclass(frozen=True, kw_only=True)
class FolderModel(Model):
    """The classifier of a from_pretrained folder, whose data are not recorded. It reads single texts."""

    transformers: PreTrainedModel

    @cached_property
    def located(self) -> Located | None:
        """The tokenizer of Transformers in the folder."""
        found = beside(self.run.folder)
        return found if found is not None and found.transformers else None

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The settings of fairseq's task, which determine the input format; of the weights, only the head."""
        folder, network = self.run.folder, self.transformers
        carried, labels = read_carried(folder), labels_of(network)
        init, separator = configured_ids(encoder_config(network))
        if self.located is not None:
            encoder = self.encoder
            init = encoder.init_token
            separator = encoder.separator_token if encoder.separates_pairs else NO_SEPARATOR
        head = carried.head or "sentence_classification_head"
        settings = {
            "_name": "sentence_classification",
            "classification_head_name": head,
            "init_token": init,
            "separator_token": separator,
            "max_positions": longest_input(encoder_config(network)),
            "shorten_method": carried.task.get("shorten_method", "truncate"),
            "keep_eos": carried.task.get("keep_eos", True),
            "seed": 1,
            "multi_label": labels.kind is KINDS[MULTI_LABEL],
            "regression_target": labels.kind is KINDS[REGRESSION],
        }
        kind = network.config.model_type
        output = FAMILIES[kind].head[1] if kind in FAMILIES else "out_proj"
        weights: dict[str, Tensor] = {head_weight(head): network.get_parameter(f"{output}.weight")}
        arguments = argparse.Namespace(arch="roberta_small")
        names, digest = list(labels.classes), self._digest()
        return Checkpoint(folder, arguments, settings, weights, digest, names, scaling=labels.scaling)

    @cached_property
    def data(self) -> DataFolder:
        """None is recorded."""
        return DataFolder(self.run.folder)

    @cached_property
    def tokenizer(self) -> Located:
        """Its files; raises `UserError` if there are none."""
        if self.located is None:
            raise UserError(f"{self.run.folder}: no tokenizer of Transformers beside the model")
        return self.located

    @cached_property
    def encoder(self) -> TransformersEncoder:
        """The tokenizer of Transformers, with the ids of the graph."""
        return self.tokenizer.transformers_encoder()

    def examples(self, split: str, data: OptionalPath = None) -> Examples:
        """The examples of a split of the folder `data`.

        Raises `UserError` as a run does, and for pairs whose second text has a token type of its own.
        """
        given = None if data is None else DataFolder.given(data)
        if given is not None and given.pairs and self.located is not None and self.encoder.has_token_types:
            raise UserError(
                f"{given.path}: sentence pairs, but the graph of {self.run.folder} reads single texts; omit "
                "--data, or fine-tune the folder with `roberta-small train` and export that run"
            )
        return super().examples(split, data)

    def find_dictionary(self, data: DataFolder) -> Path:
        """The dictionary of `data`; raises `UserError` unless it is the one in the folder."""
        if self.checkpoint.dictionary_sha256 is None:
            raise UserError(
                f"{self.run.folder / BESIDE}: no such file; --data requires this dictionary of the model"
            )
        return super().find_dictionary(data)

    def _digest(self) -> str | None:
        if self.located is not None:
            return dictionary_digest(self.encoder.dictionary.with_mask().symbols)
        path = self.run.folder / BESIDE
        if not path.is_file():
            return None
        return dictionary_digest(fairseq_dictionary.load(str(path)).with_mask().symbols)


def export(
    classifier: Classifier, rows: Sequence[NDArray[np.int64]], *, int8: bool, metadata: Metadata | None = None
) -> tuple[list[Measured], bytes]:
    """Export the classifier; measure PyTorch, ONNX and, with `int8`, the quantized graph on the rows.

    `metadata` is what text needs. Returns the measurements and the content of the file. Raises `UserError` if
    a logit of the fp32 graph differs from PyTorch's by more than TOLERANCE.
    """
    network = Logits(classifier)

    def by_torch(ids_BL: NDArray[np.int64]) -> NDArray[np.float32]:
        ids = torch.from_numpy(ids_BL)
        with torch.inference_mode():
            return network(ids, (ids != PAD).long()).numpy()

    graph = to_onnx(classifier, metadata.to_text() if metadata else {})
    content = graph.SerializeToString()
    torch_fp32 = measure("torch, fp32", by_torch, rows, None)
    onnx_fp32 = measure("ONNX, fp32", Session(graph), rows, content)
    difference = float(np.abs(torch_fp32.logits - onnx_fp32.logits).max())
    if not difference <= TOLERANCE:
        raise UserError(f"the graph's logits differ from torch's by {difference:.1e}; nothing was written")
    if not int8:
        return [torch_fp32, onnx_fp32], content
    quantized = to_int8(graph)
    content = quantized.SerializeToString()
    return [torch_fp32, onnx_fp32, measure("ONNX, int8", Session(quantized), rows, content)], content


class Logits(nn.Module):
    """The model with tensors as arguments and result, for the exporter."""

    def __init__(self, classifier: Classifier) -> None:
        super().__init__()
        self.model = classifier.network
        self.token_types = classifier.token_types

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """`input_ids` and `attention_mask`, int64 (B, L) -> logits (B, K)."""
        types = {"token_type_ids": in_second(input_ids, EOS).long()} if self.token_types else {}
        return self.model(input_ids=input_ids, attention_mask=attention_mask, **types).logits


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
            Logits(classifier).eval(),
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


def measure(
    name: str, network: Compute, rows: Sequence[NDArray[np.int64]], content: bytes | None
) -> Measured:
    """Run the network on all rows in batches of similar length; the time excludes a warm-up batch."""
    lengths = np.array([len(row) for row in rows])
    parts = [(batch, pad([rows[i] for i in batch], PAD)) for batch in batches(lengths, CPU.prediction_tokens)]
    classes = network(parts[-1][1]).shape[1]
    logits_NK = np.empty((len(rows), classes), dtype=np.float32)
    start = time.perf_counter()
    for batch, ids_BL in tqdm(parts, desc=name, leave=False, disable=None):
        logits_NK[batch] = network(ids_BL)
    seconds = time.perf_counter() - start
    return Measured(name, logits_NK, seconds, None if content is None else len(content) / 1e6)


def random_rows(classifier: Classifier) -> list[NDArray[np.int64]]:
    """Rows of random ids, from 2 tokens to the maximum length, for a comparison without data."""
    rng = np.random.default_rng(1)
    lengths = [classifier.longest, 2, *rng.integers(2, classifier.longest + 1, RANDOM_ROWS - 2)]
    vocabulary = encoder_config(classifier.network).vocab_size
    first, _ = special_ids(classifier.model.input_format)
    return [np.concatenate([[first], rng.integers(UNK, vocabulary, length - 1)]) for length in lengths]


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
