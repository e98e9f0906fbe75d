"""The input of commands: arguments, lines of a file or of standard input, or for `predict` rows of a table.

Lines are read in blocks, so memory stays bounded. A table is read whole.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from roberta_small.common.errors import UserError
from roberta_small.preprocess.readers import TABLE, reader_name, suffixes_of, tables
from roberta_small.preprocess.readers import lines as line_files
from roberta_small.preprocess.readers.dialect import UTF_8, Dialect
from roberta_small.preprocess.readers.records import DEFAULT as LINES
from roberta_small.preprocess.readers.tables import Columns

if TYPE_CHECKING:
    from roberta_small.eval.texts import Text

BLOCK_ROWS = 4096
STDIN = "standard input"
NAME = re.compile(r"\w[\w .-]{0,30}")
"""A name of a column."""
COMMA = re.compile(r"\s*[+-]?\d+,(?:\d{1,2}|\d{4,})\s*")
"""A number with a decimal comma; with three digits, it could separate thousands."""
POINT = re.compile(r"\s*[+-]?\d*\.\d+\s*")


@dataclass(frozen=True)
class Block:
    """Consecutive texts of the input."""

    texts: Sequence[Text]
    first: int
    """Number of the first text, counted from 1."""
    where: str
    """Prefix of this number in error messages: "reviews.csv, row"."""
    rows: list[dict[str, Any]] | None = None
    """The rows of the table; None for other input."""


def read_input(
    texts: Sequence[str], path: str | None, encoding: str | None = None
) -> Iterator[tuple[list[str], int, str]]:
    """Yield the texts of the command line, the file or standard input in blocks.

    With each block, the number of its first text, counted from 1, and the prefix of such numbers in error
    messages: "reviews.txt, line". Raises `UserError` for a line that is not UTF-8, and for a file whose
    suffix is that of another format.
    """
    if path is not None and (kind := reader_name(path)) != LINES:
        raise UserError(
            f"{path}: a file of the format '{kind}', not of one text per line; use a plain text file"
        )
    if texts:
        yield list(texts), 1, "TEXT"
        return
    name = path or STDIN
    if encoding is not None and "\n".encode(encoding) != b"\n":
        raise UserError(f"--encoding {encoding}: only for tables; convert {name} with iconv")
    for block in _standard_input() if path is None else line_files.read_blocks(path):
        if block.first_line == 1:
            _check_lines(block, name)
        yield block.lines(encoding=encoding or UTF_8), block.first_line, f"{name}, line"


def _check_lines(block: line_files.Block, name: str) -> None:
    """Raise `UserError` if the first line is a JSON object, or names columns as in a table."""
    first = block.data.partition(b"\n")[0].decode("utf-8", errors="replace").strip()
    remedy = "save it as a file with its suffix and pass that with --input"
    if first.startswith("{"):
        with contextlib.suppress(ValueError, RecursionError):
            if isinstance(json.loads(first), dict):
                raise UserError(f"{name}: JSON, not one text per line; {remedy} (.jsonl)")
    for delimiter, suffix in ((",", ".csv"), (";", ".csv"), ("|", ".csv"), ("\t", ".tsv")):
        names = [field.strip().strip('"').casefold() for field in first.split(delimiter)]
        known = len(names) > 1 and tables.COLUMN_NAMES.intersection(names)
        if known and all(NAME.fullmatch(field) for field in names):
            raise UserError(
                f"{name}: a table with the columns {', '.join(names)}, not one text per line; {remedy} "
                f"({suffix})"
            )


def _standard_input() -> Iterator[line_files.Block]:
    """Yield the lines available so far as a block, so that slow or typed input is processed immediately."""
    first_line = 1
    stream = sys.stdin.buffer
    assert isinstance(stream, io.BufferedIOBase)
    while data := stream.read1(line_files.BLOCK_BYTES):
        if not data.endswith(b"\n"):
            data += stream.readline()
        yield line_files.Block(STDIN, first_line, data, len(data))
        first_line += data.count(b"\n")


@dataclass(frozen=True)
class Lines:
    """Texts of the command line, or lines of a file or of standard input."""

    texts: Sequence[str]
    path: str | None
    encoding: str | None = None
    columns = None
    count = None
    """Unknown."""
    dialect = Dialect()
    formats: ClassVar[Mapping[tuple[int, int], str]] = {}
    decimal_comma = False

    def blocks(self, *, pairs: bool) -> Iterator[Block]:
        """Yield the texts in blocks; with `pairs`, each is split at tabs, or two arguments are one pair.

        Raises `UserError` as `check`, and for a line that is not UTF-8.
        """
        if pairs and self.texts:
            yield Block(argument_pairs(self.texts), 1, "TEXT")
            return
        for lines, first, where in read_input(self.texts, self.path, self.encoding):
            yield Block([line.split("\t") for line in lines] if pairs else lines, first, where)

    def check(self, *, pairs: bool, trained: Columns) -> None:
        """Raise `UserError` for arguments that are no pairs."""
        if pairs:
            argument_pairs(self.texts)


def argument_pairs(texts: Sequence[str]) -> list[tuple[str, ...]]:
    """The pairs of the command line: two arguments are one pair; otherwise each argument contains a tab.

    Raises `UserError` for anything else, because several pairs of arguments would be ambiguous.
    """
    if len(texts) == 2 and not any("\t" in text for text in texts):
        return [(texts[0], texts[1])]
    for number, text in enumerate(texts, start=1):
        if text.count("\t") != 1:
            raise UserError(
                f"TEXT {number} of {len(texts)}: the checkpoint classifies sentence pairs; pass the two "
                "sentences of one pair as two arguments, several pairs as arguments with a tab between the "
                "sentences, or a table with two columns as --input"
            )
    return [tuple(text.split("\t")) for text in texts]


class Table:
    """The rows of a table with the columns of its texts.

    Attributes:
        columns: name -> cells as stored in the file; missing cells are None.
        count: the number of rows.
        dialect: how the file is written.
        formats: (row counted from 0, position of the column) -> number format, of a workbook.
        chosen: the columns of the texts, after `check` at the latest.
    """

    def __init__(self, path: str, given: Columns, dialect: Dialect) -> None:
        """Read a file; what was only detected, and what is suspicious, is printed on standard error.

        Raises `UserError` where the file is malformed, a given column is missing, or a cell is not Unicode.
        """
        loaded = tables.load(path, dialect)
        for note in loaded.notes:
            print(note, file=sys.stderr)
        cells, self.dialect = loaded.cells, loaded.dialect
        self.path, self.given, self.chosen = path, given, given
        self.columns = {
            name: [None if isinstance(cell, float) and math.isnan(cell) else cell for cell in cells[name]]
            for name in cells.columns
        }
        self.count = len(cells)
        self.formats = {(line - cells.index[0], i): name for (line, i), name in loaded.formats.items()}
        self._text = tables.cleaned(cells, path, empty=True).fillna("")
        if given.named():
            self.chosen = tables.choose_columns(cells.columns, given, path, needs_label=False)

    @property
    def decimal_comma(self) -> bool:
        """Whether numbers of the file have a decimal comma, and none a decimal point."""
        cells = self._text.to_numpy().ravel()
        return any(map(COMMA.fullmatch, cells)) and not any(map(POINT.fullmatch, cells))

    def blocks(self, *, pairs: bool) -> Iterator[Block]:
        """Yield the rows in blocks; the columns must have passed `check`."""
        texts: list[Any] = [tables.joined(cells) for cells in self._text[[*self.chosen.texts]].to_numpy()]
        if pairs:
            texts = list(zip(texts, self._text[self.chosen.pair], strict=True))
        for start in range(0, self.count, BLOCK_ROWS):
            stop = min(start + BLOCK_ROWS, self.count)
            rows = [
                dict(zip(self.columns, cells, strict=True))
                for cells in zip(*(values[start:stop] for values in self.columns.values()), strict=True)
            ]
            yield Block(texts[start:stop], start + 1, f"{self.path}, row", rows)

    def check(self, *, pairs: bool, trained: Columns) -> None:
        """Choose the columns of the texts: those given, else those of the training, else by their names.

        Prints those that are not given. Raises `UserError` where none can be chosen, where several of the
        training are missing, and unless they are one text, or two for `pairs`.
        """
        note = ""
        if not self.given.named():
            wanted = [*trained.texts, *([trained.pair] if trained.pair else [])]
            if missing := " and no column ".join(repr(name) for name in wanted if name not in self.columns):
                note = f" (guessed; the training had {' and '.join(map(repr, wanted))})"
                if trained.more_text:
                    raise UserError(
                        f"{self.path}: no column {missing}; the texts of the training are in "
                        f"{' and '.join(map(repr, trained.texts))}, which are joined; rename the columns, or "
                        "choose others with --text-column"
                    )
            given = Columns() if missing else trained
            self.chosen = tables.choose_columns(self._text.columns, given, self.path, needs_label=False)
        if self.chosen != self.given:
            names = [*self.chosen.texts, *([self.chosen.pair] if self.chosen.pair else [])]
            shown = " and ".join(map(repr, names))
            print(f"{self.path}: text column{'s' if len(names) > 1 else ''} {shown}{note}", file=sys.stderr)
        if pairs and self.chosen.pair is None:
            raise UserError(
                f"{self.path}: the checkpoint classifies sentence pairs, and '{self.chosen.text}' is the "
                "first sentence; pass the column of the second with --pair-column"
            )
        if not pairs and self.chosen.pair is not None:
            remedy = (
                "omit --pair-column" if self.given.pair else "pass the column of the text with --text-column"
            )
            raise UserError(
                f"{self.path}: '{self.chosen.text}' and '{self.chosen.pair}' are sentence pairs, but the "
                f"checkpoint classifies single texts; {remedy}"
            )


def open_input(texts: Sequence[str], path: str | None, columns: Columns, dialect: Dialect) -> Lines | Table:
    """The input of the command line, a table if the suffix is one; `UserError` for options of the other."""
    if texts and path:
        raise UserError("TEXT and --input: specify only one of them")
    if path is not None and reader_name(path) == TABLE:
        return Table(path, columns, dialect)
    flags = [f"--{role}-column" for role in columns.named()]
    # Lines of a file or of standard input have an encoding.
    flags += dialect.flags() if texts else replace(dialect, encoding=None).flags()
    if flags:
        raise UserError(
            f"{', '.join(flags)}: {path or 'this input'} has no columns; pass a table "
            f"({', '.join(suffixes_of(TABLE))}) as --input"
        )
    return Lines(texts, path, dialect.encoding)
