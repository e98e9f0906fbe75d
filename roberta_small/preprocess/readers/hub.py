"""Data sets of the Hugging Face hub, or of a local folder, read with the `datasets` library.

`datasets:NAME` and `datasets:NAME:CONFIGURATION` stand for all splits of the data set; labels of the type
`ClassLabel` are read by their names.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from roberta_small.common.errors import UserError

PREFIX = "datasets:"
SPLIT = "split"
"""The column with the split of each row, added to those of the data set."""


def is_dataset(source: str) -> bool:
    """Whether a source is a data set's name rather than a file."""
    return source.startswith(PREFIX)


def read_dataset(source: str) -> pd.DataFrame:
    """All rows of a data set; cells as the library gives them. Index: the row in its split, from 1.

    Raises `UserError` where the library is missing or cannot load the data set.
    """
    name, _, configuration = source.removeprefix(PREFIX).partition(":")
    try:
        import datasets
    except ImportError:
        raise UserError(f"{source}: needs the package datasets; install it: pip install datasets") from None
    try:
        loaded = datasets.load_dataset(name, configuration or None)
    except Exception as error:  # the library raises errors of many kinds
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{source}: cannot be loaded with the library datasets ({reason})") from None
    return pd.concat([_rows(split, rows) for split, rows in loaded.items()])


def _rows(split: str, rows: Any) -> pd.DataFrame:
    table = pd.DataFrame(rows.to_dict(), dtype=object)
    for column, feature in rows.features.items():
        if hasattr(feature, "int2str"):
            # -1 is how data sets without public labels mark a missing one.
            table[column] = [None if i is None or i < 0 else feature.int2str(i) for i in table[column]]
    table[SPLIT] = split
    table.index = range(1, len(table) + 1)
    return table
