"""Tables of labelled text: CSV, TSV, JSON, JSON lines and Parquet, plain or compressed (`.gz`, `.xz`).

    read_table      a file -> a DataFrame of strings; the index is the line where each row begins
    read_cells      the same with the cells as the file stores them
    choose_columns  which columns are text, second text, label and split; guessed where unambiguous
    read            the records of a file, for the registry of readers

Every cell of `read_table` is text: `01` and `NA` stay as written. A line break, tab or NUL within a cell
becomes a space, because the data of this project have one text a line; white space at the ends and byte order
marks go.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pandas as pd

from common.cli import nearest
from common.errors import UserError, enumerate_some
from common.files import json_fault

from .lines import open_raw
from .records import COMPRESSED, Record

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
DELIMITERS = {".csv": ",;", ".tsv": "\t"}
"""The first one is the default; a header without it is read with the other."""
BYTE_ORDER_MARK = "\ufeff"
LINE_BREAKS = re.compile(r"\r\n|[\n\r\t\x00]")
QUOTED = re.compile(r'"([^"]|"")*"')


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


def read(
    path: str,
    *,
    text_column: str | None = None,
    pair_column: str | None = None,
    label_column: str | None = None,
    split_column: str | None = None,
) -> Iterator[Record]:
    """The rows of a table in file order; columns that are not named are guessed (`choose_columns`).

    An empty cell gives an empty text, or None for pair, label and split. Errors as for `read_table` and
    `choose_columns`.
    """
    table = read_table(path)
    given = Columns(text_column, pair_column, label_column, split_column)
    columns = choose_columns(table.columns, given, path)
    yield from records(table, columns)


def records(table: pd.DataFrame, columns: Columns) -> Iterator[Record]:
    """The rows of `read_table` as records."""
    cells = {role: table[column].tolist() for role, column in columns.named().items()}
    for row, line in enumerate(table.index):
        values = {role: column[row] for role, column in cells.items()}
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

    Raises `UserError` where two columns have the same name.
    """
    table = _named(table, path)
    cells = {name: [cell_text(value) for value in table[name]] for name in table.columns}
    table = pd.DataFrame(cells, index=table.index, dtype=object)
    return table[[any(row) for row in zip(*cells.values(), strict=True)]]


def _load(path: str) -> pd.DataFrame:
    suffix = table_suffix(path)
    if suffix == ".parquet":
        return _read_parquet(path)
    if suffix in DELIMITERS:
        return _read_delimited(_decoded(path), path, suffix)
    return _read_json(_decoded(path), path, lines=suffix != ".json")


def _named(table: pd.DataFrame, path: str) -> pd.DataFrame:
    """The table with clean names of columns; raises `UserError` where two are equal."""
    names = [_clean(str(name)) or f"column {i}" for i, name in enumerate(table.columns, start=1)]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise UserError(f"{path}: two columns are named '{repeated[0]}'; rename one")
    return table.set_axis(names, axis=1)


def _not_empty(table: pd.DataFrame, path: str) -> pd.DataFrame:
    if table.empty:
        raise UserError(f"{path}: no rows; give a file with a header and at least one row")
    return table


def table_suffix(path: str) -> str:
    """The suffix that decides the format, in lower case; a compression suffix does not count."""
    file = Path(path)
    return (Path(file.stem).suffix if file.suffix in COMPRESSED else file.suffix).lower()


def choose_columns(names: Sequence[str], given: Columns, path: str, *, needs_label: bool = True) -> Columns:
    """The columns of a table: those given, else those with a usual name.

    Two usual names of a pair (premise, hypothesis) are both texts. If a single column is left beside the
    label, it is the text. Without `needs_label`, no label is guessed, and a column with a usual name of a
    label is not the text. Raises `UserError` for a column that does not exist, and where text or label cannot
    be guessed.
    """
    names = list(names)
    for role, column in given.named().items():
        if column not in names:
            hint = nearest(column, names)
            raise UserError(f"{path}: no column '{column}' (--{role}-column); it has {_listed(names)}{hint}")
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
        excluded = (label,) if needs_label else [free[name] for name in LABEL_NAMES if name in free]
        candidates = {key: name for key, name in free.items() if name not in excluded}
        if len(candidates) == 1 and (label is not None or not needs_label):
            text = next(iter(candidates.values()))
        else:
            text = _only(candidates, TEXT_NAMES, "text", path, names)
    if text is None:
        raise UserError(
            f"{path}: which column is the text? It has {_listed(names)}; name it with --text-column"
        )
    return Columns(text, pair, label, given.split)


def _only(
    free: dict[str, str], usual: Sequence[str], role: str, path: str, names: Sequence[str]
) -> str | None:
    """The column with a usual name of a role, or None; raises `UserError` where there are several."""
    found = [free[name] for name in usual if name in free]
    if len(found) > 1:
        raise UserError(
            f"{path}: {_listed(found)} may each be the {role} (columns: {_listed(names)}); "
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
            f"{path}, line {line}: not {encoding.upper()}; convert the file, for example: "
            "iconv -f latin1 -t utf-8"
        ) from None
    return text.replace(BYTE_ORDER_MARK, "").replace("\r\n", "\n")


