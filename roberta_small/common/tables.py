"""Tables as Markdown, LaTeX, CSV and JSON, and the format of numbers, intervals and p-values in cells."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from roberta_small.common.errors import UserError
from roberta_small.common.files import atomic_write
from roberta_small.common.metrics import number
from roberta_small.common.statistics import LEVEL

if TYPE_CHECKING:
    import pandas as pd

SUFFIXES = {"markdown": "md", "csv": "csv", "latex": "tex", "json": "json"}
FORMATS = tuple(SUFFIXES)
PERCENT = f"{100 * LEVEL:g} %"
"""The level of all intervals, as a column heading."""
LEFT_ALIGNED = {"arm", "init", "recipe", "status", "A", "B", "at", "design", "group", "subset", "metric"}
LEFT_ALIGNED |= {"wider", "within noise", "setting", "best"}
LATEX_ESCAPES = str.maketrans(
    {
        **{character: f"\\{character}" for character in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        "±": r"$\pm$",
        "–": "--",
        "−": r"$-$",
        "≤": r"$\leq$",
        **{"“": "``", "”": "''", "‘": "`", "’": "'", "\u2060": "{}"},
    }
)
SINGLE_PRECISION = 2.0**-24
"""Relative error of a value that was logged in single precision."""


class Mean(NamedTuple):
    """A cell of a table that shows the mean of a group."""

    row: int
    """Position in `Table.shown`."""
    column: str
    group: str
    at: str
    """Epoch, or "best"."""
    subset: str
    metric: str
    value: float
    tested: bool = True
    """Whether it is the mean of the reported scores, which significance tests compare."""


@dataclass(frozen=True)
class Table:
    """A table with its caption and notes, which state the conventions of its numbers."""

    name: str
    """File stem; the default LaTeX label is `tab:NAME`."""
    caption: str
    notes: tuple[str, ...]
    data: pd.DataFrame
    """Full precision, one observation per row; used for CSV and JSON."""
    shown: pd.DataFrame
    """Formatted strings; used for Markdown and LaTeX."""
    groups: tuple[str, ...] = ()
    """The group (arm/init) of each row of `shown`, if the rows are groups."""
    means: tuple[Mean, ...] = ()
    """The cells that can be compared with each other."""
    wide: tuple[str, ...] = ()
    """Columns of `shown` that a page has no room for, see `narrow`."""
    wide_notes: tuple[str, ...] = ()
    """Notes on these columns."""
    bold: frozenset[tuple[int, str]] = frozenset()
    """Row and column of the cells in bold."""
    latex_label: str = ""

    @property
    def all_notes(self) -> tuple[str, ...]:
        """The notes, those on wide columns last."""
        return (*self.notes, *self.wide_notes)

    def narrow(self) -> Table:
        """The table without the columns in `wide` and their notes."""
        shown = self.shown.drop(columns=[column for column in self.wide if column in self.shown])
        return replace(self, shown=shown, wide=(), wide_notes=())


def render(tables: Sequence[Table], fmt: str = "markdown") -> str:
    """All tables in one of `FORMATS`, ending with a newline.

    Markdown and LaTeX contain rounded numbers, CSV and JSON full precision (see `shortest`). JSON is one
    object with a key for each table. Raises `UserError` for several tables as CSV, `ValueError` for a
    format that is none.
    """
    if fmt == "csv" and len(tables) > 1:
        names = ", ".join(table.name for table in tables)
        raise UserError(
            f"--format csv prints a single table, but there are {len(tables)} ({names}); choose one with "
            "--table NAME, or write a file for each with --out DIR"
        )
    if fmt not in FORMATS:
        raise ValueError(f"fmt {fmt!r} is none of {', '.join(FORMATS)}")
    if fmt in ("markdown", "latex"):
        return "\n".join(map(_markdown if fmt == "markdown" else _latex, tables))
    found = {}
    for table in tables:
        floats = table.data.select_dtypes("float").columns
        data = table.data.assign(**{column: table.data[column].map(shortest) for column in floats})
        if fmt == "csv":
            return data.to_csv(index=False, lineterminator="\n")
        known = data.notna() & ~data.isin([math.inf, -math.inf])  # others become null
        rows = data.astype(object).where(known, None).to_dict("records")
        found[table.name] = {"caption": table.caption, "notes": list(table.all_notes), "rows": rows}
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"


def write_tables(tables: Sequence[Table], folder: str | os.PathLike[str]) -> list[Path]:
    """Write each table to `folder/NAME.{md,csv,tex,json}`, each file atomically; returns the paths."""
    paths = []
    for table in tables:
        for fmt, suffix in SUFFIXES.items():
            path = Path(folder) / f"{table.name}.{suffix}"
            atomic_write(path, render([table], fmt))
            paths.append(path)
    return paths


def markdown(
    columns: Sequence[str], rows: Iterable[Sequence[str]], align: str = "", *, pad: bool = True
) -> str:
    """A Markdown pipe table that ends with a newline.

    `align` has one letter per column, "l" (left) or "r" (right); the last one also applies to all further
    columns (default: "lr", all but the first to the right). `pad` aligns the columns with spaces.
    """
    align = (align or "lr").ljust(len(columns), (align or "lr")[-1])
    cells = [[str(cell).replace("|", "\\|") for cell in row] for row in [columns, *rows]]
    widths = [max(3, *(len(row[index]) for row in cells)) if pad else 3 for index in range(len(columns))]
    rule = ["-" * w if side == "l" else "-" * (w - 1) + ":" for w, side in zip(widths, align, strict=True)]
    lines = [cells[0], rule, *cells[1:]]
    if pad:
        lines = [
            [
                cell.ljust(width) if side == "l" else cell.rjust(width)
                for cell, width, side in zip(line, widths, align, strict=True)
            ]
            for line in lines
        ]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def text_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a plain text table with two spaces between columns; the first row is the heading."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def _markdown(table: Table) -> str:
    columns = list(table.shown)
    align = "".join("l" if column in LEFT_ALIGNED else "r" for column in columns)
    notes = "".join(f"- {note}\n" for note in table.all_notes).replace("*", r"\*")
    rows = _cells(table, lambda cell: cell.replace("*", r"\*"), "**{}**")
    return f"**{table.caption}**\n\n{markdown(columns, rows, align)}\n{notes}"


def _cells(table: Table, escape: Callable[[str], str], bold: str) -> list[list[str]]:
    """The escaped cells of `shown`; those in bold are in the format `bold`."""
    return [
        [
            bold.format(escape(str(cell))) if (row, column) in table.bold else escape(str(cell))
            for column, cell in zip(table.shown, cells, strict=True)
        ]
        for row, cells in enumerate(table.shown.to_numpy().tolist())
    ]


def shortest(value: float) -> float:
    """The value with the fewest significant digits that differ from it by at most 2^-24 of it.

    Logs are in single precision: 84.4 is read as 84.4000015258789. Further digits are noise. Whole numbers
    are returned as they are.
    """
    if not math.isfinite(value) or value == int(value):
        return value
    for digits in range(1, 9):
        rounded = float(f"{value:.{digits - 1}e}")
        if abs(rounded - value) <= SINGLE_PRECISION * abs(value):
            return rounded
    return value


def _latex(table: Table) -> str:
    """A LaTeX float that needs the package booktabs."""

    def escape(cell: str) -> str:
        cell = re.sub(r'"([^"]*)"', r"“\1”", re.sub(r"(?<!\w)'([^']*)'(?!\w)", r"‘\1’", cell))
        return re.sub("-(?=-)", "-\u2060", cell.replace('"', "”")).translate(LATEX_ESCAPES)

    def line(cells: Sequence[str]) -> str:
        text = " & ".join(cells)  # [ or * would be an argument of the row before
        return f"  {'{}' if text.startswith(('[', '*')) else ''}{text} " + r"\\"

    columns = list(table.shown)
    alignment = "".join("l" if column in LEFT_ALIGNED else "r" for column in columns)
    return "\n".join(
        [
            r"% needs \usepackage{booktabs}",
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{escape(table.caption)}}}",
            rf"\label{{{table.latex_label or f'tab:{table.name}'}}}",
            rf"\begin{{tabular}}{{{alignment}}}",
            r"  \toprule",
            line([escape(column) for column in columns]),
            r"  \midrule",
            *(line(row) for row in _cells(table, escape, r"\textbf{{{}}}")),
            r"  \bottomrule",
            r"\end{tabular}",
            *(rf"\par\footnotesize {escape(note)}" for note in table.all_notes),
            r"\end{table}",
            "",
        ]
    )


def mean_std_cell(mean: float, std: float, metric: str, n: float | None = None) -> str:
    """`67.23 ± 1.28`, and with `n` (number of values, NaN if unknown) `67.23 ± 1.28 (3)`."""
    cell = f"{number(mean, metric)} ± {number(std, metric)}"
    if n is None:
        return cell
    return f"{cell} ({'–' if math.isnan(n) else f'{n:.0f}'})"


def interval(low: float, high: float, metric: str) -> str:
    """`[65.86, 69.10]`, or a dash if it is NaN."""
    return "–" if math.isnan(low) else f"[{number(low, metric)}, {number(high, metric)}]"


def signed(value: float, metric: str) -> str:
    """A difference with its sign: `+1.28`, or a dash for NaN."""
    if math.isnan(value):
        return "–"
    return ("+" if value > 0 else "−" if value < 0 else "") + number(abs(value), metric)


def signed_interval(low: float, high: float, metric: str) -> str:
    """The interval of a difference: `[−1.00, +2.00]`, or a dash if it is NaN."""
    return "–" if math.isnan(low) else f"[{signed(low, metric)}, {signed(high, metric)}]"


def p_value(p: float) -> str:
    """Three decimals, or `<0.001`; a dash if it is missing."""
    if _missing(p):
        return "–"
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def whole(value: float) -> str:
    """A count with thousands separators; `>100,000` for infinity, a dash if it is missing."""
    if _missing(value):
        return "–"
    return ">100,000" if math.isinf(value) else f"{value:,.0f}"


def duration(seconds: float) -> str:
    """A time as `1:02:03`, or `2:03` under an hour."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _missing(value: object) -> bool:
    from pandas import isna  # imported here: plain tables need no pandas

    return bool(isna(value))
