"""Tables of labelled text: CSV, TSV, JSON, JSON lines and Parquet, plain or compressed (.gz, .xz, .bz2).

    register_table  add a format
    read_table      a file -> a DataFrame of strings; the index is the line where each row begins
    read_cells      the same with the cells as the file stores them
    choose_columns  which columns are text, second text, label and split; guessed where unambiguous
    read            the records of a file, for the registry of readers

Every cell of `read_table` is text: `01` and `NA` stay as written. A line break, tab or NUL within a cell
becomes a space, because the data of this project have one text per line; leading and trailing white
space and byte order marks are removed.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import pandas as pd

from roberta_small.common.cli import nearest
from roberta_small.common.errors import UserError, enumerate_some
from roberta_small.common.files import json_fault
from roberta_small.preprocess.readers.lines import open_raw
from roberta_small.preprocess.readers.records import TABLE, Record, claim, format_suffix, suffixes_of

TEXT_NAMES = ("text", "sentence", "review", "content", "comment", "body", "document", "tweet", "message")
PAIR_NAMES = (
    ("premise", "hypothesis"),
    ("sentence1", "sentence2"),
    ("sentence_1", "sentence_2"),
    ("question1", "question2"),
    ("text1", "text2"),
    ("text_a", "text_b"),
)
LABEL_NAMES = ("label", "labels", "class", "category", "stars", "rating", "sentiment", "polarity", "target")
COLUMN_NAMES = frozenset([*TEXT_NAMES, *LABEL_NAMES, *(name for pair in PAIR_NAMES for name in pair)])
DELIMITERS = {".csv": ",;\t|", ".tsv": "\t"}
"""The one that the header has most often; the first one on a tie."""
BYTE_ORDER_MARK = "\ufeff"
LINE_BREAKS = re.compile(r"\r\n|[\n\r\t\x00]")
SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a character outside the 16-bit range, which JSON can contain (\\ud83d) and UTF-8 cannot."""
ONE_OBJECT = "write one object with the same keys for each example"
MOST_NUL = 0.25
"""Of the characters of a file: with more it is UTF-16."""
QUOTED = re.compile(r'"([^"]|"")*"')
SEPARATOR = re.compile(r"sep=(.)\n", re.IGNORECASE)
"""The first line of CSV files for spreadsheets, which names the delimiter."""
TEXT_WORDS = 3
"""A column name with this many words may be a text, so that the file has no line of names."""


@dataclass(frozen=True)
class Columns:
    """The columns of a table by their role; None where it has none, or where it is to be guessed."""

    text: str | None = None
    pair: str | None = None
    label: str | None = None
    split: str | None = None

    def named(self) -> dict[str, str]:
        """Role -> column, for the roles that have one."""
        pairs = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {role: column for role, column in pairs if column is not None}


Load = Callable[[str], "pd.DataFrame"]
"""`load(path)`: the rows with their cells as stored. The index is the line of each row, counted from 1, or a
`RangeIndex` from 0, which becomes the number of the row. Raises `UserError` for malformed content."""

_formats: dict[str, Load] = {}


def register_table(load: Load, suffixes: tuple[str, ...]) -> None:
    """Add a format of tables for files with one of `suffixes` (".xlsx"), in lower case.

    Raises `ValueError` where a suffix is taken.
    """
    claim(TABLE, suffixes)
    _formats.update(dict.fromkeys(suffixes, load))


class Nested(str):
    """The JSON text of a cell that is an object or an array of several values."""


def read(
    path: str,
    *,
    text_column: str | None = None,
    pair_column: str | None = None,
    label_column: str | None = None,
    split_column: str | None = None,
) -> Iterator[Record]:
    """The rows of a table in file order; columns that are not named are guessed (`choose_columns`).

    An empty cell gives an empty text, or None for pair, label and split. Errors as for `read_table`,
    `choose_columns` and `records`.
    """
    table = read_table(path)
    given = Columns(text_column, pair_column, label_column, split_column)
    columns = choose_columns(table.columns, given, path)
    yield from records(table, columns, path)


