"""readers/binary.py: Parquet and workbooks."""

import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import openpyxl
import pandas as pd
import pytest

from roberta_small.common.errors import UserError
from roberta_small.preprocess.readers.binary import load_workbook
from roberta_small.preprocess.readers.tables import read_table
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


def test_workbooks(tmp_path):
    path = tmp_path / "a.xlsx"
    table = pd.DataFrame({"text": ["=1+1", "a\nb", None], "label": [1, 2.5, "x"]})
    with pd.ExcelWriter(path) as writer:
        table.to_excel(writer, sheet_name="reviews", startrow=1, index=False)
        pd.DataFrame().to_excel(writer, sheet_name="empty")
    # pandas writes the first text as a formula, whose value no program has computed.
    assert rows(str(path)) == [(3, None, "1"), (4, "a b", "2.5"), (5, None, "x")]
    with pd.ExcelWriter(path) as writer:
        table.to_excel(writer, sheet_name="one")
        table.to_excel(writer, sheet_name="two")
    with pytest.raises(UserError, match=r"a\.xlsx: 2 sheets.*'one'.*'two'"):
        read_table(str(path))
    content = path.read_bytes()
    for damaged in (b"PK\x03\x04rest", content[:-400], _with_part(content, "xl/workbook.xml", b"<a><b></a>")):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"a\.xlsx: not a workbook"):
            read_table(str(path))


def _with_part(workbook, name, content):
    """The workbook with another content of one of its parts."""
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(workbook)) as old, zipfile.ZipFile(stream, "w") as new:
        for part in old.namelist():
            new.writestr(part, content if part == name else old.read(part))
    return stream.getvalue()


def test_all_rows_error_values_and_escapes_of_a_workbook(tmp_path):
    book = openpyxl.Workbook()
    for row in (["text", "label"], ["un_x000D_deux", "pos"], ["#N/A", "neg"], ["trois", "#REF!"]):
        book.active.append(row)
    book.active["A3"].data_type = book.active["B4"].data_type = "e"
    book.save(tmp_path / "a.xlsx")
    with zipfile.ZipFile(tmp_path / "a.xlsx") as old, zipfile.ZipFile(tmp_path / "b.xlsx", "w") as new:
        for name in old.namelist():  # the sheet declares two of its four rows
            new.writestr(name, old.read(name).replace(b'ref="A1:B4"', b'ref="A1:B2"'))
    table = load_workbook(str(tmp_path / "b.xlsx"))
    assert table["text"].tolist() == ["un\rdeux", None, "trois"]
    assert table["label"].tolist() == ["pos", "neg", None]
