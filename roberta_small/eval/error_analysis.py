"""Write an HTML page of errors: misclassified examples, disagreements of seeds, confused classes, accuracy by
text length.

The input is prediction files (`evaluate --write-predictions`) and the text of the split; no model is needed.
The page is self-contained and has search, filters and sorting.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roberta_small.common import predictions
from roberta_small.common.errors import UserError
from roberta_small.common.files import atomic_write, sha256
from roberta_small.common.predictions import Prediction
from roberta_small.common.statistics import wilson_interval
from roberta_small.eval.options import add_checkpoints
from roberta_small.eval.origin import DataFolder, RunCheckpoint, find_runs
from roberta_small.eval.report import most_confused
from roberta_small.preprocess.readers.lines import read_text_lines

TEMPLATE = Path(__file__).with_name("errors_page.html")
DATA_PLACEHOLDER = "/*DATA*/"
LENGTH_GROUPS = 6
CONFUSIONS = 15
"""Maximum number of pairs of classes in the list of the most frequent confusions."""
EXAMPLES = """examples:
  roberta-small evaluate --checkpoint runs --write-predictions
  roberta-small errors --checkpoint runs --out errors.html
  roberta-small errors --checkpoint runs/fairseq/pretrained --text test.review --out errors.html
"""


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add the command `errors`."""
    parser = subparsers.add_parser(
        "errors",
        help="write an HTML page of misclassified examples, disagreements and accuracy by length",
        description=__doc__,
        examples=EXAMPLES,
    )
    add_checkpoints(parser)
    parser.add_argument("--split", default="test", help="split of the predictions (default: %(default)s)")
    parser.add_argument(
        "--text",
        nargs="+",
        metavar="FILE",
        help="text of the split, one example per line; two files for pairs (default: recorded in the data)",
    )
    parser.add_argument("--out", required=True, metavar="HTML", help="HTML page to write")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Read predictions and text, and write the page."""
    runs = find_runs(args.checkpoint)
    predicted = [read_predictions(run, args.split) for run in runs]
    paths = [Path(path) for path in args.text] if args.text else find_texts(runs[0], args.split)
    content = page_data([run.name for run in runs], predicted, read_texts(paths), args.split)
    atomic_write(args.out, render(content))
    wrong = sum(row["wrong"] for row in content["rows"])
    print(f"wrote {args.out}: {len(content['rows']):,} examples, {wrong:,} errors")


def read_predictions(run: RunCheckpoint, split: str) -> list[Prediction]:
    """Read the predictions of a run with a known true class; raises `UserError` if there are none."""
    path = run.folder / predictions.file_name(split)
    if not path.is_file():
        raise UserError(
            f"{path}: no such file; write it with "
            f"roberta-small evaluate --checkpoint {run.folder} --split {split} --write-predictions"
        )
    known = [prediction for prediction in predictions.read(path) if prediction.true_class is not None]
    if not known:
        raise UserError(f"{path}: contains no true classes, so errors cannot be determined")
    return known


def find_texts(run: RunCheckpoint, split: str) -> list[Path]:
    """The text files in the run's data folder, else those that it records.

    Raises `UserError` if one is missing or has changed.
    """
    data = DataFolder.recorded(run.data.get("path"))
    files = {path: digest for column in data.texts(split) for path, digest in column.items()}
    if not files:
        raise UserError(f"{data.path}: does not record the text of {split}; pass --text")
    for path, digest in files.items():
        if not path.is_file() or (digest and digest != sha256(path)):
            raise UserError(
                f"{path}: missing or changed since {data.path} was written; pass the text with --text"
            )
    return list(files)


def read_texts(paths: Sequence[Path]) -> list[str]:
    """One text per example; the sentences of a pair are separated by a vertical bar."""
    columns = [list(read_text_lines(str(path))) for path in paths]
    if len({len(column) for column in columns}) > 1:
        raise UserError(
            f"{paths[0]} and {paths[1]} have different numbers of lines; specify the two files of the pairs"
        )
    return [" | ".join(parts) for parts in zip(*columns, strict=True)]


def page_data(
    names: list[str], predicted: list[list[Prediction]], texts: list[str], split: str
) -> dict[str, Any]:
    """The content of the page for R runs, N examples and K classes.

    Raises `UserError` if the runs have predictions for different examples or if a text is missing.
    """
    indices = [prediction.index for prediction in predicted[0]]
    classes = list(predicted[0][0].probabilities)
    for name, other in zip(names, predicted, strict=True):
        if [one.index for one in other] != indices or set(other[0].probabilities) != set(classes):
            raise UserError(
                f"{name} and {names[0]}: predictions for different examples; evaluate them on the same split"
            )
    if indices[-1] >= len(texts):
        raise UserError(
            f"line {indices[-1] + 1} of {split} has a prediction, but the text has {len(texts):,} lines; "
            "pass the text of the split with --text"
        )
    p_RNK = np.array([[[one.probabilities[c] for c in classes] for one in run] for run in predicted])
    labels_N = np.array([classes.index(one.true_class) for one in predicted[0] if one.true_class is not None])
    mean_NK = p_RNK.mean(axis=0)
    predicted_N = mean_NK.argmax(axis=1)
    rows = [
        {
            "line": index + 1,
            "text": texts[index],
            "label": int(label),
            "runs": [_best(p_K) for p_K in p_RNK[:, n]],
            "mean": _best(mean_NK[n]),
            "wrong": bool(best != label),
        }
        for n, (index, label, best) in enumerate(zip(indices, labels_N, predicted_N, strict=True))
    ]
    matrix_KK = np.zeros((len(classes), len(classes)), dtype=np.int64)
    np.add.at(matrix_KK, (labels_N, predicted_N), 1)
    words_N = np.array([len(texts[index].split()) for index in indices])
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
