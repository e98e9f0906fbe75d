"""JSON and JSON lines: one object for each example."""

from __future__ import annotations

import json

import pandas as pd

from roberta_small.common.errors import UserError, enumerate_some
from roberta_small.common.files import json_fault
from roberta_small.preprocess.readers.dialect import UTF_8, decoded

ONE_OBJECT = "write one object with the same keys for each example"


def load_json(path: str, *, encoding: str = UTF_8) -> pd.DataFrame:
    """An array of objects, an object of equally long arrays, or one object per line.

    `{"data": [...]}` is read as its only array.
    """
    try:
        content = json.loads(decoded(path, encoding))
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":  # several values: JSON lines under another suffix
            return load_json_lines(path, encoding=encoding)
        raise UserError(f"{path}, line {error.lineno}: not JSON ({error.msg}); {ONE_OBJECT}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not JSON that can be read ({json_fault(error)}); {ONE_OBJECT}") from None
    if isinstance(content, dict):
        arrays = [value for value in content.values() if isinstance(value, list)]
        if len(arrays) == 1 and all(isinstance(row, dict) for row in arrays[0]):
            content = arrays[0]
        elif len(arrays) > 1 and all(isinstance(row, dict) for array in arrays for row in array):
            raise UserError(
                f"{path}: an array of examples under each of "
                f"{enumerate_some([repr(name) for name in content], 12)}; write one file per "
                "split and pass them as FILE, --valid and --test"
            )
        elif arrays and len(arrays) == len(content) and len({len(array) for array in arrays}) == 1:
            return pd.DataFrame(content, dtype=object)
    if not isinstance(content, list) or not all(isinstance(row, dict) for row in content):
        raise UserError(f"{path}: not an array of objects; {ONE_OBJECT}")
    return pd.DataFrame(content, dtype=object)


def load_json_lines(path: str, *, encoding: str = UTF_8) -> pd.DataFrame:
    """One object per line."""
    rows, numbers = [], []
    for number, line in enumerate(decoded(path, encoding).split("\n"), start=1):
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