def _read_delimited(text: str, path: str, suffix: str) -> pd.DataFrame:
    """A table with a header line. Quotes as in CSV, unless a TSV file uses them as ordinary characters."""
    header = text.partition("\n")[0]
    delimiter = max(DELIMITERS[suffix], key=header.count)
    quoted = suffix == ".csv" or _is_quoted(text, delimiter)
    quoting = csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE
    try:
        rows = pd.read_csv(
            io.StringIO(text),
            header=None,  # so that the header decides how many fields a row may have
            sep=delimiter,
            dtype=str,
            keep_default_na=False,
            quoting=quoting,
            lineterminator="\n",  # a bare \r is part of a text
            skip_blank_lines=False,  # they count as lines
            low_memory=False,
        )
    except pd.errors.EmptyDataError:
        raise UserError(f"{path}: empty; give a file with a header and at least one row") from None
    except (pd.errors.ParserError, ValueError) as error:
        raise UserError(f"{path}{_malformed(text, delimiter, quoting, error)}") from None
    breaks = rows.map(lambda cell: cell.count("\n") if isinstance(cell, str) else 0).sum(axis=1)
    rows.index = 1 + (breaks + 1).cumsum().shift(fill_value=0).astype(int)
    header = rows.iloc[0].fillna("").tolist()
    lines = text.split("\n")
    rows = rows.iloc[1:].set_axis(header, axis=1)
    return rows[[lines[line - 1] != "" for line in rows.index]]


def _is_quoted(text: str, delimiter: str) -> bool:
    """Whether quotes enclose fields; otherwise they are ordinary characters: `"Casablanca" is great`.

    They do if each field of a line that begins with one is enclosed in quotes, or if lines differ in their
    number of delimiters, which then are inside quotes.
    """
    lines = [line for line in text.split("\n") if line]
    begun = (field for line in lines for field in line.split(delimiter) if field.startswith('"'))
    return all(map(QUOTED.fullmatch, begun)) or len({line.count(delimiter) for line in lines}) > 1


def _malformed(text: str, delimiter: str, quoting: int, error: Exception) -> str:
    """Where a delimited file is malformed, and how."""
    width, line, row = None, 1, []
    reader = csv.reader(io.StringIO(text.rstrip("\n"), newline="\n"), delimiter=delimiter, quoting=quoting)
    with contextlib.suppress(csv.Error):
        for row in reader:
            line = reader.line_num - sum(cell.count("\n") for cell in row)
            width = width or len(row)
            if len(row) > width:
                return (
                    f", line {line}: {len(row)} fields, but the header has {width}; enclose fields that "
                    "contain the delimiter in double quotes"
                )
    if "EOF inside string" in str(error):
        return f", line {line}: a quoted field is not closed; add the missing double quote"
    reason = " ".join(str(error).split())[:200]
    return f", near line {line}: not a table ({reason}); check quotes and delimiter"


def _read_json(text: str, path: str, *, lines: bool) -> pd.DataFrame:
    """An array of objects, an object of equally long arrays, or one object a line."""
    remedy = "write one object with the same keys for each example"
    if not lines:
        try:
            content = json.loads(text)
        except json.JSONDecodeError as error:
            if error.msg != "Extra data":  # several values: JSON lines under another suffix
                raise UserError(f"{path}, line {error.lineno}: not JSON ({error.msg}); {remedy}") from None
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path}: not JSON that can be read ({json_fault(error)}); {remedy}") from None
        else:
            return _table_of(content, path, remedy)
    rows, numbers = [], []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path}, line {number}: not JSON ({json_fault(error)}); {remedy}") from None
        if not isinstance(row, dict):
            raise UserError(f"{path}, line {number}: not a JSON object; {remedy}")
        rows.append(row)
        numbers.append(number)
    return pd.DataFrame(rows, index=numbers, dtype=object)


def _table_of(content: Any, path: str, remedy: str) -> pd.DataFrame:
    """The rows of a whole JSON document; `{"data": [...]}` is read as its only array."""
    if isinstance(content, dict):
        arrays = [value for value in content.values() if isinstance(value, list)]
        if len(arrays) == 1 and all(isinstance(row, dict) for row in arrays[0]):
            content = arrays[0]
        elif arrays and len(arrays) == len(content) and len({len(array) for array in arrays}) == 1:
            return _from_one(pd.DataFrame(content, dtype=object))
    if not isinstance(content, list) or not all(isinstance(row, dict) for row in content):
        raise UserError(f"{path}: not an array of objects; {remedy}")
    return _from_one(pd.DataFrame(content, dtype=object))


def _read_parquet(path: str) -> pd.DataFrame:
    try:
        import pyarrow.parquet
    except ImportError:
        raise UserError(f"{path}: Parquet needs pyarrow; install it: pip install pyarrow") from None
    with open_raw(path) as stream:
        data = stream.read()
    try:
        table = pyarrow.parquet.read_table(io.BytesIO(data))
        return _from_one(pd.DataFrame(table.to_pydict(), dtype=object))
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{path}: not a Parquet file ({reason}); fetch or write it again") from None


def _from_one(table: pd.DataFrame) -> pd.DataFrame:
    table.index = range(1, len(table) + 1)
    return table


def cell_text(value: Any) -> str | None:
    """A cell as clean text; None where it is empty."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))  # whole numbers beside empty cells are stored as floating-point numbers
    if isinstance(value, list):
        if len(value) == 1:
            return cell_text(value[0])
        return json.dumps(value, ensure_ascii=False, default=str)
    return _clean(value if isinstance(value, str) else str(value)) or None


def _clean(text: str) -> str:
    return LINE_BREAKS.sub(" ", text.replace(BYTE_ORDER_MARK, "")).strip()
