"""Generated workbooks: our reader finds what a spreadsheet program shows."""

import datetime
import io
import re
import zipfile

import openpyxl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openpyxl.cell.rich_text import CellRichText, TextBlock
from openpyxl.cell.text import InlineFont
from openpyxl.xml.constants import SHARED_STRINGS, SHEET_MAIN_NS

from roberta_small.preprocess.readers.dialect import Dialect
from roberta_small.preprocess.readers.tables import load

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


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("generated")


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
