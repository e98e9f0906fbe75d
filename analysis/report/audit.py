"""The result of `python -m preprocess audit` as tables of the report."""

from __future__ import annotations

import os
from typing import Any

import pandas as pd

from roberta_small.common.data_folder import NOTIONS, REMEDY
from roberta_small.common.errors import UserError
from roberta_small.common.files import read_json
from roberta_small.common.tables import Table, whole


def audit_tables(path: str | os.PathLike[str]) -> list[Table]:
    """The size of each split, and the number of lines that also occur in another split.

    Raises `UserError` if the file is not an audit.
    """
    content = read_json(path, REMEDY)
    try:
        return [_splits(content), _duplicates(content)]
    except (KeyError, TypeError, AttributeError, ValueError):
        raise UserError(f"{path}: not an audit file; {REMEDY}") from None


def _splits(content: dict[str, Any]) -> Table:
    rows = [
        {
            "split": name,
            "lines": split["lines"],
            "labels": ", ".join(f"{key}: {value:,}" for key, value in (split.get("labels") or {}).items()),
            "tokens": split.get("tokens"),
            "unknown_percent": 100 * split["unknown_rate"] if "unknown_rate" in split else None,
            "mean_length": (split.get("lengths") or {}).get("mean"),
            "truncated": (split.get("lengths") or {}).get("truncated"),
        }
        for name, split in content["splits"].items()
    ]
    data = pd.DataFrame(rows)
    shown = pd.DataFrame(
        {
            "split": data["split"],
            "lines": data["lines"].map(whole),
            "labels": data["labels"].replace("", "–"),
            "tokens": data["tokens"].map(whole),
            "unknown (%)": [_two_decimals(value) for value in data["unknown_percent"]],
            "mean length": [_two_decimals(value) for value in data["mean_length"]],
            "truncated": data["truncated"].map(whole),
        }
    )
    return Table(
        "audit_splits",
        "Splits",
        ("Lengths in tokens; truncated: number of lines that are cut off.",),
        data,
        shown,
    )


def _duplicates(content: dict[str, Any]) -> Table:
    rows = [
        {"split": split, "other": other}
        | {notion: len(content["duplicates"][notion][split][other]) for notion in NOTIONS}
        for split, others in content["duplicates"][NOTIONS[0]].items()
        for other in others
    ]
    data = pd.DataFrame(rows)
    shown = pd.DataFrame(
        {
            "lines of": data["split"],
            "also in": data["other"],
            **{notion: data[notion].map(whole) for notion in NOTIONS},
        }
    )
    conflicts = len(content.get("conflicts") or ())
    notes = (
        "exact: the same text; normalized: the same words, ignoring case, punctuation and spacing.",
        f"Texts with more than one label: {conflicts:,}.",
    )
    return Table("audit_duplicates", "Duplicates", notes, data, shown)


def _two_decimals(value: float | None) -> str:
    return "–" if pd.isna(value) else f"{value:.2f}"
