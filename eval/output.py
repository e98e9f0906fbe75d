"""Answers to raw text as JSON lines, CSV, TSV, or text to read."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from typing import IO, Protocol

FORMATS = ("jsonl", "csv", "tsv", "text")
DIALECTS = {"csv": "excel", "tsv": "excel-tab"}
GREEN, RED, BOLD, PLAIN = "\x1b[32m", "\x1b[31m", "\x1b[1m", "\x1b[0m"
STRONG = 0.25
"""A word is marked from this share of the strongest word's score on."""


@dataclass(frozen=True)
class Word:
    """A word, and how much it spoke for the predicted class (negative: against it)."""

    text: str
    score: float


@dataclass(frozen=True)
class Answer:
    """What the classifier says of one text."""

    index: int
    """0-based line."""
    text: str
    probabilities: dict[str, float]
    words: list[Word] | None = None
    """None without explanation."""

    @property
    def label(self) -> str:
        """The most probable class; of equally probable ones the first."""
        return max(self.probabilities, key=self.probabilities.__getitem__)


class Writer(Protocol):
    """Takes one answer after the other."""

    def write(self, answer: Answer) -> None:
        """Write it."""
        ...


def open_writer(kind: str, stream: IO[str], classes: list[str], *, with_text: bool = False) -> Writer:
    """The writer of one of `FORMATS`; a terminal gets text in colour."""
    if kind == "jsonl":
        return JsonLines(stream, with_text=with_text)
    if kind == "text":
        return ReadableText(stream, colour=stream.isatty())
    return Columns(stream, classes, DIALECTS[kind], with_text=with_text)


class JsonLines:
    """{"index", "label", "probabilities"} a line, with "text" and "words" where wanted."""

    def __init__(self, stream: IO[str], *, with_text: bool) -> None:
        self.stream = stream
        self.with_text = with_text

    def write(self, answer: Answer) -> None:
        """One line."""
        record = {"index": answer.index, "label": answer.label, "probabilities": answer.probabilities}
        if self.with_text:
            record["text"] = answer.text
        if answer.words is not None:
            record["words"] = [[word.text, round(word.score, 6)] for word in answer.words]
        self.stream.write(json.dumps(record, ensure_ascii=False) + "\n")


class Columns:
    """index, label, one column `p(CLASS)` a class, and text where wanted, under a header."""

    def __init__(self, stream: IO[str], classes: list[str], dialect: str, *, with_text: bool) -> None:
        self.rows = csv.writer(stream, dialect, lineterminator="\n")
        self.with_text = with_text
        names = ["index", "label", *(f"p({name})" for name in classes)]
        self.rows.writerow([*names, "text"] if with_text else names)

    def write(self, answer: Answer) -> None:
        """One row."""
        cells = [answer.index, answer.label, *answer.probabilities.values()]
        self.rows.writerow([*cells, answer.text] if self.with_text else cells)


class ReadableText:
    """Class, probability and text; marked are the words that spoke most for the class or against it.

    In colour: green for, red against. Without: `[+word]` and `[-word]`.
    """

    def __init__(self, stream: IO[str], *, colour: bool) -> None:
        self.stream = stream
        self.colour = colour

    def write(self, answer: Answer) -> None:
        """One line."""
        label = f"{BOLD}{answer.label}{PLAIN}" if self.colour else answer.label
        text = answer.text if answer.words is None else self._marked(answer.words)
        self.stream.write(f"{label}  {answer.probabilities[answer.label]:.3f}  {text}\n")

    def _marked(self, words: list[Word]) -> str:
        strongest = max((abs(word.score) for word in words), default=0.0)
        return " ".join(self._mark(word, strongest) for word in words)

    def _mark(self, word: Word, strongest: float) -> str:
        if not strongest or abs(word.score) < STRONG * strongest:
            return word.text
        if self.colour:
            return f"{GREEN if word.score > 0 else RED}{word.text}{PLAIN}"
        return f"[{'+' if word.score > 0 else '-'}{word.text}]"
