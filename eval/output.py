"""Predictions for raw text as JSON lines, CSV, TSV, or readable text."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from typing import IO, Protocol

FORMATS = ("jsonl", "csv", "tsv", "text")
DIALECTS = {"csv": "excel", "tsv": "excel-tab"}
GREEN, RED, BOLD, PLAIN = "\x1b[32m", "\x1b[31m", "\x1b[1m", "\x1b[0m"
MARKED_FRACTION = 0.25
"""A word is marked if its score is at least this fraction of the largest score in its text."""


@dataclass(frozen=True)
class Word:
    """A word and its contribution to the predicted class (negative: against it)."""

    text: str
    score: float


@dataclass(frozen=True)
class TextPrediction:
    """The prediction for one text."""

    index: int
    """Line of the input, counted from 0."""
    text: str
    probabilities: dict[str, float]
    words: list[Word] | None = None
    """None if no explanation was requested."""

    @property
    def predicted(self) -> str:
        """The most probable class; the first one on a tie."""
        return max(self.probabilities, key=self.probabilities.__getitem__)


class Writer(Protocol):
    """Writes predictions one at a time."""

    def write(self, prediction: TextPrediction) -> None:
        """Write one prediction."""
        ...


def open_writer(kind: str, stream: IO[str], classes: list[str], *, with_text: bool = False) -> Writer:
    """The writer for one of `FORMATS`; the format "text" is in color on a terminal."""
    if kind == "jsonl":
        return JsonLinesWriter(stream, with_text=with_text)
    if kind == "text":
        return TextWriter(stream, color=stream.isatty())
    return CsvWriter(stream, classes, DIALECTS[kind], with_text=with_text)


class JsonLinesWriter:
    """One JSON object per line: "index", "label", "probabilities", optionally "text" and "words"."""

    def __init__(self, stream: IO[str], *, with_text: bool) -> None:
        self.stream = stream
        self.with_text = with_text

    def write(self, prediction: TextPrediction) -> None:
        """Write one line."""
        record = {
            "index": prediction.index,
            "label": prediction.predicted,
            "probabilities": prediction.probabilities,
        }
        if self.with_text:
            record["text"] = prediction.text
        if prediction.words is not None:
            record["words"] = [[word.text, round(word.score, 6)] for word in prediction.words]
        self.stream.write(json.dumps(record, ensure_ascii=False) + "\n")


class CsvWriter:
    """CSV or TSV with a header: index, label, a column `p(CLASS)` for each class, optionally text."""

    def __init__(self, stream: IO[str], classes: list[str], dialect: str, *, with_text: bool) -> None:
        self.rows = csv.writer(stream, dialect, lineterminator="\n")
        self.with_text = with_text
        names = ["index", "label", *(f"p({name})" for name in classes)]
        self.rows.writerow([*names, "text"] if with_text else names)

    def write(self, prediction: TextPrediction) -> None:
        """Write one row."""
        cells = [prediction.index, prediction.predicted, *prediction.probabilities.values()]
        self.rows.writerow([*cells, prediction.text] if self.with_text else cells)


class TextWriter:
    """The class, its probability and the text; the words that contributed most are marked.

    With color, green words contributed to the predicted class and red ones against it; without color they are
    written `[+word]` and `[-word]`.
    """

    def __init__(self, stream: IO[str], *, color: bool) -> None:
        self.stream = stream
        self.color = color

    def write(self, prediction: TextPrediction) -> None:
        """Write one line."""
        label = f"{BOLD}{prediction.predicted}{PLAIN}" if self.color else prediction.predicted
        text = prediction.text if prediction.words is None else self._marked(prediction.words)
        self.stream.write(f"{label}  {prediction.probabilities[prediction.predicted]:.3f}  {text}\n")

    def _marked(self, words: list[Word]) -> str:
        strongest = max((abs(word.score) for word in words), default=0.0)
        return " ".join(self._mark(word, strongest) for word in words)

    def _mark(self, word: Word, strongest: float) -> str:
        if not strongest or abs(word.score) < MARKED_FRACTION * strongest:
            return word.text
        if self.color:
            return f"{GREEN if word.score > 0 else RED}{word.text}{PLAIN}"
        return f"[{'+' if word.score > 0 else '-'}{word.text}]"