def records(table: pd.DataFrame, columns: Columns, path: str) -> Iterator[Record]:
    """The rows of `read_table` as records.

    Raises `UserError` for a cell that is an object or an array; a label may be an array (`check_classes`).
    """
    cells = {role: table[column].tolist() for role, column in columns.named().items()}
    for row, line in enumerate(table.index):
        values = {role: column[row] for role, column in cells.items()}
        for role, value in values.items():
            if isinstance(value, Nested) and not (role == "label" and value.startswith("[")):
                raise UserError(
                    f"{path}, line {line}: the {role} is not a string but {value[:60]}; write one string or "
                    f"number for each example, or choose another column with --{role}-column"
                )
        yield Record(**{"text": values.pop("text") or "", **values}, line=int(line))


def read_table(path: str) -> pd.DataFrame:
    """All rows of a file; cells are `str`, or None where empty. Index: the line where a row begins, from 1.

    Rows whose cells are all empty are left out. For Parquet, and for a `.json` file that is one array, the
    index counts rows from 1. Raises `UserError` with file and line where the file is malformed, and where it
    has no rows or repeats a column's name.
    """
    return _not_empty(cleaned(_load(path), path), path)


def read_cells(path: str) -> pd.DataFrame:
    """All rows of a file with their cells as stored: `str` in CSV and TSV, any type in JSON and Parquet.

    A missing cell is None, NaN or "". Rows whose cells are all empty are kept; blank lines are not rows. The
    names of the columns, the index and the errors are those of `read_table`.
    """
    return _not_empty(_named(_load(path), path), path)


def cleaned(table: pd.DataFrame, path: str) -> pd.DataFrame:
    """The cells of any table as text, and None where empty; rows that are all empty are left out.

    Raises `UserError` where two columns have the same name, and for characters that UTF-8 cannot represent.
    """
    table = _named(table, path)
    cells = {name: [cell_text(value) for value in table[name]] for name in table.columns}
    for name, column in cells.items():
        for line, cell in zip(table.index, column, strict=True):
            if SURROGATE.search(name) or (cell is not None and SURROGATE.search(cell)):
                raise UserError(
                    f"{path}, line {line}, column {name!a}: half of a surrogate pair (such as \\ud83d), "
                    "which is no character; remove it"
                )
    table = pd.DataFrame(cells, index=table.index, dtype=object)
    return table[[any(row) for row in zip(*cells.values(), strict=True)]]


def _load(path: str) -> pd.DataFrame:
    load = _formats.get(format_suffix(path))
    if load is None:
        known = enumerate_some(suffixes_of(TABLE), 12)
        raise UserError(f"{path}: not the suffix of a table ({known}); rename the file after its format")
    table = load(path)
    if isinstance(table.index, pd.RangeIndex) and table.index.start == 0:
        return table.set_axis(range(1, len(table) + 1))
    return table


def _named(table: pd.DataFrame, path: str) -> pd.DataFrame:
    """The table with clean names of columns; raises `UserError` where two are equal."""
    names = [_clean(str(name)) or f"column {i}" for i, name in enumerate(table.columns, start=1)]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise UserError(f"{path}: duplicate column name '{repeated[0]}'; rename one of the columns")
    return table.set_axis(names, axis=1)


def _not_empty(table: pd.DataFrame, path: str) -> pd.DataFrame:
    if table.empty:
        raise UserError(f"{path}: no rows; use a file with at least one example")
    return table


def choose_columns(names: Sequence[str], given: Columns, path: str, *, needs_label: bool = True) -> Columns:
    """The columns of a table: those given, else those with a usual name.

    Two usual names of a pair (premise, hypothesis) are both texts. In a table of two columns, one of them the
    label, the other is the text. Without `needs_label`, no label is guessed, and a column with a usual name
    of a label is not the text. Raises `UserError` for a column that does not exist or has two roles, and
    where text or label cannot be guessed.
    """
    names = list(names)
    roles: dict[str, str] = {}
    for role, column in given.named().items():
        if column not in names:
            hint = nearest(column, names)
            raise UserError(f"{path}: no column '{column}' (--{role}-column); it has {_listed(names)}{hint}")
        if (other := roles.setdefault(column, role)) != role:
            raise UserError(f"--{other}-column and --{role}-column: both are '{column}'; name two columns")
    taken = set(given.named().values())
    free = {name.casefold(): name for name in names if name not in taken}
    label = given.label
    if label is None and needs_label:
        label = _only(free, LABEL_NAMES, "label", path, names)
    text, pair = given.text, given.pair
    if text is None and pair is None:
        text, pair = next(
            ((free[a], free[b]) for a, b in PAIR_NAMES if a in free and b in free), (None, None)
        )
    if text is None:
        excluded = [label] if needs_label else [name for name in names if name.casefold() in LABEL_NAMES]
        candidates = {key: name for key, name in free.items() if name not in excluded}
        others = [name for name in names if name not in taken and name not in excluded]
        if len(others) == 1 and (label is not None or not needs_label):
            text = others[0]
        else:
            text = _only(candidates, TEXT_NAMES, "text", path, names)
    if text is None:
        raise UserError(
            f"{path}: no text column found among {_listed(names)}; specify one with --text-column"
        )
    return Columns(text, pair, label, given.split)


