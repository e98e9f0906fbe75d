"""Tables that a library reads: Parquet, workbooks (.xlsx), data sets of the Hugging Face hub."""

from __future__ import annotations

import io
from typing import Any

import pandas as pd

from roberta_small.common.errors import UserError, enumerate_some
from roberta_small.common.optional import needed_by
from roberta_small.preprocess.readers.lines import read_bytes
from roberta_small.preprocess.readers.records import DATASET

SPLIT = "split"
"""The column with the split of each row, added to those of a data set of the hub."""


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


def load_workbook(path: str, *, header: bool = True) -> pd.DataFrame:
    """The cells of the only sheet that has any, formulas as their values; index: number of the row."""
    with needed_by(f"{path}: a workbook"):
        import openpyxl
        from openpyxl.utils.escape import unescape

    def value(cell: Any) -> Any:
        """None for an error such as #N/A, text without escapes such as _x000D_."""
        if cell.data_type == "e":
            return None
        return unescape(cell.value) if isinstance(cell.value, str) else cell.value

    data = read_bytes(path)
    try:
        book = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True)
        for sheet in book.worksheets:
            sheet.reset_dimensions()  # which may declare fewer rows than there are
        sheets = {sheet.title: [[value(cell) for cell in row] for row in sheet] for sheet in book.worksheets}
    except Exception as error:  # the library raises errors of many kinds
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{path}: not a workbook ({reason}); save it again as .xlsx") from None
    filled = {
        title: found
        for title, rows in sheets.items()
        if (found := [(i, row) for i, row in enumerate(rows, start=1) if any(x is not None for x in row)])
    }
    if len(filled) != 1:
        titles = enumerate_some([f"'{title}'" for title in filled], 12)
        fault = (
            f"{len(filled)} sheets with cells ({titles}); save one of them" if filled else "no cells; save it"
        )
        raise UserError(f"{path}: {fault} as a file of its own")
    (numbered,) = filled.values()
    width = max(i for _, row in numbered for i, cell in enumerate(row, start=1) if cell is not None)
    names = numbered.pop(0)[1] if header else [str(i + 1) for i in range(width)]
    cells = [(row + [None] * width)[:width] for _, row in numbered]
    columns = ["" if name is None else name for name in (names + [None] * width)[:width]]
    return pd.DataFrame(cells, columns=columns, index=[number for number, _ in numbered], dtype=object)


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
