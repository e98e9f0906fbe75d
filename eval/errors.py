"""A page to read a classifier's mistakes in: the most confident ones, where seeds disagree, which lengths.

Made of prediction files (`evaluate --write-predictions`) and the text of the split; needs no model. The page
is one HTML file without anything from outside: search, filter and sort work wherever a browser does.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common import predictions
from common.errors import UserError
from common.files import atomic_write, sha256
from common.predictions import Prediction
from common.statistics import wilson_interval
from preprocess.readers.lines import read_text_lines

from .runs import Run, find_runs

TEMPLATE = Path(__file__).with_name("errors_page.html")
PLACE = "/*DATA*/"
BUCKETS = 6
EXAMPLES = """examples:
  python -m eval evaluate --checkpoint runs --write-predictions
  python -m eval errors --checkpoint runs --output errors.html
  python -m eval errors --checkpoint runs/fairseq/pretrained --text test.review --output errors.html
"""


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add the command `errors`."""
    parser = subparsers.add_parser(
        "errors",
        help="a page of mistakes, disagreements and accuracy by length",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--checkpoint", required=True, nargs="+", metavar="C", help="checkpoints, runs or folders of runs"
    )
    parser.add_argument("--split", default="test", help="(%(default)s)")
    parser.add_argument(
        "--text", nargs="+", metavar="FILE",
        help="text of the split, one example a line, two files for pairs (default: that of the data)",
    )  # fmt: skip
    parser.add_argument("--output", required=True, metavar="HTML", help="the page")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """The command: read predictions and text, write the page."""
    runs = find_runs(args.checkpoint)
    answers = [read_answers(run, args.split) for run in runs]
    paths = [Path(path) for path in args.text] if args.text else recorded_texts(runs[0], args.split)
    content = page_data([run.name for run in runs], answers, read_texts(paths), args.split)
    atomic_write(args.output, render(content))
    wrong = sum(row["wrong"] for row in content["rows"])
    print(f"wrote {args.output}: {len(content['rows']):,} examples, {wrong:,} mistakes")


def read_answers(run: Run, split: str) -> list[Prediction]:
    """The answers of a run whose true class is known; raises `UserError` where there are none."""
    path = run.folder / predictions.file_name(split)
    if not path.is_file():
        raise UserError(
            f"{path}: no such file; write it: "
            f"python -m eval evaluate --checkpoint {run.folder} --split {split} --write-predictions"
        )
    known = [answer for answer in predictions.read(path) if answer.gold is not None]
    if not known:
        raise UserError(f"{path}: no true class on any line; mistakes cannot be told")
    return known


def recorded_texts(run: Run, split: str) -> list[Path]:
    """The text files that the data of a run were made of; refused where one has changed since."""
    from .sources import data_folder, resolve

    data = data_folder(run, None)
    recorded = ((data.option("splits") or {}).get(split) or {}).get("texts") or {}
    paths = [name for names in recorded.values() for name in names]
    if not paths:
        raise UserError(f"{data.path}: does not say what the text of {split} is; name it with --text")
    for path in paths:
        digest = data.digest(path)
        if not resolve(path).is_file() or (digest and digest != sha256(resolve(path))):
            raise UserError(
                f"{path}: missing or changed since {data.path} was made; name the text with --text"
            )
    return [resolve(path) for path in paths]


def read_texts(paths: Sequence[Path]) -> list[str]:
    """One text an example; the sentences of a pair are parted by a vertical bar."""
    columns = [list(read_text_lines(str(path))) for path in paths]
    if len({len(column) for column in columns}) > 1:
        raise UserError(f"{paths[0]} and {paths[1]} differ in their number of lines; give a pair's two files")
    return [" | ".join(parts) for parts in zip(*columns, strict=True)]


def page_data(
    names: list[str], answers: list[list[Prediction]], texts: list[str], split: str
) -> dict[str, Any]:
    """All that the page shows: R runs, N examples, K classes.

    Raises `UserError` where runs answered different examples or there is no text for one.
    """
    indices = [answer.index for answer in answers[0]]
    classes = list(answers[0][0].probabilities)
    for name, other in zip(names, answers, strict=True):
        if [a.index for a in other] != indices or set(other[0].probabilities) != set(classes):
            raise UserError(f"{name} and {names[0]} answered other examples; evaluate them on the same split")
    if indices[-1] >= len(texts):
        raise UserError(
            f"predictions for line {indices[-1] + 1} of {split}, but the text has {len(texts):,} lines; "
            "name its text with --text"
        )
    p_RNK = np.array([[[a.probabilities[c] for c in classes] for a in run] for run in answers])
    gold_N = np.array([classes.index(answer.gold) for answer in answers[0]])
    predicted_N = p_RNK.mean(axis=0).argmax(axis=1)
    rows = [
        {
            "line": index + 1,
            "text": texts[index],
            "gold": int(gold),
            "p": p_RNK[:, n].round(4).tolist(),
            "wrong": bool(predicted != gold),
        }
        for n, (index, gold, predicted) in enumerate(zip(indices, gold_N, predicted_N, strict=True))
    ]
    words_N = np.array([len(texts[index].split()) for index in indices])
    correct_N = (p_RNK.argmax(axis=2) == gold_N).mean(axis=0)
    return {
        "split": split,
        "classes": classes,
        "runs": names,
        "rows": rows,
        "lengths": accuracy_by_length(words_N, correct_N),
    }


def accuracy_by_length(words_N: NDArray[np.int64], correct_N: NDArray[np.float64]) -> list[dict[str, Any]]:
    """Accuracy (percent, mean over the runs) of about equally large groups of examples by words.

    The interval is Wilson's at level 0.95, with the examples for trials.
    """
    edges = np.unique(np.quantile(words_N, np.linspace(0, 1, BUCKETS + 1), method="lower"))
    starts = edges[:-1] if len(edges) > 1 else edges
    bucket_N = np.searchsorted(starts, words_N, side="right") - 1
    groups = []
    for bucket in range(len(starts)):
        inside = bucket_N == bucket
        share, count = float(correct_N[inside].mean()), int(inside.sum())
        low, high = wilson_interval(share, count)
        groups.append(
            {
                "shortest": int(words_N[inside].min()),
                "longest": int(words_N[inside].max()),
                "examples": count,
                "accuracy": round(100 * share, 2),
                "low": round(100 * low, 2),
                "high": round(100 * high, 2),
            }
        )
    return groups


def render(content: dict[str, Any]) -> str:
    """The page; `<` is escaped, so that no text can end the script it stands in."""
    data = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        data = data.replace(character, f"\\u{ord(character):04x}")
    return TEMPLATE.read_text(encoding="utf-8").replace(PLACE, data)
