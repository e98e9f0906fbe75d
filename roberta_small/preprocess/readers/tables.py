"""Tables of labelled text: CSV, TSV, JSON, JSON lines, Parquet, workbooks; also compressed (.gz, .xz, .bz2).

    register_table  add a format
    load            a file -> its cells as stored, and how it is written; the index is the line of each row
    read_table      the same with the cells as strings
    choose_columns  which columns are text, second text, label and split; guessed where unambiguous
    read            the records of a file, for the registry of readers

Every cell of `read_table` is text: `01` and `NA` stay as written. A line break, tab or NUL within a cell
becomes a space, because the data of this project have one text per line; leading and trailing white
space and byte order marks are removed.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from roberta_small.common.cli import nearest
from roberta_small.common.errors import UserError, enumerate_some
from roberta_small.preprocess.readers.delimited import delimiter_of
from roberta_small.preprocess.readers.dialect import (
    BYTE_ORDER_MARK,
    CERTAIN,
    FLAGS,
    UTF_8,
    Dialect,
    decoded,
    encoding_of,
)
from roberta_small.preprocess.readers.records import TABLE, Record, claim, format_suffix, suffixes_of

TEXT_NAMES = (
    ("text", "sentence", "review", "content", "comment", "body", "document", "tweet", "message"),
    ("utterance", "post", "question", "texte", "phrase", "avis", "commentaire", "critique", "contenu"),
)
"""Names of the column of texts; the second ones count if there is none of the first."""
PAIR_NAMES = (
    ("premise", "hypothesis"),
    ("sentence1", "sentence2"),
    ("sentence_1", "sentence_2"),
    ("question1", "question2"),
    ("text1", "text2"),
    ("text_a", "text_b"),
)
LABEL_NAMES = (
    ("label", "labels", "class", "category", "stars", "rating", "sentiment", "polarity", "target"),
    ("gold_label", "gold", "intent", "topic", "emotion", "étiquette", "classe", "catégorie", "note"),
    ("score", "similarity_score", "relatedness_score"),
)
COLUMN_NAMES = frozenset([*TEXT_NAMES[0], *LABEL_NAMES[0], *(name for pair in PAIR_NAMES for name in pair)])
"""Names that show that a line is the header of a table."""
LINE_BREAKS = re.compile(r"\r\n|[\n\r\t\x00]")
TRUE = frozenset({"1", "1.0", "true", "t", "yes", "y", "x", "oui", "vrai"})
FALSE = frozenset({"0", "0.0", "false", "f", "no", "n", "non", "faux"})
"""Cells of a column that says whether a row has a label; an empty one means that it does not."""
SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a character outside the 16-bit range, which JSON can contain (\\ud83d) and UTF-8 cannot."""
TEXT_WORDS = 3
"""A column name with this many words may be a text, so that the file has no row of names."""
TITLE_ROWS = 10
"""Rows in which the names of the columns are looked for below a title."""
WORD_BEYOND_ASCII = re.compile(r"\w*[^\W\x00-\x7f]\w*")
UNNAMED = re.compile(r"column \d+")
"""The name of a column without one."""
ROLES = ("text", "pair", "label", "split")


