"""`python -m preprocess sample`: a small generated French corpus, to try every command without a download.

    DIR/train.input0, train.label    labelled book reviews, one per line; 0 = negative, 1 = positive
    DIR/valid.input0, valid.label
    DIR/test.input0, test.label
    DIR/corpus.train.txt             unlabelled paragraphs, one per line, a blank line between documents
    DIR/corpus.valid.txt
    DIR/sample.json                  seed, options, counts, sha256 of each file

The same options give the same bytes on every machine.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

from tqdm import tqdm

from roberta_small.common.errors import UserError
from roberta_small.common.files import atomic_folder, atomic_write, sha256
from roberta_small.preprocess.sample.writer import PARAGRAPH_MIX, REVIEW_MIX, Writer

REVIEWS = 400
PARAGRAPHS = 18_000
VALID_FRACTION = 1 / 4  # validation reviews for each training review
TEST_FRACTION = 1 / 2  # test reviews for each training review
CORPUS_VALID_FRACTION = 1 / 50
PARAGRAPHS_PER_DOCUMENT = 3


def write_reviews(folder: Path, seed: int, sizes: dict[str, int]) -> None:
    """Write `<split>.input0` and `<split>.label`; no review comes twice, in one split or in two."""
    seen: set[str] = set()
    for split, size in sizes.items():
        # A writer of its own for each split: what the train split used up does not shape the test split.
        writer = Writer(random.Random(f"{seed}/{split}"), REVIEW_MIX)
        labels = [number % 2 for number in range(size)]
        reviews = []
        for label in labels:
            while (review := writer.review(label)) in seen:
                pass
            seen.add(review)
            reviews.append(review)
        atomic_write(folder / f"{split}.input0", "".join(f"{review}\n" for review in reviews))
        atomic_write(folder / f"{split}.label", "".join(f"{label}\n" for label in labels))


def write_corpus(folder: Path, seed: int, sizes: dict[str, int]) -> None:
    """Write `corpus.<split>.txt`: documents of a few paragraphs, a blank line between them."""
    for split, size in sizes.items():
        writer = Writer(random.Random(f"{seed}/corpus.{split}"), PARAGRAPH_MIX)
        documents = []
        for start in tqdm(range(0, size, PARAGRAPHS_PER_DOCUMENT), desc=f"corpus.{split}", unit="doc"):
            count = min(PARAGRAPHS_PER_DOCUMENT, size - start)
            documents.append("".join(f"{text}\n" for text in writer.document(len(documents) % 2, count)))
        atomic_write(folder / f"corpus.{split}.txt", "\n".join(documents))


def write_sample(
    destdir: Path, *, seed: int = 1, reviews: int = REVIEWS, paragraphs: int = PARAGRAPHS
) -> None:
    """Make the whole folder, or nothing: it is written aside and renamed when complete.

    `reviews` counts the training split; validation has a quarter of it, test a half.
    Raises `UserError` where `destdir` exists and is not empty, or a number is too small.
    """
    if reviews < 8 or paragraphs < 100:
        raise UserError(f"--reviews {reviews} --paragraphs {paragraphs}: at least 8 and 100 are needed")
    if destdir.exists() and (not destdir.is_dir() or any(destdir.iterdir())):
        raise UserError(f"{destdir}: not an empty folder; choose another --out or remove it")
    splits = {
        "train": reviews,
        "valid": round(reviews * VALID_FRACTION),
        "test": round(reviews * TEST_FRACTION),
    }
    corpus_valid = round(paragraphs * CORPUS_VALID_FRACTION)
    corpus = {"train": paragraphs - corpus_valid, "valid": corpus_valid}
    with atomic_folder(destdir) as folder:
        write_reviews(folder, seed, splits)
        write_corpus(folder, seed, corpus)
        about = {
            "seed": seed,
            "reviews": splits,
            "paragraphs": corpus,
            "sha256": {path.name: sha256(path) for path in sorted(folder.iterdir())},
        }
        atomic_write(folder / "sample.json", json.dumps(about, indent=2) + "\n")


def run(args: argparse.Namespace) -> None:
    """The command."""
    write_sample(args.out, seed=args.seed, reviews=args.reviews, paragraphs=args.paragraphs)
    print(f"{args.out}: sample corpus written (see sample.json)")


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add the command `sample`."""
    parser = subparsers.add_parser(
        "sample",
        help="generate a small corpus of French reviews for trying all commands",
        description=__doc__,
        examples="example: python -m preprocess sample --out data/sample",
    )
    parser.add_argument(
        "--out", "--destdir", type=Path, required=True, metavar="DIR", help="new folder to write"
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="random seed (default: %(default)s)")
    parser.add_argument(
        "--reviews", type=int, default=REVIEWS, metavar="N", help="training reviews (default: %(default)s)"
    )
    parser.add_argument(
        "--paragraphs",
        type=int,
        default=PARAGRAPHS,
        metavar="N",
        help="unlabelled paragraphs (default: %(default)s)",
    )
    parser.set_defaults(run=run)