def _only(
    free: dict[str, str], usual: Sequence[str], role: str, path: str, names: Sequence[str]
) -> str | None:
    """The column with a usual name of a role, or None; raises `UserError` where there are several."""
    found = [name for name in names if name.casefold() in usual and name.casefold() in free]
    if len(found) > 1:
        raise UserError(
            f"{path}: several columns could be the {role}: {_listed(found)} (columns: {_listed(names)}); "
            f"choose one with --{role}-column"
        )
    return found[0] if found else None


def _listed(names: Sequence[str]) -> str:
    return enumerate_some([f"'{name}'" for name in names], 12)


def _decoded(path: str) -> str:
    """The text of a file with `\\n` as its only line end: UTF-8, or UTF-16 where it begins with a mark."""
    with open_raw(path) as stream:
        data = stream.read()
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{path}, line {line}: not {encoding.upper()}; convert the file from its encoding, in Western "
            "Europe usually Windows-1252: iconv -f cp1252 -t utf-8"
        ) from None
    if text.count("\0") > MOST_NUL * len(text):
        raise UserError(
            f"{path}: UTF-16 without byte order mark, or no text file; convert it, for example: "
            "iconv -f utf-16le -t utf-8"
        )
    return text.replace(BYTE_ORDER_MARK, "").replace("\r\n", "\n")


