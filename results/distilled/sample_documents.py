"""A random sample of the documents of a text, together with all documents that another file has.

    python results/distilled/sample_documents.py corpus.txt reviews.txt 56000000 sample.txt

Documents are separated by empty lines. All documents that begin with a line of reviews.txt are kept, and of
the others, in random order, as many as reach this number of characters.
"""

import itertools
import random
import sys
from pathlib import Path

SEED = 1


def documents(path: Path) -> list[list[str]]:
    """The lines of each document."""
    with open(path, encoding="utf-8") as stream:
        parts = itertools.groupby(stream, key=lambda line: bool(line.strip()))
        return [list(lines) for filled, lines in parts if filled]


def sample(text: Path, kept: Path, characters: int, target: Path) -> None:
    """Write the sample."""
    first_lines = {lines[0].strip() for lines in documents(kept)}
    own, others = [], []
    for lines in documents(text):
        (own if lines[0].strip() in first_lines else others).append(lines)
    generator = random.Random(SEED)
    generator.shuffle(others)
    for lines in others:
        if characters < 0:
            break
        own.append(lines)
        characters -= sum(map(len, lines))
    generator.shuffle(own)
    with open(target, "w", encoding="utf-8") as stream:
        for lines in own:
            stream.writelines([*lines, "\n"])


if __name__ == "__main__":
    corpus, reviews, size, out = sys.argv[1:]
    sample(Path(corpus), Path(reviews), int(size), Path(out))
