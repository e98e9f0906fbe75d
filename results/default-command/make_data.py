"""Data sets from public packages and texts; README.md has the commands.

movies    sentences of film reviews with the mean rating of 20 people -> movies.tsv, 2 classes
products  the same of sentences of product reviews -> products.tsv, 2 classes
packages  descriptions of Debian packages with their section -> packages.csv, 20 classes
genres    French paragraphs of several texts, and which one each is from -> genres.csv

movies and packages have 3,000 examples, genres 500 of each text: the same number of each class, chosen by a
hash of their text. products has all sentences with a clear rating.
"""

import csv
import hashlib
import lzma
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

EXAMPLES = 3000
CLEAR = 2
"""Sentences with a mean rating of at least this, or at most its negative, have a class; ratings: -4 to 4."""
NO_TOPIC = {"devel", "doc", "libdevel", "libs", "misc", "utils"}
"""Sections that name the kind of a package, not its topic."""
SECTIONS = 20
PARAGRAPHS = 500


def rated(source: Path, target: Path, *, clear: float, number: int | None) -> None:
    """Lines of number, rating and sentence as a TSV file of label and sentence.

    The sentences rated at least `clear`, or at most its negative: `number` of each class, or all.
    """
    by_label: dict[str, list[str]] = {"positive": [], "negative": []}
    for line in source.read_text(encoding="utf-8", errors="replace").splitlines():
        _, rating, sentence = line.split("\t")
        if abs(float(rating)) >= clear:
            by_label["positive" if float(rating) > 0 else "negative"].append(sentence)
    with open(target, "w", encoding="utf-8", newline="") as stream:
        stream.write("label\tsentence\n")
        for label, sentences in by_label.items():
            stream.writelines(f"{label}\t{text}\n" for text in chosen(sentences, number))


def genres(*paths: Path) -> None:
    """Paragraphs of 150 to 600 characters of texts of one paragraph a line (.txt.xz); the target is last."""
    *sources, target = paths
    with open(target, "w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["text", "label"])
        for source in sources:
            with lzma.open(source, "rt", encoding="utf-8") as lines:
                paragraphs = [line.strip() for line in lines if 150 <= len(line.strip()) <= 600]
            name = source.name.partition(".")[0]
            writer.writerows([text, name] for text in chosen(paragraphs, PARAGRAPHS))


def packages(index: Path, translations: Path, target: Path) -> None:
    """Synopsis and first paragraph of one package per source, for the 20 largest sections."""
    descriptions = {stanza["Package"]: stanza["Description-en"] for stanza in stanzas(translations)}
    by_section: dict[str, list[str]] = {}
    sources = set()
    for stanza in stanzas(index):
        source = stanza.get("Source", stanza["Package"]).split()[0]
        text = descriptions.get(stanza["Package"], "").split("\n.\n")[0]
        if text and source not in sources and stanza["Section"] not in NO_TOPIC:
            sources.add(source)
            by_section.setdefault(stanza["Section"], []).append(text)
    largest = sorted(by_section, key=lambda section: (-len(by_section[section]), section))[:SECTIONS]
    with open(target, "w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["description", "section"])
        for section in sorted(largest):
            texts = chosen(by_section[section], EXAMPLES // SECTIONS)
            writer.writerows([text, section] for text in texts)


def chosen(texts: list[str], number: int | None) -> list[str]:
    """The texts with the smallest SHA-256, each once."""
    return sorted(set(texts), key=lambda text: hashlib.sha256(text.encode()).digest())[:number]


def stanzas(path: Path) -> Iterator[dict[str, str]]:
    """The paragraphs of a Debian control file: field -> value, continuation lines without their space."""
    for paragraph in path.read_text(encoding="utf-8").split("\n\n"):
        fields: dict[str, str] = {}
        name = ""
        for line in paragraph.strip("\n").split("\n"):
            if line.startswith(" "):
                fields[name] += f"\n{line[1:]}"
            elif line:
                name, _, value = line.partition(":")
                fields[name] = value.strip()
        if fields:
            yield fields


if __name__ == "__main__":
    commands = {
        "movies": partial(rated, clear=CLEAR, number=EXAMPLES // 2),
        "products": partial(rated, clear=CLEAR / 2, number=None),
        "packages": packages,
        "genres": genres,
    }
    commands[sys.argv[1]](*map(Path, sys.argv[2:]))
