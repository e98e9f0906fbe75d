"""`export`: the ONNX graph of a classifier, checked against torch and measured beside it.

N sentences, B of them in a batch, L tokens, K classes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from common.errors import UserError
from eval.batching import batches, pad

from .classifier import Classifier
from .config import BOS, PAD, UNK
from .onnx_graph import Logits, Session, to_int8, to_onnx

TOLERANCE = 1e-4
MAX_TOKENS = 4096
RANDOM_ROWS = 32

Answer = Callable[[NDArray[np.int64]], NDArray[np.float32]]
"""(B, L) padded ids -> (B, K) logits."""


@dataclass(frozen=True)
class Measured:
    """What one form of the classifier says of N sentences."""

    name: str
    logits: NDArray[np.float32]
    """(N, K)."""
    seconds: float
    megabytes: float | None
    """Of the file; None where there is none."""


def export(
    classifier: Classifier, rows: Sequence[NDArray[np.int64]], *, int8: bool
) -> tuple[list[Measured], bytes]:
    """The file's content, and torch, ONNX and (with `int8`) the quantized graph measured on the rows.

    Raises `UserError` where the graph's logits are further from torch's than TOLERANCE.
    """
    network = Logits(classifier.model)

    def by_torch(ids_BL: NDArray[np.int64]) -> NDArray[np.float32]:
        ids = torch.from_numpy(ids_BL)
        with torch.inference_mode():
            return network(ids, (ids != PAD).long()).numpy()

    graph = to_onnx(classifier.model, classifier.classes, classifier.longest)
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


def measure(name: str, answer: Answer, rows: Sequence[NDArray[np.int64]], content: bytes | None) -> Measured:
    """Answer all rows in batches of similar length; the clock begins after one batch has warmed up."""
    lengths = np.array([len(row) for row in rows])
    parts = [(batch, pad([rows[i] for i in batch], PAD)) for batch in batches(lengths, MAX_TOKENS)]
    classes = answer(parts[-1][1]).shape[1]
    logits_NK = np.empty((len(rows), classes), dtype=np.float32)
    start = time.perf_counter()
    for batch, ids_BL in tqdm(parts, desc=name, leave=False, disable=None):
        logits_NK[batch] = answer(ids_BL)
    seconds = time.perf_counter() - start
    return Measured(name, logits_NK, seconds, None if content is None else len(content) / 1e6)


def random_rows(classifier: Classifier) -> list[NDArray[np.int64]]:
    """Rows of all lengths for a check without data."""
    rng = np.random.default_rng(1)
    lengths = [classifier.longest, 2, *rng.integers(2, classifier.longest + 1, RANDOM_ROWS - 2)]
    types = classifier.model.config.vocab_size
    return [np.concatenate([[BOS], rng.integers(UNK, types, length - 1)]) for length in lengths]
