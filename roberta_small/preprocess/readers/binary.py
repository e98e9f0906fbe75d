"""Parquet and workbooks (.xlsx)."""

from __future__ import annotations

import io
from typing import Any

import pandas as pd

from roberta_small.common.errors import UserError, enumerate_some
from roberta_small.preprocess.readers.lines import open_raw


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


def load_workbook(path: str, *, header: bool = True) -> pd.DataFrame:
    """The cells of the only sheet of a workbook that has any; the index is the number of the row.

    Formulas count as the values that the workbook stores for them, error values as empty. Raises `UserError`
    for a file that is no workbook, and for several sheets with cells.
    """
    try:
        import openpyxl
    except ImportError:
        raise UserError(f"{path}: a workbook needs openpyxl; install it: pip install openpyxl") from None
    with open_raw(path) as stream:
        data = io.BytesIO(stream.read())
    try:
        book = openpyxl.load_workbook(data, read_only=True, data_only=True)
        for sheet in book.worksheets:
            sheet.reset_dimensions()  # which may declare fewer rows than there are
        sheets = {sheet.title: [[_value(cell) for cell in row] for row in sheet] for sheet in book.worksheets}
    except Exception as error:  # the library raises errors of many kinds
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{path}: not a workbook ({reason}); save it again as .xlsx") from None
    filled = {title: rows for title, rows in sheets.items() if any(map(_has_cells, rows))}
    if len(filled) != 1:
        titles = enumerate_some([f"'{title}'" for title in filled], 12)
        fault = (
            f"{len(filled)} sheets with cells ({titles}); save one of them" if filled else "no cells; save it"
        )
        raise UserError(f"{path}: {fault} as a file of its own")
    (rows,) = filled.values()
    numbered = [(number, [*row]) for number, row in enumerate(rows, start=1) if _has_cells(row)]
    width = max(
        column for _, row in numbered for column, value in enumerate(row, start=1) if value is not None
    )
    names = numbered.pop(0)[1] if header else [str(i + 1) for i in range(width)]
    cells = [(row + [None] * width)[:width] for _, row in numbered]
    columns = ["" if name is None else name for name in (names + [None] * width)[:width]]
    return pd.DataFrame(cells, columns=columns, index=[number for number, _ in numbered], dtype=object)


def _value(cell: Any) -> Any:
    """The value of a cell: None for an error such as #N/A, text without escapes such as _x000D_."""
    from openpyxl.utils.escape import unescape

    if cell.data_type == "e":
        return None
    return unescape(cell.value) if isinstance(cell.value, str) else cell.value


def _has_cells(row: Any) -> bool:
    return any(value is not None for value in row)
