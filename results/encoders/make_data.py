"""Tables of one data set with fewer and fewer training examples, from the text files of its splits.

    python results/encoders/make_data.py data/books/text data/books
    python results/encoders/make_data.py data/books/text data/books 1 2 3 4 5

The first one writes data/books-1800.csv, data/books-200.csv and data/books-50.csv: text, label and split. The
validation and the test set are complete in each. The training examples of a smaller table are among those of
a larger one, with as equal numbers of the classes as possible, chosen by a hash of their text. The second one
writes other draws, data/books-50-1.csv and so on, also of 800 examples; their hash begins with the number.
The variable PREFIX is written before every text of a table.
"""

import csv
import hashlib
import itertools
import os
import sys
from pathlib import Path

SIZES = (1800, 800, 200, 50)
OF_DRAWS = 800
"""Of `SIZES`, the one that only the draws have."""


def examples(folder: Path, split: str) -> list[tuple[str, str]]:
    """(text, label) of each line."""
    texts, labels = (
        (folder / f"{split}.{name}").read_text("utf-8").splitlines() for name in ("input0", "label")
    )
    return list(zip(texts, labels, strict=True))


def in_order(rows: list[tuple[str, str]], draw: str) -> list[tuple[str, str]]:
    """The examples, one of each class in turn."""
    by_label: dict[str, list[tuple[str, str]]] = {}
    for row in sorted(rows, key=lambda row: hashlib.sha256(f"{draw} {row[0]}".strip().encode()).digest()):
        by_label.setdefault(row[1], []).append(row)
    turns = itertools.zip_longest(*(by_label[label] for label in sorted(by_label)))
    return [row for turn in turns for row in turn if row]


def main(folder: Path, target: str, draw: str = "") -> None:
    """Write the tables of a draw."""
    train = in_order(examples(folder, "train"), draw)
    for size in SIZES:
        if size == OF_DRAWS and not draw:
            continue
        prefix = os.environ.get("PREFIX", "")
        name = f"{target}-{size}-{draw}.csv" if draw else f"{target}-{size}.csv"
        with open(name, "w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(["text", "label", "split"])
            for split in ("train", "valid", "test"):
                rows = train[:size] if split == "train" else examples(folder, split)
                writer.writerows([prefix + text, label, split] for text, label in rows)


if __name__ == "__main__":
    for number in sys.argv[3:] or [""]:
        main(Path(sys.argv[1]), sys.argv[2], number)
