"""readers/binary.py: Parquet and workbooks."""

import io
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import openpyxl
import pandas as pd
import pytest

from roberta_small.common.errors import UserError
from roberta_small.preprocess.readers.dialect import Dialect
from roberta_small.preprocess.readers.tables import load, read_table
from tests.support.table_files import rows

ROOT = Path(__file__).parents[3]


def test_bytes_in_parquet_are_text_in_utf_8(write):
    for texts, decodable in (([b"\xc3\xa9t\xc3\xa9", b"b"], True), ([b"\xff", b"b"], False)):
        stream = io.BytesIO()
        pd.DataFrame({"text": texts, "label": [b"pos", b"neg"]}).to_parquet(stream)
        path = write("a.parquet", stream.getvalue())
        if decodable:
            assert rows(path) == [(1, "été", "pos"), (2, "b", "neg")]
        else:
            with pytest.raises(UserError, match="row 1, column 'text'"):
                read_table(path)


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="threads are counted where Linux lists them")
def test_parquet_is_read_without_threads_which_abort_a_process_that_ends_early(tmp_path):
    path = str(tmp_path / "a.parquet")
    pd.DataFrame({"text": ["a", None], "label": [None, None]}).to_parquet(path)
    program = f"""
import os, pyarrow.parquet
from roberta_small.preprocess.readers.binary import load_parquet
before = len(os.listdir("/proc/self/task"))
load_parquet({path!r})
assert len(os.listdir("/proc/self/task")) == before
"""
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def workbook(path, *rows, **sheets):
    """A workbook of sheets with these rows."""
    book = openpyxl.Workbook()
    book.active.title = "one"
    for title, content in ({"one": rows} | sheets).items():
        sheet = book[title] if title in book.sheetnames else book.create_sheet(title)
        for row in content:
            sheet.append(row)
    book.save(path)
    return book


def test_sheets(tmp_path):
    path = str(tmp_path / "a.xlsx")
    two = [["text", "label"], ["b", 2.5], [None, "x"]]
    book = workbook(path, ["text", "label"], ["a", 1], two=two, none=[])
    with pytest.raises(UserError, match=r"a\.xlsx: 2 sheets.*--sheet: 'one', 'two'"):
        read_table(path)
    assert rows(path, Dialect(sheet="two")) == [(2, "b", "2.5"), (3, None, "x")]
    for title, what in (("too", "no sheet 'too'"), ("none", "no cells in none")):
        with pytest.raises(UserError, match=f"{what}.*--sheet.*'one', 'two', 'none'"):
            read_table(path, Dialect(sheet=title))
    book["two"].sheet_state = "hidden"
    book.save(path)
    loaded = load(path)
    assert loaded.cells["text"].tolist() == ["a"]
    assert re.search("'one'.*--sheet", loaded.notes[0])
    content = Path(path).read_bytes()
    names = rb"schemas.openxmlformats.org/(spreadsheetml|officeDocument)/2006"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(tmp_path / "b.xlsx", "w") as new:
        for name in old.namelist():
            new.writestr(name, re.sub(names, rb"purl.oclc.org/ooxml/\1", old.read(name)))
    with pytest.raises(UserError, match=r"b\.xlsx: no sheets.*Strict"):
        read_table(str(tmp_path / "b.xlsx"))
    for damaged in (b"PK\x03\x04rest", content[:-400], content.replace(b"workbook.xml", b"workbook.xxx")):
        Path(path).write_bytes(damaged)
        with pytest.raises(UserError, match=r"a\.xlsx: not a workbook"):
            read_table(path)


def test_empty_rows_and_columns_between_cells_and_error_values(tmp_path):
    path = str(tmp_path / "a.xlsx")
    content = [[], [None, "text", None, "label"], [None, "a", None, "x"], [], [None, None, None, "#N/A"]]
    book = workbook(path, *content)
    book["one"]["D5"].data_type = "e"
    book["one"]["D9"].number_format = "0.00"
    book.save(path)
    loaded = load(path)
    assert loaded.cells.columns.tolist() == ["text", "label"]
    assert loaded.cells.to_numpy().tolist() == [["a", "x"], [None, None], [None, None]]
    assert rows(path) == [(3, "a", "x")]
    (note,) = loaded.notes
    assert "D5 (#N/A)" in note


@pytest.mark.parametrize("suffix", [".xlsx", ".csv"])
def test_a_title_above_the_names(tmp_path, suffix):
    path, content = tmp_path / f"a{suffix}", [["Survey 2025"], [], ["avis", "note"], ["bon", 1], ["nul", 0]]
    if suffix == ".csv":
        path.write_text("\n".join(";".join(map(str, row)) for row in content))
    else:
        workbook(path, *content)
    with pytest.raises(UserError, match=r"line \d.*--header-row") as error:
        read_table(str(path))
    first, *others = map(int, re.findall(r"--header-row (\d+)", str(error.value)))
    assert rows(str(path), Dialect(header_row=first)) == [(4, "bon", "1"), (5, "nul", "0")]
    for row in others:
        assert load(str(path), Dialect(header_row=row)).cells.columns[0] == "Survey 2025"
    for row in (2, 9):
        with pytest.raises(UserError, match=f"line {row}.*--header-row"):
            read_table(str(path), Dialect(header_row=row))


def test_the_first_row_is_an_example_or_a_name(tmp_path):
    path = str(tmp_path / "a.xlsx")
    workbook(path, ["a long text", "pos"], ["another long one", "neg"], ["a third one", "pos"])
    with pytest.raises(UserError, match=r"line 1.*'pos'.*--no-header"):
        read_table(path)
    assert len(rows(path, Dialect(header=False))) == 3
    workbook(path, ["text"], ["a"], ["b", "a remark"])
    assert rows(path) == [(2, "a", None), (3, "b", "a remark")]
