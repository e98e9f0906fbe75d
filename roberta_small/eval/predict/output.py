"""Predictions for raw text as JSON lines, CSV, TSV, Parquet, a workbook, or readable text.

`Layout` decides which fields a prediction has and what they are called; a writer puts them into a file. For
lines of text these are the line's index, `label` and the probabilities; for the row of a table, they follow
the row's own cells, and the predicted class is called `prediction`.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from roberta_small.common.errors import UserError, count
from roberta_small.common.files import json_line
from roberta_small.common.optional import needed_by
from roberta_small.common.predictions import AnyPrediction, ValuePrediction
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
    found: AnyPrediction
    words: list[Word] | None = None
    """None if no explanation was requested."""
    std: float | dict[str, float] | None = None
    """Standard deviation over an ensemble of the predicted class's probability, of the probability of each
    class of multi-label data, or of the value; None for one classifier."""
    note: str = ""
    """What is suspicious about the text, or ""."""
    cells: Mapping[str, Any] | None = None
    """The row of the input table; None for other input."""

    @property
    def probabilities(self) -> dict[str, float]:
        """Of each class; empty for regression."""
        return {} if isinstance(self.found, ValuePrediction) else self.found.probabilities

    @property
    def written(self) -> str:
        """What is predicted, as text."""
        predicted = self.found.predicted
        if isinstance(predicted, tuple):
            return LABEL_SEPARATOR.join(predicted)
        return predicted if isinstance(predicted, str) else f"{predicted:.6g}"


Write = Callable[[TextPrediction], object]
"""Writes one prediction."""


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

    @property
    def label(self) -> str:
        """The name of the field of the prediction, before renaming."""
        return "label" if self.table is None else "prediction"

    def names(self, *, flat: bool) -> list[str]:
        """The fields that are added to a table, before renaming.

        With `flat`, each class has a field of its own and every field is always present.
        """
        if flat:
            probabilities = [f"p({name})" for name in self.classes]
        else:
            probabilities = ["probabilities"] if self.classes else []
        std = ["std"] if self.with_std else []
        if std and flat and self.several:
            std = [f"std({name})" for name in self.classes]
        return [self.label, *probabilities, *std, "note"]

    def record(self, prediction: TextPrediction) -> dict[str, Any]:
        """The fields with all probabilities in one; `note`, `text` and `words` only where there are any."""
        fields: dict[str, Any] = {self.label: prediction.found.predicted}
        if self.classes:
            fields["probabilities"] = prediction.probabilities
        if self.with_std:
            fields["std"] = prediction.std
        if prediction.note:
            fields["note"] = prediction.note
        if self.with_text and self.table is None:
            fields["text"] = prediction.text
        if prediction.words is not None:
            fields["words"] = [[word.text, round(word.score, 6)] for word in prediction.words]
        cells = {"index": prediction.index} if prediction.cells is None else prediction.cells
        return {**cells, **{self.renamed.get(name, name): value for name, value in fields.items()}}

    def header(self) -> list[str]:
        """The names of the columns of `row`."""
        first = ["index"] if self.table is None else list(self.table)
        text = ["text"] if self.with_text and self.table is None else []
        return [*first, *(self.renamed.get(name, name) for name in self.names(flat=True)), *text]

    def row(self, prediction: TextPrediction) -> list[Any]:
        """The cells with one for each class; as many for all predictions."""
        first = [prediction.index] if prediction.cells is None else prediction.cells.values()
        value = prediction.found.predicted
        shown = value if isinstance(value, float) else prediction.written
        std = prediction.std
        spread = list(std.values()) if isinstance(std, dict) else [std] if self.with_std else []
        text = [prediction.text] if self.with_text and self.table is None else []
        return [*first, shown, *prediction.probabilities.values(), *spread, prediction.note, *text]


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


def open_writer(
    kind: str, stream: IO, layout: Layout, delimiter: str | None = None
) -> AbstractContextManager[Write]:
    """The writer for one of `FORMATS`: a block that gets a function, which writes one prediction.

    The rest is written when the block ends without an error; the stream stays open. Formats in `BINARY` need
    a binary stream. `delimiter` replaces that of CSV. The format "text" is in color on a terminal. Raises
    `UserError` if the package of a format is missing.
    """
    if kind in DELIMITERS:
        return write_csv(stream, layout, delimiter or DELIMITERS[kind])
    if kind == "text":
        return write_text(stream, color=stream.isatty())
    if kind == "glue":
        return write_glue(stream)
    if kind == "parquet":
        return write_parquet(stream, layout)
    return write_workbook(stream, layout) if kind == "xlsx" else write_json_lines(stream, layout)


@contextlib.contextmanager
def write_json_lines(stream: IO[str], layout: Layout) -> Iterator[Write]:
    """One JSON object per line (`Layout.record`)."""
    yield lambda prediction: stream.write(json_line(layout.record(prediction), default=str))


@contextlib.contextmanager
def write_csv(stream: IO[str], layout: Layout, delimiter: str) -> Iterator[Write]:
    """CSV or TSV with a header (`Layout.row`). Rows end in a line feed."""
    # The writer quotes the characters of its line terminator: both, because readers end a row at either.
    line = io.StringIO()
    rows = csv.writer(line, delimiter=delimiter, lineterminator="\r\n")

    def write_row(cells: Iterable[Any]) -> None:
        rows.writerow(cells)
        stream.write(line.getvalue().removesuffix("\r\n") + "\n")
        line.seek(0)
        line.truncate()

    write_row(layout.header())
    yield lambda prediction: write_row(map(_csv_cell, layout.row(prediction)))


@contextlib.contextmanager
def write_glue(stream: IO[str]) -> Iterator[Write]:
    """A submission file of GLUE: the columns `index` and `prediction` with a tab between them.

    The index is that of the input table, if it has a column `index`, else that of the text. A number has
    three decimals.
    """

    def write(prediction: TextPrediction) -> None:
        index = (prediction.cells or {}).get("index", prediction.index)
        predicted = prediction.found.predicted
        shown = f"{predicted:.3f}" if isinstance(predicted, float) else prediction.written
        stream.write(f"{index}\t{shown}\n")

    stream.write("index\tprediction\n")
    yield write


@contextlib.contextmanager
def write_parquet(stream: IO[bytes], layout: Layout) -> Iterator[Write]:
    """Parquet (`Layout.row`); the types of the input table's columns follow from their values.

    The cells of a column of mixed types are written as text.
    """
    with needed_by("--format parquet"):
        import pyarrow
        import pyarrow.parquet
    words = [*([layout.label] if layout.classes else []), "note"]
    texts = {"text", *(layout.renamed.get(name, name) for name in words)}
    types = {name: pyarrow.string() if name in texts else pyarrow.float64() for name in layout.header()}
    mixed = []
    for name, values in (layout.table or {"index": [0]}).items():
        try:
            types[name] = pyarrow.array(values).type
        except (pyarrow.ArrowException, OverflowError):
            types[name] = pyarrow.string()
            mixed.append(name)
    schema = pyarrow.schema(list(types.items()))
    rows: list[dict[str, Any]] = []
    with pyarrow.parquet.ParquetWriter(stream, schema) as file:

        def write(prediction: TextPrediction) -> None:
            row = dict(zip(schema.names, layout.row(prediction), strict=True))
            for name in mixed:
                if row[name] is not None and not isinstance(row[name], str):
                    row[name] = json.dumps(row[name], ensure_ascii=False, default=str)
            rows.append(row)
            if len(rows) >= PARQUET_ROWS:
                file.write_table(pyarrow.Table.from_pylist(rows, schema=schema))
                rows.clear()

        yield write
        file.write_table(pyarrow.Table.from_pylist(rows, schema=schema))


@contextlib.contextmanager
def write_workbook(stream: IO[bytes], layout: Layout) -> Iterator[Write]:
    """A workbook with one sheet (`Layout.row`). Text that begins with = stays text."""
    with needed_by("--format xlsx"):
        import openpyxl
        from openpyxl.cell import WriteOnlyCell
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("predictions")
    shortened = 0

    def cell_of(value: Any) -> Any:
        nonlocal shortened
        value = _csv_cell(value)
        exact = value is None or (isinstance(value, int) and abs(value) < EXACT)
        if exact or (isinstance(value, float) and math.isfinite(value)):
            return value
        text = NOT_IN_XML.sub(" ", str(value))
        shortened += len(text) > LONGEST_CELL
        cell = WriteOnlyCell(sheet, text[:LONGEST_CELL])
        cell.data_type = "s"  # not a formula
        return cell

    sheet.append(list(map(cell_of, layout.header())))
    yield lambda prediction: sheet.append(list(map(cell_of, layout.row(prediction))))
    book.save(stream)
    if shortened:
        print(
            f"warning: {count(shortened, 'cell')} shortened to {LONGEST_CELL:,} characters, the most that a "
            "workbook has; another format, such as .jsonl, keeps them",
            file=sys.stderr,
        )


@contextlib.contextmanager
def write_text(stream: IO[str], *, color: bool) -> Iterator[Write]:
    """What is predicted, its probability and the text; the words that contributed most are marked.

    Each is one line. With color, green words contributed to the predicted class and red ones against it;
    without color they are written `[+word]` and `[-word]`.
    """

    def write(prediction: TextPrediction) -> None:
        label = prediction.written or "–"
        predicted, p, std = prediction.found.predicted, prediction.probabilities, prediction.std
        if isinstance(predicted, tuple):  # of each class, with its standard deviation over an ensemble
            spread = {name: f" ± {value:.3f}" for name, value in std.items()} if isinstance(std, dict) else {}
            certainty = LABEL_SEPARATOR.join(f"{p[name]:.3f}{spread.get(name, '')}" for name in predicted)
        else:
            certainty = f"{p[predicted]:.3f}" if isinstance(predicted, str) else ""
            certainty += f" ± {std:.3f}" if isinstance(std, float) else ""
        text = prediction.text
        if prediction.words is not None:
            least = MARKED_FRACTION * max((abs(word.score) for word in prediction.words), default=0.0)
            marked = []
            for word in prediction.words:
                plus = word.score > 0
                mark = (
                    f"{GREEN if plus else RED}{word.text}{PLAIN}" if color else f"[{'-+'[plus]}{word.text}]"
                )
                marked.append(mark if least and abs(word.score) >= least else word.text)
            text = " ".join(marked)
        note = f"  ({prediction.note})" if prediction.note else ""
        shown = f"{BOLD}{label}{PLAIN}" if color else label
        stream.write(f"{shown}  {certainty}  {' '.join(text.splitlines())}{note}\n")

    yield write


def _csv_cell(value: Any) -> Any:
    """A cell of CSV: containers and truth values of a JSON or Parquet table as JSON."""
    if isinstance(value, bool | list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return value
