"""The two English data sets of this study, from public packages; README.md has the commands.

movies    sentences of film reviews with the mean rating of 20 people -> movies.tsv, 2 classes
packages  descriptions of Debian packages with their section -> packages.csv, 20 classes

Both have 3,000 examples, the same number of each class, chosen by a hash of their text.
"""

import csv
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

EXAMPLES = 3000
CLEAR = 2
"""Sentences with a mean rating of at least this, or at most its negative, have a class; ratings: -4 to 4."""
NO_TOPIC = {"devel", "doc", "libdevel", "libs", "misc", "utils"}
"""Sections that name the kind of a package, not its topic."""
SECTIONS = 20


def movies(source: Path, target: Path) -> None:
    """Lines of number, rating and sentence as a TSV file of label and sentence."""
    by_label: dict[str, list[str]] = {"positive": [], "negative": []}
    for line in source.read_text(encoding="utf-8").splitlines():
        _, rating, sentence = line.split("\t")
        if abs(float(rating)) >= CLEAR:
            by_label["positive" if float(rating) > 0 else "negative"].append(sentence)
    with open(target, "w", encoding="utf-8", newline="") as stream:
        stream.write("label\tsentence\n")
        for label, sentences in by_label.items():
            stream.writelines(f"{label}\t{text}\n" for text in chosen(sentences, EXAMPLES // 2))


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


def chosen(texts: list[str], number: int) -> list[str]:
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
    {"movies": movies, "packages": packages}[sys.argv[1]](*map(Path, sys.argv[2:]))
