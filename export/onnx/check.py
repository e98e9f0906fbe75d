"""`python -m export onnx`: a classifier in ONNX, compared with PyTorch in logits, accuracy and speed.

N sentences, B in a batch, L tokens, K classes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from roberta_small.analysis.predictions import WILSON, examples_interval, mcnemar
from roberta_small.common.errors import UserError
from roberta_small.common.statistics import DRAWS, LEVEL, SEED
from roberta_small.common.tables import markdown
from roberta_small.eval.batches import MAX_TOKENS, Compute, batches, pad
from roberta_small.eval.graph import Metadata
from roberta_small.export.classifier import Classifier
from roberta_small.export.onnx.graph import Logits, Session, to_int8, to_onnx
from roberta_small.export.transformers.roberta import PAD, UNK, special_ids

TOLERANCE = 1e-4
"""Largest accepted difference of a logit between ONNX and PyTorch in fp32."""
RANDOM_ROWS = 32


@dataclass(frozen=True)
class Measured:
    """Logits, time and size of one form of the classifier on N sentences."""

    name: str
    logits: NDArray[np.float32]
    """(N, K)."""
    seconds: float
    megabytes: float | None
    """Size of the file; None for PyTorch."""


def export(
    classifier: Classifier, rows: Sequence[NDArray[np.int64]], *, int8: bool, metadata: Metadata | None = None
) -> tuple[list[Measured], bytes]:
    """Export the classifier; measure PyTorch, ONNX and, with `int8`, the quantized graph on the rows.

    `metadata` is what text needs. Returns the measurements and the content of the file. Raises `UserError` if
    a logit of the fp32 graph differs from PyTorch's by more than TOLERANCE.
    """
    network = Logits(classifier.model)

    def by_torch(ids_BL: NDArray[np.int64]) -> NDArray[np.float32]:
        ids = torch.from_numpy(ids_BL)
        with torch.inference_mode():
            return network(ids, (ids != PAD).long()).numpy()

    graph = to_onnx(
        classifier.model, classifier.classes, classifier.longest, metadata.to_text() if metadata else {}
    )
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


def measure(
    name: str, network: Compute, rows: Sequence[NDArray[np.int64]], content: bytes | None
) -> Measured:
    """Run the network on all rows in batches of similar length; the time excludes a warm-up batch."""
    lengths = np.array([len(row) for row in rows])
    parts = [(batch, pad([rows[i] for i in batch], PAD)) for batch in batches(lengths, MAX_TOKENS)]
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
    vocabulary = classifier.model.config.vocab_size
    first, _ = special_ids(classifier.checkpoint.task_config())
    return [np.concatenate([[first], rng.integers(UNK, vocabulary, length - 1)]) for length in lengths]


def document(measured: list[Measured], labels_N: NDArray[np.int64] | None, split: str) -> dict[str, Any]:
    """All measurements, for JSON; `labels_N` is None for rows of random ids."""
    return {
        "split": None if labels_N is None else split,
        "sentences": len(measured[0].logits),
        "threads": torch.get_num_threads(),
        "tolerance": TOLERANCE,
        "conventions": "each form against the first: exact McNemar test; difference of accuracy in points "
        f"with the {LEVEL:.0%} interval of a paired bootstrap ({DRAWS:,} draws, seed {SEED}), or Wilson's if "
        "the difference is the same in every sentence",
        "forms": [_form(form, measured[0], labels_N) for form in measured],
    }


def table(document: dict[str, Any]) -> str:
    """The measurements as a Markdown table with a heading and, on data, a comparison of the accuracies."""
    split, sentences = document["split"], document["sentences"]
    rows_name = "rows of random ids" if split is None else f"{sentences:,} sentences of {split}"
    rows = [
        (
            form["name"],
            "" if form["accuracy"] is None else f"{form['accuracy']:.2f}",
            f"{form['same_class']:.2f}",
            f"{form['largest_difference']:.1e}",
            "" if form["megabytes"] is None else f"{form['megabytes']:.1f}",
            f"{form['seconds_per_1000']:.2f}",
        )
        for form in document["forms"]
    ]
    columns = (
        "",
        "accuracy (%)",
        "same class as torch (%)",
        "largest difference of a logit",
        "MB",
        "seconds",
    )
    heading = (
        f"{rows_name}; seconds for 1,000 of them on {document['threads']} thread(s) of this CPU, in batches "
        "of similar length; torch computes attention as the graph does"
    )
    last = document["forms"][-1]
    if split is None:
        comparison = "accuracy was not measured: pass binarized data with --data"
    else:
        low, high = last["interval"]
        wilson = ", Wilson" if last["interval_method"] == WILSON else ""
        comparison = (
            f"{last['name']} against torch: {last['points']:+.2f} points [{low:+.2f}, {high:+.2f}{wilson}]; "
            f"only {last['name']} correct {last['only_this']}, only torch correct {last['only_torch']} "
            f"(McNemar p {last['p']:.2g})"
        )
    return f"{heading}\n\n{markdown(columns, rows)}\n{comparison}"


def _form(form: Measured, reference: Measured, labels_N: NDArray[np.int64] | None) -> dict[str, Any]:
    predicted_N, expected_N = form.logits.argmax(-1), reference.logits.argmax(-1)
    found = {
        "name": form.name,
        "accuracy": None,
        "same_class": 100 * float((predicted_N == expected_N).mean()),
        "largest_difference": float(np.abs(form.logits - reference.logits).max()),
        "megabytes": form.megabytes,
        "seconds_per_1000": 1000 * form.seconds / len(form.logits),
    }
    if labels_N is None:
        return found
    right_N, torch_N = predicted_N == labels_N, expected_N == labels_N
    only_this, only_torch, p = mcnemar(right_N, torch_N)
    points_N = 100 * (right_N.astype(float) - torch_N)
    (low, high), method = examples_interval(points_N, LEVEL, draws=DRAWS, seed=SEED)
    return found | {
        "accuracy": 100 * float(right_N.mean()),
        "points": float(points_N.mean()),
        "interval": [low, high],
        "interval_method": method,
        "only_this": int(only_this),
        "only_torch": int(only_torch),
        "p": float(p),
    }