@dataclass(frozen=True)
class Columns:
    """The columns of a table by their role; None where it has none, or where it is to be guessed."""

    text: str | None = None
    pair: str | None = None
    label: str | None = None
    split: str | None = None
    more_text: tuple[str, ...] = ()
    """Further columns of text, which are appended to the first one with a space."""
    more_labels: tuple[str, ...] = ()
    """Further columns of labels: each column, the first one too, is a class that a row has or has not."""

    @classmethod
    def of(cls, options: argparse.Namespace) -> Columns:
        """The columns in the options of `add_text_columns` or `add_columns`."""
        text, *more_text = options.text_column or [None]
        label, *more_labels = getattr(options, "label_column", None) or [None]
        split = getattr(options, "split_column", None)
        return cls(text, options.pair_column, label, split, tuple(more_text), tuple(more_labels))

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns of the text, in order."""
        return () if self.text is None else (self.text, *self.more_text)

    @property
    def labels(self) -> tuple[str, ...]:
        """The columns of the labels, in order."""
        return () if self.label is None else (self.label, *self.more_labels)

    def others(self) -> dict[str, list[str]]:
        """The further columns of the roles that have some, as reports record them."""
        found = {"more_text": list(self.more_text), "more_labels": list(self.more_labels)}
        return {role: names for role, names in found.items() if names}

    def named(self) -> dict[str, str]:
        """Role -> column, for the roles that have one."""
        pairs = ((role, getattr(self, role)) for role in ROLES)
        return {role: column for role, column in pairs if column is not None}


Load = Callable[..., "pd.DataFrame"]
"""`load(path)`: the rows with their cells as stored. The index is the line of each row, counted from 1, or a
`RangeIndex` from 0, which becomes the number of the row. `attrs` may have `notes` and `formats` of `Loaded`.
Raises `UserError` for malformed content."""


@dataclass(frozen=True)
class Loaded:
    """What `load` finds in a file."""

    path: str
    cells: pd.DataFrame
    """`str` in CSV and TSV, any type in other formats; a missing cell is None, NaN or ""."""
    dialect: Dialect
    """With what was detected."""
    notes: list[str]
    """What was only detected, and what is suspicious, in sentences for the user."""
    formats: Mapping[tuple[int, int], str] = field(default_factory=dict)
    """(Line, position) of a cell of a workbook -> its number format."""

    def text(self) -> pd.DataFrame:
        """The cells as `str`, or None where empty, without empty rows; errors as for `cleaned`."""
        return _not_empty(cleaned(self.cells, self.path), self.path)


_formats: dict[str, tuple[Load, tuple[str, ...]]] = {}


def register_table(load: Load, suffixes: tuple[str, ...], options: tuple[str, ...] = ()) -> None:
    """Add a format of tables for files with one of `suffixes` (".ods"), in lower case.

    `options` are the fields of `Dialect` that `load` takes as keyword arguments. With "header", which it does
    not take, its first row has the names of the columns.
    """
    claim(TABLE, suffixes)
    _formats.update(dict.fromkeys(suffixes, (load, options)))


class Nested(str):
    """The JSON text of a cell that is an object or an array of several values."""


def read(path: str) -> Iterator[Record]:
    """The rows of a table in file order, with the columns guessed; errors as for `read_table`."""
    table = read_table(path)
    yield from records(table, choose_columns(table.columns, Columns(), path), path)


def records(table: pd.DataFrame, columns: Columns, path: str) -> Iterator[Record]:
    """The rows of `read_table` as records; `UserError` for an object, or an array that is no label."""
    roles = {
        **{column: role for role, column in columns.named().items()},
        **dict.fromkeys(columns.more_text, "text"),
        **dict.fromkeys(columns.more_labels, "label"),
    }
    for line, *cells in zip(table.index, *(table[column].tolist() for column in roles), strict=True):
        values = dict(zip(roles, cells, strict=True))
        for column, value in values.items():
            role = roles[column]
            if isinstance(value, Nested) and not (role == "label" and value.startswith("[")):
                raise UserError(
                    f"{path}, line {line}: the {role} is not a string but {value[:60]}; write one string or "
                    f"number for each example, or choose another column with --{role}-column"
                )
        others = {role: values[column] for role, column in columns.named().items() if role != "text"}
        if columns.more_labels:
            others["label"] = _chosen([(name, values[name]) for name in columns.labels], path, int(line))
        yield Record(joined([values[column] for column in columns.texts]), line=int(line), **others)


def _chosen(cells: Sequence[tuple[str, str | None]], path: str, line: int) -> str | None:
    """The names of the columns that are true in a row, as a JSON array; None if all cells are empty."""
    found = []
    for name, cell in cells:
        value = (cell or "0").casefold()
        if value not in TRUE | FALSE:
            raise UserError(
                f"{path}, line {line}, column '{name}': '{cell}' does not say whether the row has this "
                "label; write 1 or 0"
            )
        found += [name] if value in TRUE else []
    return Nested(json.dumps(found, ensure_ascii=False)) if any(cell for _, cell in cells) else None


def joined(cells: Iterable[str | None]) -> str:
    """The text of several cells."""
    return " ".join(cell for cell in cells if cell)


def read_table(path: str, dialect: Dialect | None = None) -> pd.DataFrame:
    """All rows of a file that are not empty; cells are `str`, or None where empty; errors as for `load`."""
    return load(path, dialect).text()


def load(path: str, dialect: Dialect | None = None) -> Loaded:
    """All rows of a file, also those whose cells are all empty; blank lines of text are not rows.

    Fields of the dialect that are not given are detected, or None where the format has none. For Parquet, and
    for a `.json` file that is one array, the index counts rows from 1. Raises `UserError` with file and line
    where the file is malformed, and where it has no rows or repeats a column's name; also for a given field
    that the format does not have, and as `encoding_of`.
    """
    given, notes = dialect or Dialect(), []
    if format_suffix(path) not in _formats:
        known = enumerate_some(suffixes_of(TABLE), 12)
        raise UserError(f"{path}: not the suffix of a table ({known}); rename the file after its format")
    read_rows, options = _formats[format_suffix(path)]
    if excess := [flag for name, flag in FLAGS.items() if name in given.given() and name not in options]:
        raise UserError(f"{excess[0]}: does not apply to {path}, because of its format; omit the option")
    found = given
    if "encoding" in options and given.encoding is None:
        found = replace(found, encoding=encoding_of(path))
        if found.encoding not in CERTAIN:
            word = WORD_BEYOND_ASCII.search(decoded(path, found.encoding or UTF_8))
            shown = f", for example '{word[0]}'" if word else ""  # which shows whether the encoding is right
            notes.append(
                f"{path}: not UTF-8, read as {found.encoding}{shown} (detected; choose with --encoding)"
            )
    if "delimiter" in options and given.delimiter is None:
        found = replace(found, delimiter=delimiter_of(path, found.encoding or UTF_8, given.header_row))
        if not given.header:
            notes.append(f"{path}: delimiter {found.delimiter!r} (detected; choose with --delimiter)")
    table = read_rows(path, **{name: getattr(found, name) for name in options if name != "header"})
    more, table.attrs = table.attrs, {}
    if isinstance(table.index, pd.RangeIndex) and table.index.start == 0:
        table = table.set_axis(range(1, len(table) + 1))
    if "header" in options:
        table = _with_names(table, found, path)
    cells = _not_empty(_named(table, path), path)
    return Loaded(path, cells, found, notes + more.get("notes", []), more.get("formats", {}))


def _with_names(rows: pd.DataFrame, dialect: Dialect, path: str) -> pd.DataFrame:
    """The rows below that of the names, or all rows with numbers as names.

    Raises `UserError` where the row of the names is empty, an example, or perhaps a title above the names.
    """
    names = [cell_text(cell) or "" for cells in rows.head(1).to_numpy() for cell in cells]
    if dialect.header_row is not None and (not any(names) or rows.index[0] != dialect.header_row):
        raise UserError(f"{path}, line {dialect.header_row}: no names of columns; correct --header-row")
    if not dialect.header or rows.empty:
        return rows.set_axis(range(1, rows.shape[1] + 1), axis=1)
    line, table = rows.index[0], rows.iloc[1:].set_axis(names, axis=1)
    if dialect.header_row is not None:
        return table
    if any(len(name.split()) >= TEXT_WORDS for name in names):
        for column, name in enumerate(names):  # the first row is an example if one cell is a label
            below = {cell_text(cell) for cell in table.iloc[:, column]}
            if name in below and len(below) <= max(2, len(table) / 2):
                raise UserError(
                    f"{path}, line {line}: no names of columns but an example ('{name}' is a value of its "
                    "column); pass --no-header, or insert a line with the names"
                )
    usual = {name for group in (*TEXT_NAMES, *LABEL_NAMES, *PAIR_NAMES) for name in group}
    if names[0] and not any(names[1:]) and names[0].casefold() not in usual:
        head = table.head(TITLE_ROWS)  # whose cells another delimiter may divide, if the title has none
        texts = ["\t".join(filter(None, map(cell_text, cells))) for cells in head.to_numpy()]
        found = [re.split(r"[;\t|]", text) for text in texts]
        sizes = [len(cells) for cells in found]
        start = next((row for row, size in enumerate(sizes) if size > 1), len(sizes))
        if start < len(sizes) and (
            len(names) > 1 or sizes[start + 1 : start + 2] == sizes[start : start + 1]
        ):
            raise UserError(
                f"{path}, line {line}: '{names[0]}' may be a title above the names of the columns, line "
                f"{head.index[start]} ({enumerate_some(map(repr, found[start]))}); pass --header-row "
                f"{head.index[start]}, or else --header-row {line}"
            )
    return table


def cleaned(table: pd.DataFrame, path: str, *, empty: bool = False) -> pd.DataFrame:
    """The cells of any table as text, and None where empty; with `empty`, also rows that are all empty.

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
    return table[[empty or any(row) for row in zip(*cells.values(), strict=True)]]


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
    label, the other is the text. Without `needs_label`, no label is guessed, and none is the text. Raises
    `UserError` for a missing column, one with two roles, and where text or label is ambiguous.
    """
    names = list(names)
    roles: dict[str, str] = {}
    further = [("text", column) for column in given.more_text]
    further += [("label", column) for column in given.more_labels]
    for role, column in [*given.named().items(), *further]:
        if column not in names:
            hint = nearest(column, names)
            raise UserError(f"{path}: no column '{column}' (--{role}-column); it has {listed(names)}{hint}")
        if column in roles:
            flags = dict.fromkeys(f"--{name}-column" for name in (roles[column], role))
            raise UserError(f"{' and '.join(flags)}: '{column}' twice; name two columns")
        roles[column] = role
    free = {name.casefold(): name for name in names if name not in roles}
    label = given.label
    if label is None and needs_label:
        label = _only(free, LABEL_NAMES, "label", path, names)
    text, pair = given.text, given.pair
    if text is None and pair is None:
        text, pair = next(
            ((free[a], free[b]) for a, b in PAIR_NAMES if a in free and b in free), (None, None)
        )
    if text is None:
        usual = {name for group in LABEL_NAMES for name in group}
        excluded = [label] if needs_label else [name for name in names if name.casefold() in usual]
        candidates = {key: name for key, name in free.items() if name not in excluded}
        others = [name for name in names if name not in roles and name not in excluded]
        if len(others) == 1 and (label is not None or not needs_label):
            text = others[0]
        else:
            text = _only(candidates, TEXT_NAMES, "text", path, names)
    if text is None:
        raise UserError(f"{path}: no text column found among {listed(names)}; specify one with --text-column")
    return replace(given, text=text, pair=pair, label=label)


def _only(
    free: Mapping[str, str], usual: Sequence[Sequence[str]], role: str, path: str, names: Sequence[str]
) -> str | None:
    """The column with a usual name of a role, or None; raises `UserError` where there are several."""
    for group in usual:
        found = [name for name in names if name.casefold() in group and name.casefold() in free]
        if len(found) > 1:
            raise UserError(
                f"{path}: several columns could be the {role}: {listed(found)} (columns: {listed(names)}); "
                f"choose one with --{role}-column"
            )
        if found:
            return found[0]
    return None


def listed(names: Sequence[str]) -> str:
    """The names of columns, for messages."""
    unnamed = any(UNNAMED.fullmatch(name) for name in names)
    hint = " (if the names are in another row, pass it as --header-row)" if unnamed else ""
    return enumerate_some([f"'{name}'" for name in names], 12) + hint


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
