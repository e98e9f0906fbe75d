"""The splits of the committed runs on CLS-books: 1,800 (or 200) reviews for training, 200 for validation.

    roberta-small download cls-books --out cls-books
    python results/cls-books/split.py cls-books          (writes cls-books/split/ and cls-books/few-200/)

In each class, reviews are ordered by SHA-256 of "1 <line>"; the first hundred are for validation. Of those
that are left, the last hundred of each class are the 200 of few-200. `prepare --valid 200` keeps equal texts
in one split, and therefore holds out four other reviews.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

Example = tuple[str, str]
"""Text and label."""


def main(folder: Path) -> None:
    """Write NAME.input0 and NAME.label of train, valid and test."""
    train, valid = held_out(read(folder, "train"), 100)
    few, _ = held_out(train, 800)
    for name, part in (("split", train), ("few-200", few)):
        (folder / name).mkdir()
        for split, examples in (("train", part), ("valid", valid), ("test", read(folder, "test"))):
            for place, kind in enumerate(("input0", "label")):
                lines = "".join(f"{example[place]}\n" for example in examples)
                (folder / name / f"{split}.{kind}").write_bytes(lines.encode())


def read(folder: Path, split: str) -> list[Example]:
    """Text and label of each review; only a newline ends a line."""
    texts, labels = (
        (folder / f"{split}.{kind}").read_bytes().decode().removesuffix("\n").split("\n")
        for kind in ("review", "label")
    )
    return list(zip(texts, labels, strict=True))


def held_out(examples: list[Example], size: int) -> tuple[list[Example], list[Example]]:
    """The examples that are left and those that are held out, `size` of each class."""
    chosen: set[int] = set()
    for name in {label for _, label in examples}:
        of_class = [index for index, (_, label) in enumerate(examples) if label == name]
        chosen.update(sorted(of_class, key=lambda i: hashlib.sha256(f"1 {i}".encode()).digest())[:size])
    left = [example for index, example in enumerate(examples) if index not in chosen]
    return left, [example for index, example in enumerate(examples) if index in chosen]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
