"""`evaluate --errors`: an HTML page of misclassified examples, disagreements of seeds, confused classes, and
accuracy by text length.

The page is self-contained and has search, filters and sorting.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_small.common.errors import UserError
from roberta_small.common.statistics import wilson_interval
from roberta_small.eval.evaluate.report import most_confused

TEMPLATE = Path(__file__).with_name("errors_page.html")
DATA_PLACEHOLDER = "/*DATA*/"
LENGTH_GROUPS = 6
CONFUSIONS = 15
"""Maximum number of pairs of classes in the list of the most frequent confusions."""


def page_data(
    names: list[str],
    classes: list[str],
    p_RNK: NDArray[np.float64],
    labels_N: NDArray[np.int64],
    lines_N: NDArray[np.int64],
    texts: Sequence[str],
    places: Sequence[str],
    split: str,
) -> dict[str, Any]:
    """The content of the page for R runs, N examples and K classes; `UserError` if a text is missing.

    `lines_N` are the indices of the examples in `texts`, and in `places`, where the user finds them.
    """
    if lines_N[-1] >= len(texts):
        raise UserError(
            f"line {lines_N[-1] + 1} of {split} has a prediction, but the text has {len(texts):,} lines"
        )
    mean_NK = p_RNK.mean(axis=0)
    predicted_N = mean_NK.argmax(axis=1)
    rows = [
        {
            "place": places[index],
            "text": texts[index],
            "label": int(label),
            "runs": [_best(p_K) for p_K in p_RNK[:, n]],
            "mean": _best(mean_NK[n]),
            "wrong": bool(best != label),
        }
        for n, (index, label, best) in enumerate(zip(lines_N.tolist(), labels_N, predicted_N, strict=True))
    ]
    matrix_KK = np.zeros((len(classes), len(classes)), dtype=np.int64)
    np.add.at(matrix_KK, (labels_N, predicted_N), 1)
    words_N = np.array([len(texts[index].split()) for index in lines_N])
    correct_N = (p_RNK.argmax(axis=2) == labels_N).mean(axis=0)
    return {
        "split": split,
        "classes": classes,
        "runs": names,
        "rows": rows,
        "confusions": most_confused(matrix_KK)[:CONFUSIONS] if len(classes) > 2 else [],
        "lengths": accuracy_by_length(words_N, correct_N),
    }


def _best(p_K: NDArray[np.float64]) -> list[float]:
    """The most probable class and its probability."""
    best = int(p_K.argmax())
    return [best, round(float(p_K[best]), 4)]


def accuracy_by_length(words_N: NDArray[np.int64], correct_N: NDArray[np.float64]) -> list[dict[str, Any]]:
    """Accuracy (percent, mean over the runs) in groups of texts with similar numbers of words.

    The groups have similar sizes. The intervals are Wilson's at level 0.95; each example is one trial.
    """
    edges = np.unique(np.quantile(words_N, np.linspace(0, 1, LENGTH_GROUPS + 1), method="lower"))
    starts = edges[:-1] if len(edges) > 1 else edges
    group_N = np.searchsorted(starts, words_N, side="right") - 1
    groups = []
    for group in range(len(starts)):
        inside = group_N == group
        fraction, count = float(correct_N[inside].mean()), int(inside.sum())
        low, high = wilson_interval(fraction, count)
        groups.append(
            {
                "shortest": int(words_N[inside].min()),
                "longest": int(words_N[inside].max()),
                "examples": count,
                "accuracy": round(100 * fraction, 2),
                "low": round(100 * low, 2),
                "high": round(100 * high, 2),
            }
        )
    return groups


def render(content: dict[str, Any]) -> str:
    """The HTML of the page; `<`, `>` and `&` are escaped so that no text can end the script element."""
    data = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        data = data.replace(character, f"\\u{ord(character):04x}")
    return TEMPLATE.read_text(encoding="utf-8").replace(DATA_PLACEHOLDER, data)
