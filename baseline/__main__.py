"""`python -m baseline`: TF-IDF of word n-grams and logistic regression, as a run beside the others."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from common.arguments import positive
from common.errors import UserError, one_line_errors
from sweep import record

from . import model, store, text
from .model import STRENGTHS, Features

RATIO = STRENGTHS[1] / STRENGTHS[0]
DESCRIPTION = f"""\
What a bag of words scores: TF-IDF of word n-grams and logistic regression, fitted on train. The
strength of the regularization is chosen by accuracy on valid, among {len(STRENGTHS)} values of C from
{STRENGTHS[0]:g} to {STRENGTHS[-1]:g}, each {RATIO:.2f} times the one before; of equally good ones the
smallest. Test takes no part in it.

A word is a run of two or more letters, digits or underscores, in lower case (scikit-learn's
token_pattern).

Nothing is drawn at random: there is one run, OUT/bow/tfidf/seed0, with the scores as TensorBoard
scalars, the predictions of valid and test, and model.json: what was chosen, and the n-grams that
speak loudest for each class."""

EXAMPLES = """examples:
  python -m baseline --text cls-books/split --out runs
  python -m baseline --text cls-books/split --out runs --ngrams 1 1 --min-df 2 --sublinear
  python -m analysis tables runs
"""


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """The command line; raises `UserError` before anything is written."""
    options = _parser().parse_args(arguments)
    features = _features(options)
    splits = text.read_folder(options.text)
    run = store.plan(options.out, options.text, features)
    if run.finished:
        print(f"{run.folder}: finished: skipped (delete it to fit again)")
        return
    started, began = record.now(), time.monotonic()
    fitted = model.fit(splits, features)
    results = run.write(fitted, splits, started, time.monotonic() - began)
    for strength, accuracy in fitted.valid_accuracy.items():
        print(f"C {strength:<8.3g} valid accuracy {accuracy:.2f}{'  chosen' * (strength == fitted.strength)}")
    for name, scores in results.items():
        print(f"{name:<5}  accuracy {scores['accuracy']:.2f}  macro-F1 {scores['macro_f1']:.4f}")
    print(f"written to {run.folder}")


def _features(options: argparse.Namespace) -> Features:
    shortest, longest = options.ngrams
    if shortest > longest:
        raise UserError(
            f"--ngrams {shortest} {longest}: the shortest comes first; write {longest} {shortest}"
        )
    return Features((shortest, longest), options.min_df, options.sublinear)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m baseline",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--text", type=Path, required=True, metavar="FOLDER",
        help="with train., valid. and test.input0 and .label, as `python -m preprocess split` writes them",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, default=Path("runs"), help="folder of the runs (%(default)s)")
    parser.add_argument(
        "--ngrams", type=positive, nargs=2, default=(1, 2), metavar=("MIN", "MAX"),
        help="words of the shortest and the longest n-gram (1 2)",
    )  # fmt: skip
    parser.add_argument(
        "--min-df", type=positive, default=1, metavar="N",
        help="leave out n-grams that fewer training texts have (%(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--sublinear", action="store_true", help="count n occurrences in a text as 1 + log(n)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
