"""The splits of the committed runs on CLS-books: 1,800 reviews for training, 200 for validation, 2,000 for test.

    roberta-small download cls-books --out cls-books
    python results/cls-books/split.py cls-books          (writes cls-books/split/)

In each class, the reviews are ordered by SHA-256 of "1 <line>", and the first hundred are for validation.
`prepare --valid 200` keeps equal texts in one split and therefore holds out four other reviews.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path

VALID = 100
"""Reviews of each of the two classes."""


def main(folder: Path) -> None:
    """Write NAME.input0 and NAME.label of the three splits into folder/split."""
    columns = {"input0": lines(folder / "train.review"), "label": lines(folder / "train.label")}
    labels = columns["label"]
    valid: set[int] = set()
    for name in set(labels):
        of_class = [index for index, label in enumerate(labels) if label == name]
        valid.update(sorted(of_class, key=order)[:VALID])
    (folder / "split").mkdir()
    for kind, content in columns.items():
        parts = {"train": "", "valid": ""}
        for index, line in enumerate(content):
            parts["valid" if index in valid else "train"] += f"{line}\n"
        for split, text in parts.items():
            (folder / "split" / f"{split}.{kind}").write_bytes(text.encode())
    shutil.copyfile(folder / "test.review", folder / "split/test.input0")
    shutil.copyfile(folder / "test.label", folder / "split/test.label")


def lines(path: Path) -> list[str]:
    """Those of a text file; only a newline ends one."""
    return path.read_bytes().decode().removesuffix("\n").split("\n")


def order(index: int) -> bytes:
    """The place of a line in its class."""
    return hashlib.sha256(f"1 {index}".encode()).digest()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
