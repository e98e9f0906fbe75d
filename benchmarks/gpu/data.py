"""Binarized data of realistic size: sentences for classification and running text.

    python -m benchmarks.gpu.data DICT.txt OUT [--train N]

Lengths are log-normal with a mean of about 170 tokens, and tokens follow Zipf's law. Each class has frequent
tokens of its own, so that a classifier learns. OUT/reviews has input0/ and label/, OUT/corpus has dict.txt,
train and valid.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import numpy as np
import torch
from fairseq.data import Dictionary, indexed_dataset
from numpy.typing import NDArray

MARKERS = 40
"""Tokens that occur in one class only."""
LONGEST = 254


class Text:
    """Random tokens of a vocabulary, without special symbols and markers."""

    def __init__(self, vocabulary: int) -> None:
        self._random = np.random.default_rng(1)
        self._first = 4 + 2 * MARKERS
        weights = 1 / np.arange(10, 10 + vocabulary - self._first)
        self._cumulative = np.cumsum(weights / weights.sum())

    def block(self, length: int) -> NDArray[np.int64]:
        """Running text."""
        drawn = np.searchsorted(self._cumulative, self._random.random(length))
        return self._first + drawn.clip(max=len(self._cumulative) - 1)

    def review(self, label: int) -> NDArray[np.int64]:
        """A text, 6 % of whose tokens are markers of its class."""
        row = self.block(int(np.clip(self._random.lognormal(5.0, 0.6), 1, LONGEST)))
        marked = self._random.random(len(row)) < 0.06
        row[marked] = 4 + label * MARKERS + self._random.integers(MARKERS, size=int(marked.sum()))
        return row


def write(prefix: Path, rows: list[NDArray[np.int64]], vocabulary: int) -> None:
    """One `.bin`/`.idx` pair; each row gets its `</s>`."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    builder = indexed_dataset.make_builder(f"{prefix}.bin", impl="mmap", vocab_size=vocabulary)
    for row in rows:
        builder.add_item(torch.from_numpy(np.append(row, 2)))
    builder.finalize(f"{prefix}.idx")


def main() -> None:
    """Write both folders."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dictionary", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--train", type=int, default=3200)
    args = parser.parse_args()
    vocabulary = len(Dictionary.load(str(args.dictionary)))
    text, labels_of = Text(vocabulary), np.random.default_rng(2)
    reviews, corpus = args.out / "reviews", args.out / "corpus"
    for split, count in (("train", args.train), ("valid", args.train // 8), ("test", args.train // 2)):
        labels = labels_of.integers(2, size=count)
        write(reviews / "input0" / split, [text.review(label) for label in labels], vocabulary)
        write(reviews / "label" / split, [np.array([4 + label]) for label in labels], 8)
    names = Dictionary()
    for name in ("negative", "positive"):
        names.add_symbol(name)
    names.save(str(reviews / "label" / "dict.txt"))
    for split, count in (("train", 4 * args.train), ("valid", args.train // 8)):
        write(corpus / split, [text.block(60) for _ in range(count)], vocabulary)
    for folder in (reviews / "input0", corpus):
        shutil.copyfile(args.dictionary, folder / "dict.txt")


if __name__ == "__main__":
    main()
