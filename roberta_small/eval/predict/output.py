"""Predictions for raw text as JSON lines, CSV, TSV, Parquet, a workbook, or readable text.

`Layout` decides which fields a prediction has and what they are called; a writer puts them into a file. For
lines of text these are the line's index, `label` and the probabilities; for the row of a table, they follow
the row's own cells, and the predicted class is called `prediction`.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

from roberta_small.common.errors import UserError, count
from roberta_small.common.files import json_line
from roberta_small.preprocess.readers.records import COMPRESSED

FORMATS = ("jsonl", "csv", "tsv", "parquet", "xlsx", "text", "glue")
WITHOUT_SUFFIX = ("text", "glue")
BINARY = ("parquet", "xlsx")
DELIMITERS = {"csv": ",", "tsv": "\t"}
PARQUET_ROWS = 10_000
"""Rows of a Parquet row group, which are kept in memory."""
GREEN, RED, BOLD, PLAIN = "\x1b[32m", "\x1b[31m", "\x1b[1m", "\x1b[0m"
NOT_IN_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
EXACT = 10**15
"""Integers below are exact in a workbook, whose numbers have 15 digits."""
LONGEST_CELL = 32_767
"""Characters of a cell of a workbook."""
LABEL_SEPARATOR = "|"
"""Between the predicted classes of multi-label data in a cell."""
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
    """Line or row of the input, counted from 0."""
    text: str
    probabilities: dict[str, float]
    """Empty for regression."""
    words: list[Word] | None = None
    """None if no explanation was requested."""
    std: float | dict[str, float] | None = None
    """Standard deviation over an ensemble of the predicted class's probability, of the probability of each
    class of multi-label data, or of the value; None for one classifier."""
    note: str = ""
    """What is suspicious about the text, or ""."""
    cells: Mapping[str, Any] | None = None
    """The row of the input table; None for other input."""
    result: list[str] | float | None = None
    """The predicted classes of multi-label data, or the predicted number; None for one class per text."""

    @property
    def predicted(self) -> str | list[str] | float:
        """The predicted classes or number, else the most probable class; the first one on a tie."""
        if self.result is not None:
            return self.result
        return max(self.probabilities, key=self.probabilities.__getitem__)

    @property
    def written(self) -> str:
        """What is predicted, as text."""
        if isinstance(self.predicted, list):
            return LABEL_SEPARATOR.join(self.predicted)
        return self.predicted if isinstance(self.predicted, str) else f"{self.predicted:.6g}"


@dataclass(frozen=True)
class Layout:
    """The fields of the output."""

    classes: list[str]
    """Empty for regression."""
    table: Mapping[str, Sequence[Any]] | None = None
    """The columns of the input table, which come first; None for other input."""
    with_text: bool = False
    """Whether the text is a field; the row of a table contains it anyway."""
    with_std: bool = False
    several: bool = False
    """Whether the data are multi-label: each class has a standard deviation."""
    renamed: dict[str, str] = field(default_factory=dict)
    """Other names of output fields, because the table has columns of these names (`avoid_columns`)."""

    def names(self, *, flat: bool) -> list[str]:
        """The fields that are added to a table, before renaming.

        With `flat`, each class has a field of its own and every field is always present.
        """
        whole = ["probabilities"] if self.classes else []
        probabilities = [f"p({name})" for name in self.classes] if flat else whole
        std = ["std"] if self.with_std else []
        if std and flat and self.several:
            std = [f"std({name})" for name in self.classes]
        return ["label" if self.table is None else "prediction", *probabilities, *std, "note"]

    def record(self, prediction: TextPrediction) -> dict[str, Any]:
        """The fields with all probabilities in one; `note`, `text` and `words` only where there are any."""
        values: list[Any] = [prediction.predicted, *([prediction.probabilities] if self.classes else [])]
        values += [prediction.std] if self.with_std else []
        record = self._first(prediction) | self._named(values, flat=False)
        if prediction.note:
            record[self._name("note")] = prediction.note
        if self.with_text and self.table is None:
            record["text"] = prediction.text
        if prediction.words is not None:
            record[self._name("words")] = [[word.text, round(word.score, 6)] for word in prediction.words]
        return record

    def flat(self, prediction: TextPrediction) -> dict[str, Any]:
        """The fields with one for each class; the same for all predictions."""
        number = isinstance(prediction.predicted, float)
        shown = prediction.predicted if number else prediction.written
        values: list[Any] = [shown, *prediction.probabilities.values()]
        std = prediction.std
        values += (list(std.values()) if isinstance(std, dict) else [std]) if self.with_std else []
        record = self._first(prediction) | self._named([*values, prediction.note], flat=True)
        return record | ({"text": prediction.text} if self.with_text and self.table is None else {})

    def header(self) -> list[str]:
        """The names of `flat`."""
        first = ["index"] if self.table is None else list(self.table)
        text = ["text"] if self.with_text and self.table is None else []
        return [*first, *map(self._name, self.names(flat=True)), *text]

    def _first(self, prediction: TextPrediction) -> dict[str, Any]:
        return {"index": prediction.index} if prediction.cells is None else dict(prediction.cells)

    def _named(self, values: list[Any], *, flat: bool) -> dict[str, Any]:
        return dict(zip(map(self._name, self.names(flat=flat)), values, strict=False))

    def _name(self, name: str) -> str:
        return self.renamed.get(name, name)


def avoid_columns(layout: Layout, kind: str) -> dict[str, str]:
    """New names for the fields whose names the table has already: `note_2` for `note`."""
    taken = set(layout.table or ())
    names = [*layout.names(flat=kind != "jsonl"), *(["words"] if kind == "jsonl" else [])]
    found = {}
    for name in names:
        number, new = 1, name
        while new in taken:
            number += 1
            new = f"{name}_{number}"
        if new != name:
            found[name] = new
        taken.add(new)
    return found


class Writer(Protocol):
    """Writes predictions one at a time."""

    def write(self, prediction: TextPrediction) -> None:
        """Write one prediction."""
        ...

    def close(self) -> None:
        """Write what is left; the stream stays open."""
        ...


def choose_format(kind: str | None, out: str | None, *, default: str) -> str:
    """The given format, else that of the suffix of `out`, else the default.

    Raises `UserError` for a compressed file, for the suffix of another format without `kind`, and for Parquet
    on standard output.
    """
    suffix = Path(out).suffix.lower() if out else ""
    if suffix in COMPRESSED:
        raise UserError(f"--out {out}: the output is not compressed; omit {suffix}")
    named = suffix.removeprefix(".")
    suffixes = [name for name in FORMATS if name not in WITHOUT_SUFFIX]
    if kind is None and named not in (*suffixes, "", "txt", "text"):
        raise UserError(
            f"--out {out}: no format has the suffix {suffix}; use one of "
            f"{', '.join(f'.{name}' for name in suffixes)}, or choose with --format"
        )
    found = kind or (named if named in suffixes else default)
    if found in BINARY and not out:
        raise UserError(f"--format {found}: name the file with --out")
    return found


def open_writer(kind: str, stream: IO, layout: Layout, delimiter: str | None = None) -> Writer:
    """The writer for one of `FORMATS`; those in `BINARY` need a binary stream.

    `delimiter` replaces that of CSV. The format "text" is in color on a terminal. Raises `UserError` if the
    package of a format is missing.
    """
    if kind == "jsonl":
        return JsonLinesWriter(stream, layout)
    if kind == "text":
        return TextWriter(stream, color=stream.isatty())
    if kind == "glue":
        return GlueWriter(stream)
    if kind == "parquet":
        return ParquetWriter(stream, layout)
    if kind == "xlsx":
        return WorkbookWriter(stream, layout)
    return CsvWriter(stream, layout, delimiter or DELIMITERS[kind])


class JsonLinesWriter:
    """One JSON object per line (`Layout.record`)."""

    def __init__(self, stream: IO[str], layout: Layout) -> None:
        self.stream = stream
        self.layout = layout

    def write(self, prediction: TextPrediction) -> None:
        """Write one line."""
        self.stream.write(json_line(self.layout.record(prediction), default=str))

    def close(self) -> None:
        """Nothing is left."""


class CsvWriter:
    """CSV or TSV with a header (`Layout.flat`). Rows end in a line feed."""

    def __init__(self, stream: IO[str], layout: Layout, delimiter: str) -> None:
        self.stream = stream
        self.layout = layout
        # The writer quotes the characters of its line terminator: both, because readers end a row at either.
        self.line = io.StringIO()
        self.rows = csv.writer(self.line, delimiter=delimiter, lineterminator="\r\n")
        self._write_row(layout.header())

    def write(self, prediction: TextPrediction) -> None:
        """Write one row."""
        self._write_row(map(_csv_cell, self.layout.flat(prediction).values()))

    def close(self) -> None:
        """Nothing is left."""

    def _write_row(self, cells: Any) -> None:
        self.rows.writerow(cells)
        self.stream.write(self.line.getvalue().removesuffix("\r\n") + "\n")
        self.line.seek(0)
        self.line.truncate()


class GlueWriter:
    """A submission file of GLUE: the columns `index` and `prediction` with a tab between them.

    The index is that of the input table, if it has a column `index`, else that of the text.
    """

    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream
        stream.write("index\tprediction\n")

    def write(self, prediction: TextPrediction) -> None:
        """Write one line; a number has three decimals."""
        index = (prediction.cells or {}).get("index", prediction.index)
        predicted = prediction.predicted
        shown = f"{predicted:.3f}" if isinstance(predicted, float) else prediction.written
        self.stream.write(f"{index}\t{shown}\n")

    def close(self) -> None:
        """Nothing is left."""


class ParquetWriter:
    """Parquet (`Layout.flat`); the types of the input table's columns follow from their values."""

    def __init__(self, stream: IO[bytes], layout: Layout) -> None:
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError:
            raise UserError("--format parquet: needs pyarrow; install it: pip install pyarrow") from None
        self.layout = layout
        self.schema = self._schema(pyarrow)
        self.from_rows = pyarrow.Table.from_pylist
        self.file = pyarrow.parquet.ParquetWriter(stream, self.schema)
        self.rows: list[dict[str, Any]] = []

    def write(self, prediction: TextPrediction) -> None:
        """Add one row."""
        self.rows.append(self.layout.flat(prediction))
        if len(self.rows) >= PARQUET_ROWS:
            self._flush()

    def close(self) -> None:
        """Write the last rows and the end of the file."""
        self._flush()
        self.file.close()

    def _flush(self) -> None:
        rows = [self._converted(row) for row in self.rows] if self.as_text else self.rows
        self.file.write_table(self.from_rows(rows, schema=self.schema))
        self.rows = []

    def _converted(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row with the cells of columns of mixed types as text."""
        return row | {name: _as_text(row[name]) for name in self.as_text}

    def _schema(self, pyarrow: Any) -> Any:
        types: dict[str, Any] = {}
        self.as_text: list[str] = []
        for name, values in (self.layout.table or {"index": [0]}).items():
            try:
                types[name] = pyarrow.array(values).type
            except (pyarrow.ArrowException, OverflowError):
                types[name] = pyarrow.string()
                self.as_text.append(name)
        for name in self.layout.header():
            number = name in self._numbers()
            types.setdefault(name, pyarrow.float64() if number else pyarrow.string())
        return pyarrow.schema([(name, types[name]) for name in self.layout.header()])

    def _numbers(self) -> set[str]:
        first, *names = self.layout.names(flat=True)
        names = [name for name in names if name == "std" or name.startswith(("p(", "std("))]
        names += [] if self.layout.classes else [first]
        return {self.layout.renamed.get(name, name) for name in names}


class WorkbookWriter:
    """A workbook with one sheet (`Layout.flat`). Text that begins with = stays text."""

    def __init__(self, stream: IO[bytes], layout: Layout) -> None:
        try:
            import openpyxl
            from openpyxl.cell import WriteOnlyCell
        except ImportError:
            raise UserError("--format xlsx: needs openpyxl; install it: pip install openpyxl") from None
        self.stream = stream
        self.layout = layout
        self.book = openpyxl.Workbook(write_only=True)
        self.sheet = self.book.create_sheet("predictions")
        self.new_cell = WriteOnlyCell
        self.shortened = 0
        self._write_row(layout.header())

    def write(self, prediction: TextPrediction) -> None:
        """Add one row."""
        self._write_row(self.layout.flat(prediction).values())

    def close(self) -> None:
        """Write the file."""
        self.book.save(self.stream)
        if self.shortened:
            print(
                f"warning: {count(self.shortened, 'cell')} shortened to {LONGEST_CELL:,} characters, the "
                "most that a workbook has; another format, such as .jsonl, keeps them",
                file=sys.stderr,
            )

    def _write_row(self, values: Iterable[Any]) -> None:
        self.sheet.append([self._cell(value) for value in values])

    def _cell(self, value: Any) -> Any:
        value = _csv_cell(value)
        exact = value is None or (isinstance(value, int) and abs(value) < EXACT)
        if exact or (isinstance(value, float) and math.isfinite(value)):
            return value
        text = NOT_IN_XML.sub(" ", str(value))
        self.shortened += len(text) > LONGEST_CELL
        cell = self.new_cell(self.sheet, text[:LONGEST_CELL])
        cell.data_type = "s"  # not a formula
        return cell


class TextWriter:
    """What is predicted, its probability and the text; the words that contributed most are marked.

    With color, green words contributed to the predicted class and red ones against it; without color they are
    written `[+word]` and `[-word]`.
    """

    def __init__(self, stream: IO[str], *, color: bool) -> None:
        self.stream = stream
        self.color = color

    def write(self, prediction: TextPrediction) -> None:
        """Write one line; line breaks in the text become spaces."""
        written = prediction.written or "–"
        label = f"{BOLD}{written}{PLAIN}" if self.color else written
        text = prediction.text if prediction.words is None else self._marked(prediction.words)
        probability = _certainty(prediction)
        note = f"  ({prediction.note})" if prediction.note else ""
        self.stream.write(f"{label}  {probability}  {' '.join(text.splitlines())}{note}\n")

    def close(self) -> None:
        """Nothing is left."""

    def _marked(self, words: list[Word]) -> str:
        strongest = max((abs(word.score) for word in words), default=0.0)
        return " ".join(self._mark(word, strongest) for word in words)

    def _mark(self, word: Word, strongest: float) -> str:
        if not strongest or abs(word.score) < MARKED_FRACTION * strongest:
            return word.text
        if self.color:
            return f"{GREEN if word.score > 0 else RED}{word.text}{PLAIN}"
        return f"[{'+' if word.score > 0 else '-'}{word.text}]"


def _certainty(prediction: TextPrediction) -> str:
    """The probability of each predicted class; the standard deviations over an ensemble."""
    predicted, p, std = prediction.predicted, prediction.probabilities, prediction.std
    if isinstance(predicted, list):
        of_class = std if isinstance(std, dict) else {}
        parts = [f"{p[name]:.3f}" + (f" ± {of_class[name]:.3f}" if of_class else "") for name in predicted]
        return LABEL_SEPARATOR.join(parts)
    spread = f" ± {std:.3f}" if isinstance(std, float) else ""
    return (f"{p[predicted]:.3f}" if isinstance(predicted, str) else "") + spread


def _csv_cell(value: Any) -> Any:
    """A cell of CSV: containers and truth values of a JSON or Parquet table as JSON."""
    if isinstance(value, bool | list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return value


def _as_text(value: Any) -> str | None:
    """A cell of a Parquet column of mixed types."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)
