"""Tables that a library reads: Parquet, workbooks (.xlsx), data sets of the Hugging Face hub."""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from roberta_small.common.cli import nearest
from roberta_small.common.errors import UserError, enumerate_some
from roberta_small.preprocess.readers.lines import read_bytes
from roberta_small.preprocess.readers.records import DATASET

SPLIT = "split"
"""The column with the split of each row, added to those of a data set of the hub."""
DOUBTS = {
    "e": "errors, read as empty cells",
    "f": "formulas without a value, read as empty cells; save the file in a spreadsheet program",
}
"""Type of a cell in `openpyxl` -> what is said about it."""
MERGED, HIDDEN = "merged cells; below the header, each row has the value", "hidden rows, read as the others"


def load_parquet(path: str) -> pd.DataFrame:
    """The columns of a Parquet file."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UserError(f"{path}: Parquet needs pyarrow; install it: pip install pyarrow") from None
    data = read_bytes(path)
    try:
        # `read_table`, or a Python stream, would start threads even with use_threads=False, and a process
        # that ends while they start is aborted (apache/arrow#34314).
        table = pyarrow.parquet.ParquetFile(pyarrow.BufferReader(data)).read(use_threads=False)
        columns = table.to_pydict()
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{path}: not a Parquet file ({reason}); fetch or write it again") from None
    for name, values in columns.items():
        for row, value in enumerate(values, start=1):
            if isinstance(value, bytes):  # as some programs store strings
                try:
                    values[row - 1] = value.decode("utf-8")
                except UnicodeDecodeError:
                    raise UserError(
                        f"{path}, row {row}, column '{name}': bytes that are not UTF-8; store the column as "
                        "strings"
                    ) from None
    return pd.DataFrame(columns, dtype=object)


@dataclass
class Sheet:
    """The content of a sheet; rows and columns count from 1."""

    title: str
    hidden: bool
    rows: dict[int, dict[int, Any]] = field(default_factory=dict)
    """Row -> column -> value."""
    formats: dict[tuple[int, int], str] = field(default_factory=dict)
    """(Row, column) -> number format."""
    merged: list[tuple[int, int, int, int]] = field(default_factory=list)
    """First column and row, last column and row."""
    doubts: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    """What is suspicious -> rows and places."""


def load_workbook(
    path: str, *, header: bool = True, header_row: int | None = None, sheet: str | None = None
) -> pd.DataFrame:
    """The rows of a sheet from the header to the last one that has a cell; index: number of the row.

    Formulas are their values. A cell that is merged over several rows is in each of them. `sheet` None: the
    only one that has cells, or the only visible one of them. `attrs` has `notes` and `formats` of
    `tables.Loaded`.
    """
    try:
        import openpyxl
    except ImportError:
        raise UserError(f"{path}: a workbook needs openpyxl; install it: pip install openpyxl") from None
    data = read_bytes(path)
    try:
        with warnings.catch_warnings(action="ignore"):  # of parts that are not read
            book = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True)
            found = [_read_sheet(book, one) for one in book.worksheets if sheet in (None, one.title)]
    except Exception as error:  # the library raises errors of many kinds
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{path}: not a workbook ({reason}); save it again as .xlsx") from None
    filled = [one for one in found if one.rows]
    chosen = [one for one in filled if not one.hidden] or filled
    if len(chosen) != 1:
        titles = [one.title for one in chosen or book.worksheets]
        what = "no cells" if sheet is None else f"no sheet '{sheet}' with cells"
        raise UserError(
            f"{path}: {f'{len(chosen)} sheets with cells' if chosen else what}; choose one with --sheet: "
            f"{enumerate_some([repr(title) for title in titles], 12)}{nearest(sheet or '', titles)}"
        )
    (one,), rows = chosen, chosen[0].rows
    first, last = header_row or min(rows), max(rows)
    if first not in rows:
        raise UserError(f"{path}: no cells in row {first} (--header-row); the first row is {min(rows)}")
    for left, top, _, bottom in one.merged:
        if top >= first + header and left in rows.get(top, {}):
            for row in range(top, min(bottom, last) + 1):
                rows.setdefault(row, {})[left] = rows[top][left]
    columns = sorted({column for row in rows if row >= first for column in rows[row]})
    cells = [[rows.get(row, {}).get(column) for column in columns] for row in range(first, last + 1)]
    names = ["" if name is None else name for name in cells.pop(0)] if header else range(1, len(columns) + 1)
    index = range(last + 1 - len(cells), last + 1)
    table = pd.DataFrame(cells, columns=pd.Index(names, name=first), index=list(index), dtype=object)
    hidden = [f"'{other.title}'" for other in filled if other is not one]
    notes = [f"{path}: sheet '{one.title}', not the hidden {', '.join(hidden)} (--sheet)"] if hidden else []
    for what, places in one.doubts.items():
        if listed := [place for row, place in places if row >= first]:
            notes.append(f"{path}, sheet '{one.title}': {what}: {enumerate_some(listed, 5)}")
    places = ((row - index[0], column, name) for (row, column), name in one.formats.items() if row in index)
    formats = {(row, columns.index(column)): name for row, column, name in places}
    table.attrs = {"notes": notes, "formats": formats}
    return table


def _read_sheet(book: Any, sheet: Any) -> Sheet:
    """The cells of a sheet, whatever range it declares."""
    from openpyxl.cell.read_only import ReadOnlyCell
    from openpyxl.utils import range_boundaries
    from openpyxl.utils.escape import unescape
    from openpyxl.worksheet._reader import FORMULA_TAG, WorkSheetParser

    class Parser(WorkSheetParser):
        def parse_cell(self, element: Any) -> dict[str, Any]:
            cell: dict[str, Any] = super().parse_cell(element)
            # The text "" is a value, of the type "str".
            if cell["value"] is None and "t" not in element.attrib and element.find(FORMULA_TAG) is not None:
                cell["data_type"] = "f"
            return cell

    found = Sheet(sheet.title, sheet.sheet_state != "visible")
    with sheet._get_source() as source:
        parser = Parser(
            source, sheet._shared_strings, data_only=True, epoch=book.epoch,
            date_formats=book._date_formats, timedelta_formats=book._timedelta_formats,
        )  # fmt: skip
        for row, cells in parser.parse():
            for one in cells:
                cell = ReadOnlyCell(sheet, **one)
                value, kind = cell.value, cell.data_type
                if value is None and kind != "f":
                    continue
                values = found.rows.setdefault(row, {})
                if kind in DOUBTS:
                    place = cell.coordinate + (f" ({value})" if value else "")
                    found.doubts.setdefault(DOUBTS[kind], []).append((row, place))
                else:
                    values[cell.column] = unescape(value) if isinstance(value, str) else value
                    if one["style_id"] and cell.number_format != "General":
                        found.formats[row, cell.column] = cell.number_format
    if parser.merged_cells is not None:
        areas = [area.ref for area in parser.merged_cells.mergeCell]
        found.merged = [range_boundaries(area) for area in areas]
        found.doubts[MERGED] = [(top, area) for area, (_, top, _, _) in zip(areas, found.merged, strict=True)]
    hidden = [row for row, set in parser.row_dimensions.items() if set.get("hidden") in ("1", "true")]
    found.doubts[HIDDEN] = [(int(row), row) for row in hidden if int(row) in found.rows]
    return found


def read_dataset(source: str) -> pd.DataFrame:
    """All rows of a data set of the hub, or of a local folder, by the library `datasets`.

    Labels of the type `ClassLabel` are read by their names; the column `SPLIT` is added. Index: the row in
    its split, from 1. Raises `UserError` where the library is missing or cannot load the data set.
    """
    name, _, configuration = source.removeprefix(DATASET).partition(":")
    try:
        import datasets
    except ImportError:
        raise UserError(f"{source}: needs the package datasets; install it: pip install datasets") from None
    try:
        loaded = datasets.load_dataset(name, configuration or None)
    except Exception as error:  # the library raises errors of many kinds
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{source}: cannot be loaded with the library datasets ({reason})") from None
    parts = []
    for split, rows in loaded.items():
        table = pd.DataFrame(rows.to_dict(), dtype=object)
        for column, feature in rows.features.items():
            if hasattr(feature, "int2str"):
                # -1 is how data sets without public labels mark a missing one.
                table[column] = [None if i is None or i < 0 else feature.int2str(i) for i in table[column]]
        table[SPLIT] = split
        parts.append(table.set_axis(range(1, len(table) + 1)))
    return pd.concat(parts)
