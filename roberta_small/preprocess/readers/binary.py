"""Tables that a library reads: Parquet, workbooks (.xlsx), data sets of the Hugging Face hub."""

from __future__ import annotations

import io
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from roberta_small.common.cli import nearest
from roberta_small.common.errors import UserError, enumerate_some
from roberta_small.common.optional import needed_by
from roberta_small.preprocess.readers.lines import read_bytes
from roberta_small.preprocess.readers.records import DATASET

SPLIT = "split"
"""The column with the split of each row, added to those of a data set of the hub."""
DOUBTS = {
    "e": "errors, read as empty cells",
    "f": "formulas without a value, read as empty cells; save the file in a spreadsheet program",
}
"""Type of a cell in `openpyxl` -> what is said about it."""
MERGED, HIDDEN = "merged cells, whose value is in each of their rows", "hidden rows, read as the others"


def load_parquet(path: str) -> pd.DataFrame:
    """The columns of a Parquet file."""
    with needed_by(f"{path}: Parquet"):
        import pyarrow
        import pyarrow.parquet
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
    with needed_by(f"{path}: a workbook"):
        import openpyxl
        from openpyxl.utils import range_boundaries
        from openpyxl.utils.escape import unescape
    data = read_bytes(path)
    try:
        with warnings.catch_warnings(action="ignore"):  # of parts that are not read
            book = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True)
            parsed = [(one, *_parse(one)) for one in book.worksheets if sheet in (None, one.title)]
    except Exception as error:  # the library raises errors of many kinds
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{path}: not a workbook ({reason}); save it again as .xlsx") from None
    if not book.sheetnames:
        raise UserError(f"{path}: no sheets, as in the format Strict Open XML; save it again as .xlsx")
    filled = [found for found in parsed if found[2]]
    chosen = [found for found in filled if found[0].sheet_state == "visible"] or filled
    if len(chosen) != 1:
        titles = [one.title for one, *_ in chosen] or book.sheetnames
        what = f"{len(chosen)} sheets with cells" if chosen else f"no cells in {sheet or 'any sheet'}"
        what = f"no sheet {sheet!r}" if sheet not in (None, *book.sheetnames) else what
        shown = enumerate_some(map(repr, titles), 12) + nearest(sheet or "", titles)
        raise UserError(f"{path}: {what}; choose one with cells with --sheet: {shown}")
    ((one, parser, rows),) = chosen
    first, last = header_row or min(rows), max(rows)
    doubts = defaultdict(list)
    for area in parser.merged:
        left, top, _, bottom = range_boundaries(area)
        if top > first and left in rows.get(top, {}):
            doubts[MERGED].append(area)
            for row in range(top, min(bottom, last) + 1):
                rows.setdefault(row, {})[left] = rows[top][left]
    columns = sorted({column for row in rows if row >= first for column in rows[row]})
    cells = [[rows.get(row, {}).get(column) for column in columns] for row in range(first, last + 1)]
    formats: dict[tuple[int, int], str] = {}
    for row, line in enumerate(cells, start=first):
        if any(line) and parser.row_dimensions.get(str(row), {}).get("hidden") in ("1", "true"):
            doubts[HIDDEN].append(str(row))
        for i, cell in enumerate(line):
            if cell and cell.data_type in DOUBTS:
                doubts[DOUBTS[cell.data_type]].append(f"{cell.coordinate} ({cell.value})")
                line[i] = None
            elif cell:
                line[i] = unescape(cell.value) if isinstance(cell.value, str) else cell.value
                if cell.has_style:
                    formats[row, i] = cell.number_format
    table = pd.DataFrame(cells, index=list(range(first, last + 1)), dtype=object)
    where = f"{path}, sheet '{one.title}'"
    notes = [f"{where}: {what}: {enumerate_some(found, 5)}" for what, found in doubts.items()]
    if len(filled) > 1:
        notes.append(f"{where}: the other sheets with cells are hidden; choose one with --sheet")
    table.attrs = {"notes": notes, "formats": formats}
    return table


def _parse(sheet: Any) -> tuple[Any, dict[int, dict[int, Any]]]:
    """The parser of a sheet, and row -> column -> cell, whatever range the sheet declares."""
    from openpyxl.cell.read_only import ReadOnlyCell
    from openpyxl.cell.text import Text
    from openpyxl.worksheet._reader import FORMULA_TAG, MERGE_TAG, ROW_TAG, WorkSheetParser, iterparse

    class Parser(WorkSheetParser):
        merged: Sequence[str] = ()

        def parse(self) -> Iterator[tuple[int, list[dict[str, Any]]]]:
            for _, element in iterparse(self.source):  # rules may be what the library refuses
                if element.tag == MERGE_TAG:
                    self.merged = [area.get("ref") for area in element]
                if element.tag == ROW_TAG:
                    yield self.parse_row(element)
                    element.clear()

        def parse_cell(self, element: Any) -> dict[str, Any]:
            cell: dict[str, Any] = super().parse_cell(element)
            # The text "" is a value, of the type "str".
            if cell["value"] is None and "t" not in element.attrib and element.find(FORMULA_TAG) is not None:
                cell |= {"value": "formula", "data_type": "f"}
            return cell

    book, rows = sheet.parent, {}
    # The texts that cells refer to: `openpyxl` would remove `x005F_` from them.
    names = [name for name in book._archive.namelist() if name.lower().endswith("sharedstrings.xml")]
    nodes = (node for name in names for _, node in iterparse(book._archive.open(name)))
    strings = [Text.from_tree(node).content for node in nodes if node.tag.endswith("}si")]
    with sheet._get_source() as source:
        how = {"date_formats": book._date_formats, "timedelta_formats": book._timedelta_formats}
        parser = Parser(source, strings, data_only=True, epoch=book.epoch, **how)
        for row, found in parser.parse():
            if cells := [ReadOnlyCell(sheet, **cell) for cell in found if cell["value"] is not None]:
                rows[row] = {cell.column: cell for cell in cells}
    return parser, rows


def read_dataset(source: str) -> pd.DataFrame:
    """All rows of a data set of the hub, or of a local folder, by the library `datasets`.

    Labels of the type `ClassLabel` are read by their names; the column `SPLIT` is added. Index: the row in
    its split, from 1. Raises `UserError` where the library is missing or cannot load the data set.
    """
    name, _, configuration = source.removeprefix(DATASET).partition(":")
    with needed_by(source):
        import datasets
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