def load_delimited(path: str) -> pd.DataFrame:
    """A table with a header line. Quotes as in CSV, unless a TSV file uses them as ordinary characters."""
    text, suffix = _decoded(path), format_suffix(path)
    named = SEPARATOR.match(text)
    # Replaced by an empty line, so that the numbers of the lines stay.
    text = "\n" + text[named.end() :] if named else text
    if "\r" in text.strip() and "\n" not in text.strip():
        raise UserError(f"{path}: lines end with a carriage return only; convert them: tr '\\r' '\\n'")
    header = text.lstrip("\n").partition("\n")[0]
    delimiter = named[1] if named else max(DELIMITERS[suffix], key=header.count)
    quoted = suffix != ".tsv" or _is_quoted(text, path, delimiter)
    rows = _rows(text, path, delimiter, csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE)
    if not rows:
        raise UserError(f"{path}: empty; use a file with a header and at least one row")
    _check_names(rows, path, delimiter)
    _check_swallowed(rows, path, delimiter)
    (_, names), *rows = rows
    cells = [row + [None] * (len(names) - len(row)) for _, row in rows]
    return pd.DataFrame(cells, columns=names, index=[line for line, _ in rows], dtype=object)


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
                raise UserError(
                    f"{path}, line {first_line}: {len(row)} fields, but the header has {len(rows[0][1])}; "
                    "enclose fields that contain the delimiter in double quotes"
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


def _check_names(rows: Sequence[tuple[int, list[str]]], path: str, delimiter: str) -> None:
    """Raise `UserError` if the first line is an example: a text, and a value that its column has below."""
    (line, names), *examples = rows
    if not any(len(name.split()) >= TEXT_WORDS for name in names):
        return
    for column, name in enumerate(names):
        below = {row[column].strip() for _, row in examples if column < len(row)}
        if name.strip() and name.strip() in below and len(below) <= max(2, len(examples) / 2):
            header = delimiter.join(["text", "label"][: len(names)]).replace("\t", "\\t")
            raise UserError(
                f"{path}, line {line}: no names of columns but an example ('{name}' is a value of its "
                f"column); insert a line with the names, for example: sed -i '1i {header}' FILE"
            )


def _check_swallowed(rows: Sequence[tuple[int, list[str]]], path: str, delimiter: str) -> None:
    """Raise `UserError` for a quoted field that contains other rows, because a quote is not closed.

    A line within a field is a row if it has as many fields as the header, one of which is a frequent value of
    its column in the rest of the file.
    """
    size = len(rows[0][1])
    inside = [
        # Without its last line, which continues with the next field.
        (line, [fields for text in value.split("\n")[:-1] if len(fields := text.split(delimiter)) == size])
        for line, row in rows
        for value in row
    ]
    examples = [row for _, row in rows[1:]] + [fields for _, found in inside for fields in found]
    frequent = [Counter(row[column] for row in examples if column < len(row)) for column in range(size)]
    for line, found in inside:
        for fields in found:
            if any(
                field.strip() and counts[field] > 1 for field, counts in zip(fields, frequent, strict=True)
            ):
                raise UserError(
                    f"{path}, line {line}: a quoted field that begins here contains other rows "
                    f"({delimiter.join(fields)[:40]!r}); write a quotation mark within a field twice, and "
                    "enclose the field in quotes"
                )


def load_json(path: str) -> pd.DataFrame:
    """An array of objects, an object of equally long arrays, or one object per line."""
    try:
        content = json.loads(_decoded(path))
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":  # several values: JSON lines under another suffix
            return load_json_lines(path)
        raise UserError(f"{path}, line {error.lineno}: not JSON ({error.msg}); {ONE_OBJECT}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not JSON that can be read ({json_fault(error)}); {ONE_OBJECT}") from None
    return _table_of(content, path)


def load_json_lines(path: str) -> pd.DataFrame:
    """One object per line."""
    rows, numbers = [], []
    for number, line in enumerate(_decoded(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path}, line {number}: not JSON ({json_fault(error)}); {ONE_OBJECT}") from None
        if not isinstance(row, dict):
            raise UserError(f"{path}, line {number}: not a JSON object; {ONE_OBJECT}")
        rows.append(row)
        numbers.append(number)
    return pd.DataFrame(rows, index=numbers, dtype=object)


def _table_of(content: Any, path: str) -> pd.DataFrame:
    """The rows of a whole JSON document; `{"data": [...]}` is read as its only array."""
    if isinstance(content, dict):
        arrays = [value for value in content.values() if isinstance(value, list)]
        if len(arrays) == 1 and all(isinstance(row, dict) for row in arrays[0]):
            content = arrays[0]
        elif len(arrays) > 1 and all(isinstance(row, dict) for array in arrays for row in array):
            raise UserError(
                f"{path}: an array of examples under each of {_listed(list(content))}; write one file per "
                "split and pass them as FILE, --valid and --test"
            )
        elif arrays and len(arrays) == len(content) and len({len(array) for array in arrays}) == 1:
            return pd.DataFrame(content, dtype=object)
    if not isinstance(content, list) or not all(isinstance(row, dict) for row in content):
        raise UserError(f"{path}: not an array of objects; {ONE_OBJECT}")
    return pd.DataFrame(content, dtype=object)


def load_parquet(path: str) -> pd.DataFrame:
    """The columns of a Parquet file."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UserError(f"{path}: Parquet needs pyarrow; install it: pip install pyarrow") from None
    with open_raw(path) as stream:
        data = stream.read()
    try:
        # `read_table`, or a Python stream, would start threads even with use_threads=False, and a process
        # that ends while they start is aborted (apache/arrow#34314).
        table = pyarrow.parquet.ParquetFile(pyarrow.BufferReader(data)).read(use_threads=False)
        columns = {
            name: [_decoded_cell(value, name, row, path) for row, value in enumerate(values, start=1)]
            for name, values in table.to_pydict().items()
        }
        return pd.DataFrame(columns, dtype=object)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{path}: not a Parquet file ({reason}); fetch or write it again") from None


def _decoded_cell(value: Any, column: str, row: int, path: str) -> Any:
    """A cell of Parquet, whose strings may be stored as bytes."""
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise UserError(
            f"{path}, row {row}, column '{column}': bytes that are not UTF-8; store the column as strings"
        ) from None


def cell_text(value: Any) -> str | None:
    """A cell as clean text; None where it is empty."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))  # whole numbers beside empty cells are stored as floating-point numbers
    if isinstance(value, list) and len(value) == 1:
        return cell_text(value[0])
    if isinstance(value, list | dict):
        return Nested(json.dumps(value, ensure_ascii=False, default=str))
    return _clean(value if isinstance(value, str) else str(value)) or None


def _clean(text: str) -> str:
    return LINE_BREAKS.sub(" ", text.replace(BYTE_ORDER_MARK, "")).strip()
