"""Generated tables and label cells: our reader agrees with an independent one, or stops with an error."""

import csv
import datetime
import io
import json
import re
import zipfile

import numpy as np
import openpyxl
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from openpyxl.cell.rich_text import CellRichText, TextBlock
from openpyxl.cell.text import InlineFont
from openpyxl.xml.constants import SHARED_STRINGS, SHEET_MAIN_NS
from sklearn.preprocessing import MultiLabelBinarizer

from roberta_small.common.errors import UserError
from roberta_small.preprocess.label_cells import LabelOptions, read
from roberta_small.preprocess.readers.dialect import Dialect
from roberta_small.preprocess.readers.tables import load

NASTY = st.text(st.sampled_from(list("ab\"',;|\t =-1.é’ \u2028")), min_size=1, max_size=12)
WORDS = st.lists(NASTY, min_size=1, max_size=4).map(" ".join)
LINES = st.lists(WORDS, min_size=1, max_size=3).map("\n".join)
LABELS = st.sampled_from(["pos", "neg", "1", "0", "NA", "très bon"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("generated")


def write(folder, name, content):
    path = folder / name
    path.write_text(content, encoding="utf-8", newline="")
    return str(path)


@given(
    st.lists(st.tuples(LINES, LABELS), min_size=1, max_size=12), st.sampled_from(",;|\t"), st.booleans(),
    st.sampled_from(["\n", "\r\n"]), st.booleans(),
)  # fmt: skip
def test_what_the_csv_module_writes_is_read_as_written(folder, rows, delimiter, all_quoted, end, mark):
    if delimiter == "\t":  # a tab and a line break in one field could also be two rows without quoting
        rows = [(text.replace("\t", " "), label) for text, label in rows]
    stream = io.StringIO()
    quoting = csv.QUOTE_ALL if all_quoted else csv.QUOTE_MINIMAL
    writer = csv.writer(stream, delimiter=delimiter, quoting=quoting, lineterminator=end)
    writer.writerows([("text", "label"), *rows])
    content = ("\ufeff" if mark else "") + stream.getvalue()
    path = write(folder, "a.tsv" if delimiter == "\t" else "a.csv", content)
    try:
        found = load(path).cells
    except UserError:
        return  # it cannot be told from a file with a quotation mark that is not closed
    assert found["text"].tolist() == [text for text, _ in rows]
    assert found["label"].tolist() == [label for _, label in rows]
    independent = pd.read_csv(path, sep=delimiter, dtype=str, keep_default_na=False, encoding="utf-8-sig")
    assert independent["text"].tolist() == found["text"].tolist()


NAMES = st.text(st.sampled_from(list("ab\"'`,;|[](){}<>.:\\ é01-")), min_size=1, max_size=7)
NAMES = NAMES.map(lambda name: " ".join(name.split())).filter(bool)
SETS = st.lists(st.lists(NAMES, max_size=3, unique=True), min_size=2, max_size=8)
LISTS = {
    "JSON": json.dumps,
    "Python": str,
    "tuples": lambda row: str(tuple(row)),
    "sets": lambda row: str(set(row)),
    "frozen": lambda row: str(frozenset(row)),
    "NumPy": lambda row: str(np.array(row)),
    "objects": lambda row: repr(np.array(row, dtype=object)),
    "strings of NumPy": lambda row: str([np.str_(name) for name in row]),
}
VECTORS = LISTS | {
    "floats": lambda row: str([float(cell) for cell in row]),
    "truth values": lambda row: json.dumps(list(map(bool, row))),
    "NumPy": lambda row: str(np.array(row)),
    "NumPy floats": lambda row: str(np.array(row, dtype=float)),
    "NumPy truth values": lambda row: str(np.array(row, dtype=bool)),
    "spaces": lambda row: " ".join(map(str, row)),
    "separator": lambda row: "; ".join(map(str, row)),
}
del VECTORS["sets"], VECTORS["frozen"], VECTORS["strings of NumPy"]
MARKS = {("", "."), ("", ","), (",", "."), (".", ","), (" ", ","), ("’", ".")}
"""Notations of numbers: between groups of three digits, and before the decimals."""


def reading(cells, task=None, separator=None):
    """The kind of the labels, and the line of each cell."""
    kind, lines, _ = read([(cell, "a.csv", 2) for cell in cells], LabelOptions(task, separator), "a.csv")
    return kind.task, [lines[cell] for cell in cells]


def squeezed(write, rows):
    return [" ".join(write(row).split()) for row in rows]  # as every cell of labels


@given(SETS, st.sampled_from(sorted(LISTS)))
def test_lists_of_labels_are_read_in_each_notation(rows, notation):
    assume(any(sorted(row) != ["0", "1"] for row in rows))  # which are vectors
    kind, found = reading(squeezed(LISTS[notation], rows))
    assert kind == "multi-label"
    assert list(map(json.loads, found)) == list(map(sorted, rows))


@given(SETS, st.sampled_from("|;,/"))
def test_separated_labels_are_split_with_the_option_only(rows, separator):
    rows = [row for row in rows if row and not any(set(name) & {separator} for name in row)]
    assume(any(sorted(row) != ["0", "1"] for row in rows))
    cells = squeezed(f" {separator} ".join, rows)
    try:
        kind, found = reading(cells)
        assert kind != "classification" or found == cells
    except UserError:
        assert any(mark in cell for cell in cells for mark in "|;,[{")
    assume(not any(cell[0] in "[{(" for cell in cells))  # which would be lists
    assert list(map(json.loads, reading(cells, separator=separator)[1])) == list(map(sorted, rows))


@given(
    st.lists(st.lists(st.integers(0, 1), min_size=5, max_size=5), min_size=1), st.integers(2, 5),
    st.sampled_from(sorted(VECTORS)),
)  # fmt: skip
def test_indicator_vectors_are_read_in_each_notation(rows, size, notation):
    rows = [row[:size] for row in rows]
    kind, found = reading(squeezed(VECTORS[notation], rows))
    positions = MultiLabelBinarizer(classes=range(len(rows[0]))).fit([[]]).inverse_transform(np.array(rows))
    assert kind == "multi-label"
    assert [json.loads(line) for line in found] == [list(map(str, row)) for row in positions]


def written(value, digits, marks):
    return f"{value:,.{digits}f}".translate({ord(","): marks[0], ord("."): marks[1]})


def readings(cells):
    """The values of the cells in each notation that would write them so."""
    for marks in sorted(MARKS):
        texts = [cell.replace(marks[0], "") if marks[0] else cell for cell in cells]
        digits = [len(cell.partition(marks[1])[2]) for cell in cells]
        try:
            values = [float(text.replace(marks[1], ".")) for text in texts]
        except ValueError:
            continue
        if [written(*one, marks) for one in zip(values, digits, strict=True)] == cells:
            yield values


@given(
    st.lists(st.decimals(-50_000, 50_000, places=3), min_size=22, max_size=30, unique=True),
    st.sampled_from([0, 1, 3]), st.sampled_from(sorted(MARKS)),
)  # fmt: skip
def test_numbers_have_one_reading_or_are_refused(numbers, digits, marks):
    cells = [written(number, digits, marks) for number in numbers]
    possible = list(readings(cells))
    try:
        kind, found = reading(cells)
    except UserError:
        labels = any(" " in cell and set(cell.split()) <= set(cells) for cell in cells)  # 1 336, 1, 336
        assert labels or len({tuple(values) for values in possible}) > 1
    else:
        assert kind == "classification" or list(map(float, found)) in possible


TEXTS = st.lists(st.sampled_from(["a", "é<", "= ", "_x000D_", "_x005F_", "_x00e9_", "x0041_"]), min_size=1)
MOMENTS = st.datetimes(datetime.datetime(1950, 1, 1)).map(
    lambda moment: moment.replace(microsecond=0, fold=0)
)
SPANS = st.integers(1, 10**6).map(lambda seconds: datetime.timedelta(seconds=seconds))
CELLS = st.one_of(  # the kind of a cell, and what is written
    st.just(("nothing", None)),
    st.tuples(st.sampled_from(["text", "rich text", "result"]), TEXTS.map("".join)),
    st.tuples(st.sampled_from(["number", "result"]), st.sampled_from([0, -7, 2.5, 12345678901])),
    st.tuples(st.just("value"), st.one_of(st.booleans(), SPANS, MOMENTS)),
    st.tuples(st.just("error"), st.sampled_from(["#N/A", "#REF!", "#DIV/0!"])),
    st.just(("formula", "=1+1")),
)  # fmt: skip
RULE = '<dataValidations count="1"><dataValidation type="list" sqref="A1 #REF!"/></dataValidations>'
"""A rule for cells that no longer exist, which openpyxl refuses."""
STRING = re.compile('t="inlineStr"><is>(.*?)</is>')
RESULT = re.compile("(<c [^>]*)><f>RESULT(.*?)</f><v></v>")


def write_cell(cell, kind, value):
    if kind == "rich text":
        value = CellRichText(value[:1], TextBlock(InlineFont(b=True), value[1:] or " "))
    cell.value = f"=RESULT{value}" if kind == "result" else value
    cell.data_type = {"text": "s", "error": "e"}.get(kind, cell.data_type)


def meant(kind, value):
    """What a spreadsheet program shows."""
    if kind in ("nothing", "error", "formula") or not isinstance(value, str):
        return value if kind in ("value", "number", "result") else None
    shown = value + " " * (kind == "rich text" and len(value) == 1)
    return re.sub("_x([0-9A-Fa-f]{4})_", lambda match: chr(int(match[1], 16)), shown)


def save(book, path, *, shared):
    """As other programs: a wrong range, results of formulas, and texts in a part of their own."""
    stream, texts = io.BytesIO(), []
    book.save(stream)

    def with_result(match):
        kind = "n" if re.fullmatch(r"-?[\d.]+", match[2]) else "str"
        return f'{match[1]} t="{kind}"><f>1</f><v>{match[2]}</v>'

    def moved(match):
        texts.append(f"<si>{match[1]}</si>")
        return f't="s"><v>{len(texts) - 1}</v>'

    with zipfile.ZipFile(stream) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            content = old.read(name).decode()
            if name.startswith("xl/worksheets/sheet"):
                content = re.sub('<dimension ref="[^"]*"', '<dimension ref="A1:B2"', content)
                content = RESULT.sub(with_result, content)
                content = STRING.sub(moved, content) if shared else content
                content = content.replace("</sheetData>", f"</sheetData>{RULE}")
            if name == "[Content_Types].xml":
                part = f'<Override PartName="/xl/sharedStrings.xml" ContentType="{SHARED_STRINGS}"/></Types>'
                content = content.replace("</Types>", part if shared else "</Types>")
            new.writestr(name, content)
        if shared:
            new.writestr("xl/sharedStrings.xml", f'<sst xmlns="{SHEET_MAIN_NS}">{"".join(texts)}</sst>')


@given(
    st.lists(st.lists(CELLS, min_size=3, max_size=3), min_size=1, max_size=8), st.integers(0, 2),
    st.integers(0, 2), st.booleans(), st.data(),
)  # fmt: skip
def test_workbooks_with_every_kind_of_cell(folder, rows, above, left, shared, data):
    rows = [*rows, [("text", "last"), ("text", "pos"), ("number", 0)]]
    book, path = openpyxl.Workbook(), str(folder / "a.xlsx")
    sheet, hidden = book.active, data.draw(st.sampled_from(["hidden", "veryHidden", "visible"]))
    book.create_sheet("lists").sheet_state = hidden
    book["lists"].append(["pos"] if hidden != "visible" else [])
    for number in range(1, above + 1):
        sheet.cell(number, left + 1, f"title {number}")
    names = [("text", "text"), ("text", "label"), ("number", 2026)]
    for number, row in enumerate([names, *rows], start=above + 1):
        for column, (kind, value) in enumerate(row, start=left + 1):
            write_cell(sheet.cell(number, column), kind, value)
    first, last = sorted(data.draw(st.tuples(st.integers(0, len(rows) - 2), st.integers(0, len(rows) - 2))))
    column, top = data.draw(st.integers(0, 2)), above + 2
    if first < last:
        cell = sheet.cell(top + first, left + 1 + column)
        sheet.merge_cells(f"{cell.coordinate}:{cell.column_letter}{top + last}")
        for row in rows[first + 1 : last + 1]:
            row[column] = rows[first][column]
    sheet.row_dimensions[top].hidden = data.draw(st.booleans())
    save(book, path, shared=shared)
    loaded = load(path, Dialect(header_row=above + 1, sheet=data.draw(st.sampled_from([None, "Sheet"]))))
    assert loaded.cells.columns.tolist() == ["text", "label", "2026"]
    assert loaded.cells.index.tolist() == list(range(top, top + len(rows)))
    assert repr(loaded.cells.to_numpy().tolist()) == repr([[meant(*cell) for cell in row] for row in rows])
    noted = "\n".join(loaded.notes)
    faults = [kind for row in rows for kind, _ in row if kind in ("error", "formula")]
    assert ("errors" in noted, "formulas" in noted) == ("error" in faults, "formula" in faults)
    assert ("merged" in noted) == (first < last and rows[first][column][0] != "nothing")
    filled = any(kind != "nothing" for kind, _ in rows[0])
    assert ("hidden rows" in noted) == bool(sheet.row_dimensions[top].hidden and filled)
