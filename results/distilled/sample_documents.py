"""A random sample of the documents of a text, together with all documents that another file has.

    python results/distilled/sample_documents.py corpus.txt reviews.txt mid.txt

Documents are separated by empty lines. All documents that begin with a line of reviews.txt are kept, and of
the others, in random order, as many as reach 17.5 million characters.
"""

import random
import sys
from pathlib import Path

CHARACTERS = 17_500_000
SEED = 1


def documents(path: Path) -> list[list[str]]:
    """The lines of each document."""
    found: list[list[str]] = [[]]
    with open(path, encoding="utf-8") as stream:
        for line in stream:
            if line.strip():
                found[-1].append(line)
            elif found[-1]:
                found.append([])
    return [lines for lines in found if lines]


def sample(text: Path, kept: Path, target: Path) -> None:
    """Write the sample."""
    first_lines = {lines[0].strip() for lines in documents(kept)}
    own, others = [], []
    for lines in documents(text):
        (own if lines[0].strip() in first_lines else others).append(lines)
    generator = random.Random(SEED)
    generator.shuffle(others)
    characters = 0
    for lines in others:
        if characters > CHARACTERS:
            break
        own.append(lines)
        characters += sum(map(len, lines))
    generator.shuffle(own)
    with open(target, "w", encoding="utf-8") as stream:
        for lines in own:
            stream.writelines([*lines, "\n"])


if __name__ == "__main__":
    sample(*map(Path, sys.argv[1:]))
