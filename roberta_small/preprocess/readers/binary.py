"""Tables that a library reads: Parquet, workbooks (.xlsx), data sets of the Hugging Face hub."""

from __future__ import annotations

import io
import warnings
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
TRUE = ("1", "true")
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


def load_workbook(path: str, *, header_row: int | None = None, sheet: str | None = None) -> pd.DataFrame:
    """The rows of a sheet from `header_row`, or else the first with a cell, to the last with one; index: row.

    Formulas are their values. A cell that is merged over rows is in each of them. `sheet` None: the only one
    that has cells, or the only visible one of them. `attrs` has `notes` and `formats` of `tables.Loaded`.
    """
    try:
        import openpyxl
        from openpyxl.utils import range_boundaries
        from openpyxl.utils.escape import unescape
    except ImportError:
        raise UserError(f"{path}: a workbook needs openpyxl; install it: pip install openpyxl") from None
    data = read_bytes(path)
    try:
        with warnings.catch_warnings(action="ignore"):  # of parts that are not read
            book = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True)
            strings = _shared_strings(book)
            parsed = [(one, *_parse(one, strings)) for one in book.worksheets if sheet in (None, one.title)]
    except Exception as error:  # the library raises errors of many kinds
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{path}: not a workbook ({reason}); save it again as .xlsx") from None
    filled = [found for found in parsed if found[1]]
    chosen = [found for found in filled if found[0].sheet_state == "visible"] or filled
    if len(chosen) != 1:
        titles = [one.title for one, *_ in chosen] or book.sheetnames
        what = f"{len(chosen)} sheets with cells" if chosen else f"no cells in {sheet or 'it'}"
        shown = enumerate_some(map(repr, titles), 12) + nearest(sheet or "", titles)
        raise UserError(f"{path}: {what}; choose a sheet with --sheet: {shown}")
    ((one, rows, merged, hidden),) = chosen
    first, last = header_row or min(rows), max(rows)
    doubts: dict[str, list[str]] = {MERGED: [], HIDDEN: [str(row) for row in hidden if row >= first]}
    for area in merged:
        left, top, _, bottom = range_boundaries(area)
        if top > first and left in rows.get(top, {}):
            doubts[MERGED].append(area)
            for row in range(top, min(bottom, last) + 1):
                rows.setdefault(row, {})[left] = rows[top][left]
    columns = sorted({column for row in rows if row >= first for column in rows[row]})
    index = range(first, last + 1)
    cells = [[rows.get(row, {}).get(column) for column in columns] for row in index]
    formats = {}
    for row, line in zip(index, cells, strict=True):
        for i, cell in enumerate(line):
            if cell is not None and cell.data_type in DOUBTS:
                place = f"{cell.coordinate} ({cell.value})" if cell.value else cell.coordinate
                doubts.setdefault(DOUBTS[cell.data_type], []).append(place)
                line[i] = None
            elif cell is not None:
                line[i] = unescape(cell.value) if isinstance(cell.value, str) else cell.value
                if cell.has_style:
                    formats[row, i] = cell.number_format
    table = pd.DataFrame(cells, index=list(index), dtype=object)
    where = f"{path}, sheet '{one.title}'"
    notes = [f"{where}: {what}: {enumerate_some(found, 5)}" for what, found in doubts.items() if found]
    if others := [repr(other.title) for other, *_ in filled if other is not one]:
        notes.append(f"{where}: the others are hidden ({enumerate_some(others)}); choose one with --sheet")
    table.attrs = {"notes": notes, "formats": formats}
    return table


def _shared_strings(book: Any) -> list[str]:
    """The texts that cells refer to, as written; `openpyxl` removes `x005F_` from them."""
    from openpyxl.cell.text import Text
    from openpyxl.xml.functions import iterparse

    strings = []
    for name in book._archive.namelist():
        if name.lower().endswith("sharedstrings.xml"):
            with book._archive.open(name) as source:
                strings += [
                    Text.from_tree(node).content for _, node in iterparse(source) if node.tag[-3:] == "}si"
                ]
    return strings


def _parse(sheet: Any, strings: list[str]) -> tuple[dict[int, dict[int, Any]], list[str], list[int]]:
    """Row -> column -> cell, the merged areas, and the hidden rows; whatever range the sheet declares."""
    from openpyxl.cell.read_only import ReadOnlyCell
    from openpyxl.worksheet._reader import FORMULA_TAG, WorkSheetParser

    class Parser(WorkSheetParser):
        def parse_cell(self, element: Any) -> dict[str, Any]:
            cell: dict[str, Any] = super().parse_cell(element)
            # The text "" is a value, of the type "str".
            if cell["value"] is None and "t" not in element.attrib and element.find(FORMULA_TAG) is not None:
                cell["data_type"] = "f"
            return cell

    rows, book = {}, sheet.parent
    with sheet._get_source() as source:
        parser = Parser(
            source, strings, data_only=True, epoch=book.epoch,
            date_formats=book._date_formats, timedelta_formats=book._timedelta_formats,
        )  # fmt: skip
        for row, found in parser.parse():
            cells = [ReadOnlyCell(sheet, **cell) for cell in found]
            if kept := {
                cell.column: cell for cell in cells if cell.value is not None or cell.data_type == "f"
            }:
                rows[row] = kept
    merged = [] if parser.merged_cells is None else [area.ref for area in parser.merged_cells.mergeCell]
    hidden = [int(row) for row, settings in parser.row_dimensions.items() if settings.get("hidden") in TRUE]
    return rows, merged, [row for row in hidden if row in rows]


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
