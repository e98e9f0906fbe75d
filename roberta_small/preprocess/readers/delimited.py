"""CSV and TSV: the delimiter, quotation marks, and what shows that a file is not what it seems."""

from __future__ import annotations

import csv
import io
import re
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Literal

import pandas as pd

from roberta_small.common.errors import UserError
from roberta_small.preprocess.readers.dialect import decoded
from roberta_small.preprocess.readers.records import format_suffix

DELIMITERS = {".csv": ",;\t|", ".tsv": "\t"}
"""The one that the header has most often; the first one on a tie."""
QUOTED = re.compile(r'"([^"]|"")*"')
SEPARATOR = re.compile(r"sep=(.)\n", re.IGNORECASE)
"""The first line of CSV files for spreadsheets, which names the delimiter."""
ENCLOSED = re.compile(r'(?:^|(?<=[,;\t|]))"(?:[^"]|"")*"(?=[,;\t|\n]|$)')
"""A field in quotes, whatever the delimiter is."""


def load_delimited(
    path: str, *, encoding: str, delimiter: str, header_row: int | None = None
) -> pd.DataFrame:
    """The rows from `header_row`, or else the first one; `UserError` with file and line."""
    text = decoded(path, encoding)
    if "\r" in text.strip() and "\n" not in text.strip():
        raise UserError(f"{path}: lines end with a carriage return only; convert them: tr '\\r' '\\n'")
    text = _from(text, header_row)
    quoted = format_suffix(path) != ".tsv" or _is_quoted(text, path, delimiter)
    rows = _rows(text, path, delimiter, csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE)
    if rows:
        _check_swallowed(rows, path, delimiter)
    cells = [row + [None] * (len(rows[0][1]) - len(row)) for _, row in rows]
    return pd.DataFrame(cells, index=[line for line, _ in rows], dtype=object)


def delimiter_of(path: str, encoding: str, header_row: int | None = None) -> str:
    """The delimiter of a file: that of its line `sep=`, else the one its header has most often."""
    text = decoded(path, encoding)
    if named := SEPARATOR.match(text):
        return named[1]
    header = ENCLOSED.sub("", _from(text, header_row).lstrip("\n")[:10_000]).partition("\n")[0]
    return max(DELIMITERS[format_suffix(path)], key=header.count)


def _from(text: str, row: int | None) -> str:
    """The text with empty lines above the one with a number, so that the numbers of the lines stay."""
    if named := SEPARATOR.match(text):
        text = "\n" + text[named.end() :]
    return text if row is None else "\n" * (row - 1) + "\n".join(text.split("\n")[row - 1 :])


def _rows(text: str, path: str, delimiter: str, quoting: Literal[0, 3]) -> list[tuple[int, list[str]]]:
    """The rows of a delimited file that are not blank, each with the line where it begins."""
    # A bare \r is part of a text; the csv module would take it for a line end.
    mark = next(chr(code) for code in range(0xE000, 0xF900) if chr(code) not in text)
    lines = io.StringIO(text.replace("\r", mark), newline="\n")
    reader = csv.reader(lines, delimiter=delimiter, quoting=quoting, strict=True)
    rows: list[tuple[int, list[str]]] = []
    first_line = 1
    limit = csv.field_size_limit(sys.maxsize)
    try:
        for row in reader:
            if rows and len(row) > len(rows[0][1]):
                below = rows[1][0] if rows[1:] else first_line
                raise UserError(
                    f"{path}, line {first_line}: {len(row)} fields, but the first row has {len(rows[0][1])}; "
                    "enclose fields that contain the delimiter in double quotes, or, if the names of the "
                    f"columns are in line {below}, pass --header-row {below}"
                )
            if row:
                rows.append((first_line, [cell.replace(mark, "\r") for cell in row]))
            first_line = reader.line_num + 1
    except csv.Error as error:
        unclosed = "end of data" in str(error)
        fault = "a quoted field is not closed" if unclosed else "text after a closing quote"
        raise UserError(
            f"{path}, line {first_line}: {fault}; enclose a field that contains quotes in double quotes, and "
            'write each of its own quotes twice: ""'
        ) from None
    finally:
        csv.field_size_limit(limit)
    return rows


def _is_quoted(text: str, path: str, delimiter: str) -> bool:
    """Whether quotes enclose fields; otherwise they are ordinary characters: `"Casablanca" is great`.

    They do if each field of a line that begins with one is enclosed in quotes, or if the file can be read so
    and no more rows than lines have another number of fields than the header.
    """
    lines = [line for line in text.split("\n") if line]
    begun = [field for line in lines for field in line.split(delimiter) if field.startswith('"')]
    if all(map(QUOTED.fullmatch, begun)):
        return True
    try:
        rows = _rows(text, path, delimiter, csv.QUOTE_MINIMAL)
        _check_swallowed(rows, path, delimiter)
    except UserError:
        return False
    size = lines[0].count(delimiter) + 1
    inside = (part for _, row in rows for value in row for part in value.split("\n")[:-1])
    if any(delimiter in part for part in inside) and all(line.count(delimiter) < size for line in lines):
        return False  # each line is a row, and the quotes would enclose several
    unusual = sum(line.count(delimiter) + 1 != size for line in lines)
    return sum(len(row) != size for _, row in rows) <= unusual


def _check_swallowed(rows: Sequence[tuple[int, list[str]]], path: str, delimiter: str) -> None:
    """Raise `UserError` for a quoted field that contains other rows, because a quote is not closed.

    A line within a field is a row if it has as many fields as the header, one of which is a frequent value of
    its column: in the other rows, or also within the field if it contains more rows than are outside.
    """
    size = len(rows[0][1])
    outside = [Counter(row[column] for _, row in rows[1:] if column < len(row)) for column in range(size)]
    for line, row in rows:
        for value in row:
            # Without its last line, which continues with the next field.
            lines = (text.split(delimiter) for text in value.split("\n")[:-1])
            found = [fields for fields in lines if len(fields) == size]
            frequent = outside
            if len(found) >= len(rows):
                frequent = [
                    counts + Counter(fields[column] for fields in found)
                    for column, counts in enumerate(outside)
                ]
            for fields in found:
                if any(
                    field.strip() and counts[field] > 1
                    for field, counts in zip(fields, frequent, strict=True)
                ):
                    raise UserError(
                        f"{path}, line {line}: a quoted field that begins here contains other rows "
                        f"({delimiter.join(fields)[:40]!r}); write a quotation mark within a field "
                        "twice, and enclose the field in quotes"
                    )
