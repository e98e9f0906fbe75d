"""What `export` measured, as JSON and as a Markdown table.

N sentences, K classes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from analysis.intervals import DRAWS, LEVEL, SEED
from analysis.significance import bootstrap_examples, mcnemar

from .onnx_check import TOLERANCE, Measured


def document(measured: list[Measured], gold_N: NDArray[np.int64] | None, split: str) -> dict[str, Any]:
    """Everything, for JSON; `gold_N` is None where random ids stood for a split."""
    return {
        "split": None if gold_N is None else split,
        "sentences": len(measured[0].logits),
        "threads": torch.get_num_threads(),
        "tolerance": TOLERANCE,
        "conventions": "each form against the first: exact McNemar test; difference of accuracy in points "
        f"with the {LEVEL:.0%} interval of a paired bootstrap ({DRAWS:,} draws, seed {SEED})",
        "forms": [_form(form, measured[0], gold_N) for form in measured],
    }


def table(document: dict[str, Any]) -> str:
    """Accuracy beside agreement with torch, size and time."""
    split, sentences = document["split"], document["sentences"]
    said = "rows of random ids" if split is None else f"{sentences:,} sentences of {split}"
    lines = [
        f"{said}; seconds for 1,000 of them on {document['threads']} thread(s) of this CPU, in batches of "
        "similar length; torch computes attention as the graph does\n",
        "| | accuracy (%) | same class as torch (%) | largest difference of a logit | MB | seconds |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for form in document["forms"]:
        accuracy = "" if form["accuracy"] is None else f"{form['accuracy']:.2f}"
        size = "" if form["megabytes"] is None else f"{form['megabytes']:.1f}"
        lines.append(
            f"| {form['name']} | {accuracy} | {form['same_class']:.2f} | {form['largest_difference']:.1e} "
            f"| {size} | {form['seconds_per_1000']:.2f} |"
        )
    last = document["forms"][-1]
    if split is None:
        lines.append("\naccuracy was not measured: name binarized data with --data")
    else:
        low, high = last["interval"]
        lines.append(
            f"\n{last['name']} against torch: {last['points']:+.2f} points [{low:+.2f}, {high:+.2f}]; "
            f"right where torch is wrong {last['only_this']}, the other way round {last['only_torch']} "
            f"(McNemar p {last['p']:.2g})"
        )
    return "\n".join(lines)


def _form(form: Measured, reference: Measured, gold_N: NDArray[np.int64] | None) -> dict[str, Any]:
    predicted_N, expected_N = form.logits.argmax(-1), reference.logits.argmax(-1)
    found = {
        "name": form.name,
        "accuracy": None,
        "same_class": 100 * float((predicted_N == expected_N).mean()),
        "largest_difference": float(np.abs(form.logits - reference.logits).max()),
        "megabytes": form.megabytes,
        "seconds_per_1000": 1000 * form.seconds / len(form.logits),
    }
    if gold_N is None:
        return found
    right_N, torch_N = predicted_N == gold_N, expected_N == gold_N
    only_this, only_torch, p = mcnemar(right_N, torch_N)
    points_N = 100 * (right_N.astype(float) - torch_N)
    return found | {
        "accuracy": 100 * float(right_N.mean()),
        "points": float(points_N.mean()),
        "interval": [float(bound) for bound in bootstrap_examples(points_N, LEVEL, draws=DRAWS, seed=SEED)],
        "only_this": int(only_this),
        "only_torch": int(only_torch),
        "p": float(p),
    }
