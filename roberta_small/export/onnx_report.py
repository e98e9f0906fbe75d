"""The forms of a classifier compared on the same sentences: PyTorch, ONNX and the quantized graph.

Shapes: N sentences, K classes, D weightings of the sentences.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from roberta_small.analysis.predictions import WILSON, examples_interval, mcnemar
from roberta_small.common.label_kinds import Labels, Targets
from roberta_small.common.metrics import label, metrics_of, number, scored
from roberta_small.common.statistics import DRAWS, LEVEL, SEED
from roberta_small.common.tables import markdown
from roberta_small.eval.report import DRAWS as METRIC_DRAWS
from roberta_small.eval.report import bootstrap_weights

TOLERANCE = 1e-4
"""Largest accepted difference of a logit between ONNX and PyTorch in fp32."""
SAME = {"same_class": "same class", "same_labels": "same labels"}
"""Key of a form -> what is compared: the predicted class, or all predicted classes of multi-label data."""
PAIRED = (
    "each form against the first: exact McNemar test; difference of accuracy in points "
    f"with the {LEVEL:.0%} interval of a paired bootstrap ({DRAWS:,} draws, seed {SEED}), or Wilson's if "
    "the difference is the same in every sentence"
)
PAIRED_METRIC = (
    f"each form against the first: difference of the metric with the {LEVEL:.0%} interval of a paired "
    f"bootstrap ({METRIC_DRAWS:,} draws, seed {SEED})"
)


@dataclass(frozen=True)
class Measured:
    """Logits, time and size of one form of the classifier on N sentences."""

    name: str
    logits: NDArray[np.float32]
    """(N, K)."""
    seconds: float
    megabytes: float | None
    """Size of the file; None for PyTorch."""


def document(
    measured: list[Measured], targets: Targets | None, split: str, labels: Labels | None = None
) -> dict[str, Any]:
    """All measurements, for JSON; `targets` is None for rows of random ids.

    `labels` is what the logits mean; None for exclusive classes.
    """
    exclusive = labels is None or labels.kind.exclusive
    if exclusive:
        forms = [_form(form, measured[0], targets) for form in measured]
    else:
        assert labels is not None  # otherwise exclusive
        forms = [_form_of_metric(form, measured[0], targets, labels) for form in measured]
    return {
        "split": None if targets is None else split,
        "sentences": len(measured[0].logits),
        "threads": torch.get_num_threads(),
        "tolerance": TOLERANCE,
        "conventions": PAIRED if exclusive else PAIRED_METRIC,
        "forms": forms,
    }


def table(document: dict[str, Any]) -> str:
    """The measurements as a Markdown table with a heading and, on data, a comparison of the accuracies."""
    split, sentences = document["split"], document["sentences"]
    first, last = document["forms"][0], document["forms"][-1]
    metric = first.get("metric")
    rows_name = "rows of random ids" if split is None else f"{sentences:,} sentences of {split}"
    rows = [_cells(form) for form in document["forms"]]
    columns = [
        "",
        "accuracy (%)" if metric is None else label(metric),
        *(f"{name} as torch (%)" for key, name in SAME.items() if key in first),
        "largest difference of a logit",
        "MB",
        "seconds",
    ]
    heading = (
        f"{rows_name}; seconds for 1,000 of them on {document['threads']} thread(s) of this CPU, in batches "
        "of similar length; torch computes attention as the graph does"
    )
    if split is None:
        what = "accuracy" if metric is None else label(metric)
        comparison = f"{what} was not measured: pass binarized data with --data"
    elif metric is None:
        low, high = last["interval"]
        wilson = ", Wilson" if last["interval_method"] == WILSON else ""
        comparison = (
            f"{last['name']} against torch: {last['points']:+.2f} points [{low:+.2f}, {high:+.2f}{wilson}]; "
            f"only {last['name']} correct {last['only_this']}, only torch correct {last['only_torch']} "
            f"(McNemar p {last['p']:.2g})"
        )
    else:
        difference, low, high = (f"{value:+.4f}" for value in (last["difference"], *last["interval"]))
        comparison = f"{last['name']} against torch: {label(metric)} {difference} [{low}, {high}]"
    return f"{heading}\n\n{markdown(columns, rows)}\n{comparison}"


def _cells(form: dict[str, Any]) -> list[str]:
    if "metric" in form:
        quality = "" if form["value"] is None else number(form["value"], form["metric"])
    else:
        quality = "" if form["accuracy"] is None else f"{form['accuracy']:.2f}"
    return [
        form["name"],
        quality,
        *(f"{form[key]:.2f}" for key in SAME if key in form),
        f"{form['largest_difference']:.1e}",
        "" if form["megabytes"] is None else f"{form['megabytes']:.1f}",
        f"{form['seconds_per_1000']:.2f}",
    ]


def _cost(form: Measured, reference: Measured) -> dict[str, Any]:
    return {
        "largest_difference": float(np.abs(form.logits - reference.logits).max()),
        "megabytes": form.megabytes,
        "seconds_per_1000": 1000 * form.seconds / len(form.logits),
    }


def _form(form: Measured, reference: Measured, labels_N: NDArray[np.int64] | None) -> dict[str, Any]:
    predicted_N, expected_N = form.logits.argmax(-1), reference.logits.argmax(-1)
    found = {
        "name": form.name,
        "accuracy": None,
        "same_class": 100 * float((predicted_N == expected_N).mean()),
        **_cost(form, reference),
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


def _form_of_metric(
    form: Measured, reference: Measured, targets: Targets | None, labels: Labels
) -> dict[str, Any]:
    """The same for multi-label data and regression, by the metric of the kind."""
    outputs_NK, expected_NK = labels.outputs(form.logits), labels.outputs(reference.logits)
    found: dict[str, Any] = {"name": form.name, "metric": labels.kind.metric, "value": None}
    if labels.kind.has_classes:
        same_NK = labels.assigned(outputs_NK) == labels.assigned(expected_NK)
        found["same_labels"] = 100 * float(same_NK.all(axis=1).mean())
    found |= _cost(form, reference)
    if targets is None:
        return found
    metric = metrics_of(labels.kind.name)[labels.kind.metric]
    ours, theirs = (scored(labels, targets, x_NK) for x_NK in (outputs_NK, expected_NK))
    ones = np.ones((1, len(targets)))
    value = float(metric.measure(ours, ones)[0])
    drawn = [
        metric.measure(ours, weights_DN) - metric.measure(theirs, weights_DN)
        for weights_DN in bootstrap_weights(len(targets), ours.cells, METRIC_DRAWS, SEED)
    ]
    tails = [50 * (1 - LEVEL), 50 * (1 + LEVEL)]
    return found | {
        "value": value,
        "difference": value - float(metric.measure(theirs, ones)[0]),
        "interval": np.percentile(np.concatenate(drawn), tails).tolist(),
    }
