"""readers/tables.py: files of each format as rows of text, with the line of each row."""

import bz2
import gzip
import io
import json
import lzma
import os
import re
import subprocess
import sys
import zipfile
from argparse import Namespace
from pathlib import Path

import pandas as pd
import pytest

from roberta_small.common.errors import UserError
from roberta_small.preprocess.readers import read_records
from roberta_small.preprocess.readers.dialect import Dialect, dialect_of
from roberta_small.preprocess.readers.records import COMPRESSED
from roberta_small.preprocess.readers.tables import (
    Columns,
    choose_columns,
    detect,
    read_cells,
    read_table,
    records,
)

ROOT = Path(__file__).parents[3]


@pytest.fixture
def write(tmp_path):
    def to_file(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return to_file


def rows(path, dialect=None):
    table = read_table(path, dialect)
    return list(zip(table.index, *(table[name] for name in table.columns), strict=True))


def test_fields_of_csv(write):
    text = 'text,label\n"a\nb, ""x""",01\n\n"c\r\nd",NA\n,1\ne\0f\tg,\n,\n'
    assert rows(write("a.csv", text)) == [
        (2, 'a b, "x"', "01"),
        (5, "c d", "NA"),
        (7, None, "1"),
        (8, "e f g", None),
    ]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_byte_order_marks_and_windows_line_ends(write, encoding):
    path = write("a.csv", "label;text\r\n\ufeffbad;très\rlong\r\nbad;court\r\n".encode(encoding))
    assert rows(path) == [(2, "bad", "très long"), (3, "bad", "court")]


@pytest.mark.parametrize(("suffix", "compress"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_compressed(write, suffix, compress):
    assert rows(write(f"a.tsv{suffix}", compress(b"text\tlabel\na,b\t1\n"))) == [(2, "a,b", "1")]


def test_quotes_in_tsv(write):
    enclosing = write("a.tsv", 'label\ttext\n1\t"a\tb\nc"\n0\t"d ""e"""\n')
    assert rows(enclosing) == [(2, "1", "a b c"), (4, "0", 'd "e"')]
    ordinary = write("b.tsv", 'label\ttext\n1\t"Casablanca" is good\n0\tan "open one\n0\t"Up"\n')
    assert rows(ordinary) == [(2, "1", '"Casablanca" is good'), (3, "0", 'an "open one'), (4, "0", '"Up"')]


def test_the_delimiter_is_the_one_of_the_header(write):
    assert rows(write("a.csv", "text\tlabel\na, b; c\t1\n")) == [(2, "a, b; c", "1")]
    assert rows(write("b.csv", "\n\ntext;label\na, b;1\n")) == [(4, "a, b", "1")]


def test_a_text_longer_than_the_limit_of_the_csv_module(write):
    text = "a" * 200_000
    assert rows(write("a.csv", f"text,label\n{text},1\n")) == [(2, text, "1")]


def test_other_delimiters(write):
    assert rows(write("a.csv", "text|label\na, b; c|1\n")) == [(2, "a, b; c", "1")]
    assert rows(write("b.csv", "sep=;\ntext;label,x\na,b;1\n")) == [(3, "a,b", "1")]


def test_a_stray_quotation_mark_and_a_line_without_label(write):
    """The quotation mark is an ordinary character, although lines differ in their number of delimiters."""
    path = write("a.tsv", 'text\tlabel\na\t1\n"b is c\t0\nno label\nd\t1\ne" f\t0\n')
    wanted = [("a", "1"), ('"b is c', "0"), ("no label", None), ("d", "1"), ('e" f', "0")]
    assert rows(path) == [(line, *row) for line, row in enumerate(wanted, start=2)]


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


def test_bz2(write):
    assert rows(write("a.csv.bz2", bz2.compress(b"text,label\na,1\n"))) == [(2, "a", "1")]


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_an_uncompressed_table_with_a_compression_suffix_is_an_error(write, suffix):
    with pytest.raises(UserError, match=f"corrupt or truncated {suffix} file"):
        read_table(write(f"a.csv{suffix}", b"text,label\na,1\n"))


def test_a_row_with_fewer_fields_is_filled(write):
    assert rows(write("a.csv", "text,label,other\na,1\nb\n")) == [(2, "a", "1", None), (3, "b", None, None)]


def test_json_lines(write):
    content = '{"text": "a\\nb", "label": 1}\n\n{"label": true, "text": "c"}\n{"text": "d", "label": 2.0}\n'
    assert rows(write("a.jsonl", content)) == [(1, "a b", "1"), (3, "c", "true"), (4, "d", "2")]


@pytest.mark.parametrize(
    "content",
    [
        [{"text": "a", "label": "x"}, {"text": "b", "label": None}],
        {"data": [{"text": "a", "label": ["x"]}, {"text": "b"}]},
        {"text": ["a", "b"], "label": ["x", ""]},
    ],
)
def test_json(write, content):
    assert rows(write("a.json", json.dumps(content))) == [(1, "a", "x"), (2, "b", None)]


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


def test_parquet_as_pandas_writes_it(write):
    stream = io.BytesIO()
    pd.DataFrame({"text": ["a", "b"], "label": [1, None]}).to_parquet(stream)
    assert rows(write("a.parquet", stream.getvalue())) == [(1, "a", "1"), (2, "b", None)]


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("a.csv", "", "a.csv"),
        ("a.csv", "text,label\n", "a.csv"),
        ("a.csv", "text,text,label\na,b,c\n", "'text'"),
        ("a.csv", "text,label\na,b,c\n", "line 2"),
        ("a.csv", 'text,label\n"a\nb",1\nc,d,e\n', "line 4"),
        ("a.csv", 'text,label\na,1\n"b,0\n', "line 3"),
        ("a.csv", 'text,label\na,1\n"Up" is good,0\nb,1\n', "line 3"),
        ("a.csv", 'text,label\n"a,1\nb,0\n"c,1\n', "line 2"),
        ("a.csv", "text,label\ra,1\rb,0\r", "carriage return"),
        ("a.csv", 'text,label\na,1\n"b,0\nc,1\nd,0\ne",1\nf,0\n', "line 3"),
        ("a.tsv", "un bon livre\t1\nun livre plat\t0\nencore un\t1\nun dernier\t0\n", "line 1"),
        ("a.csv", b"\x1f\x8b\x08\x00", ".gz"),
        ("a.csv", b"PK\x03\x04rest", ".zip"),
        ("a.csv", "text,label\na,1\n".encode("utf-16")[:-1], "line 2: not UTF-16"),
        ("a.jsonl", '{"text": "a"}\n{"text": "b \\ud83d"}\n', "line 2"),
        ("a.jsonl", '{"text": "a"}\n{"text"\n', "line 2"),
        ("a.jsonl", '{"text": "a"}\n[1]\n', "line 2"),
        ("a.json", '[{"text": "a"},\n{]', "line 2"),
        ("a.json", "[1, 2]", "a.json"),
        ("a.json", '{"train": [{"text": "a"}], "test": [{"text": "b"}]}', "--test"),
        ("a.json", "[" * 100_000, "a.json"),
        ("a.parquet", "text", "a.parquet"),
        ("a.csv.gz", "text", ".gz"),
    ],
)
def test_malformed_files_are_refused_with_their_place(write, name, content, place):
    with pytest.raises(UserError) as error:
        read_table(write(name, content))
    assert name in str(error.value)
    assert place in str(error.value)


@pytest.mark.parametrize(
    ("names", "columns"),
    [
        (["text", "label"], Columns("text", None, "label")),
        (["id", "Review", "Stars"], Columns("Review", None, "Stars")),
        (["premise", "hypothesis", "label"], Columns("premise", "hypothesis", "label")),
        (["avis", "label"], Columns("avis", None, "label")),
        (["text", "note"], Columns("text", None, "note")),
        (["avis", "note"], Columns("avis", None, "note")),
        (["text", "avis", "id", "label", "note"], Columns("text", None, "label")),
        (["utterance", "id", "intent"], Columns("utterance", None, "intent")),
    ],
)
def test_columns_are_guessed_by_their_names(names, columns):
    assert choose_columns(names, Columns(), "a.csv") == columns


def test_columns_that_are_given_count():
    given = Columns(text="title", label="stars", split="part")
    assert choose_columns(["text", "title", "label", "stars", "part"], given, "a.csv") == given


@pytest.mark.parametrize(
    ("names", "given", "flag", "named"),
    [
        (["a", "b", "label"], Columns(), "--text-column", "'b'"),
        (["text", "review", "label"], Columns(), "--text-column", "'review'"),
        (["text", "label", "stars"], Columns(), "--label-column", "'stars'"),
        (["text", "Text", "label"], Columns(), "--text-column", "'Text'"),
        (["text", "label"], Columns(text="label", label="label"), "--label-column", "--text-column"),
        (["text", "label"], Columns(text="texte"), "--text-column", "text"),
        (["text", "label"], Columns(text="text", more_text=("titre",)), "--text-column", "titre"),
        (["text", "label"], Columns(text="text", more_text=("text",)), "--text-column", "'text'"),
    ],
)
def test_ambiguous_columns_are_an_error(names, given, flag, named):
    with pytest.raises(UserError) as error:
        choose_columns(names, given, "a.csv")
    assert flag in str(error.value)
    assert named in str(error.value)


def test_cells_as_stored(write):
    path = write("a.csv", 'text,id\n" a\rb ",01\n\n,\n"",\nc\n')
    table = read_cells(path)
    assert table["text"].fillna("").tolist() == [" a\rb ", "", "", "c"]
    assert table["id"].fillna("").tolist() == ["01", "", "", ""]
    single = read_cells(write("b.csv", 'text\na\n\n""\nb\n\n'))
    assert single["text"].fillna("").tolist() == ["a", "", "b"]
    assert single.index.tolist() == [2, 4, 5]
    rows = [{"a": 1, "b": [1.5]}, {"a": "x"}, {}]
    stored = read_cells(write("c.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows)))
    assert [list(row) for row in stored.where(stored.notna(), None).to_numpy()] == [
        [1, [1.5]],
        ["x", None],
        [None, None],
    ]


@pytest.mark.parametrize(
    ("names", "text"),
    [(["text", "label", "stars"], "text"), (["avis", "label", "stars"], "avis"), (["avis"], "avis")],
)
def test_columns_of_a_table_without_labels(names, text):
    assert choose_columns(names, Columns(), "a.csv", needs_label=False) == Columns(text)
    with pytest.raises(UserError):
        choose_columns(["a", "b"], Columns(), "a.csv", needs_label=False)


@pytest.mark.parametrize("cell", [{"title": "b"}, ["b", "c"]])
def test_a_text_that_is_no_string_is_refused(write, cell):
    lines = [{"text": "a", "label": ["x", "y"], "other": {}}, {"text": cell, "label": "x", "other": {}}]
    path = write("a.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(UserError) as error:
        list(read_records(path))
    assert "a.jsonl, line 2" in str(error.value)
    assert "--text-column" in str(error.value)


def test_records(write):
    path = write("a.jsonl", '{"sentence1": "a", "sentence2": "b", "label": 0, "part": "dev"}\n')
    (record,) = read_records(path, split_column="part")
    assert (record.text, record.pair, record.label, record.split, record.line) == ("a", "b", "0", "dev", 1)


def test_joined_columns(write):
    path = write("a.csv", "title,body,stars\nUn titre,le texte,5\n,seul,1\nsans suite,,3\n")
    table = read_table(path)
    columns = choose_columns(table.columns, Columns("title", more_text=("body",)), path)
    found = [(record.text, record.label) for record in records(table, columns, path)]
    assert found == [("Un titre le texte", "5"), ("seul", "1"), ("sans suite", "3")]


WRITTEN = {
    "cp1252": "text;label\nTrès beau, je l’ai aimé;réussi\nMauvais, à éviter;raté\n",
    "cp1250": "text;label\nŻółta książka jest piękna;dobra\nNie podobała mi się;zła\n",
    "cp1251": "text;label\nЭто хорошая книга;да\nПлохо, очень плохо;нет\n",
    "cp932": "text;label\nこの本はとても面白い;良い\nつまらない;悪い\n",
    "utf-16-le": "text;label\nTrès beau livre, je l'ai aimé;bon\nRaté;nul\n",
}


@pytest.mark.parametrize("encoding", WRITTEN)
def test_a_detected_encoding_is_named_with_an_example(write, encoding):
    text = WRITTEN[encoding]
    path = write("a.csv", text.encode(encoding))
    wanted = [(number, *line.split(";")) for number, line in enumerate(text.split("\n")[1:-1], start=2)]
    assert rows(path) == wanted
    dialect, (note,) = detect(path)
    assert path in note
    assert f" {encoding}" in note
    assert "--encoding" in note
    example = re.search(r"'(.*)'", note)[1]
    assert example in text
    assert not example.isascii()
    assert dialect == Dialect(encoding, ";")


def chosen(encoding=None, delimiter=None, no_header=None):
    """The dialect that the options choose."""
    return dialect_of(Namespace(encoding=encoding, delimiter=delimiter, no_header=no_header))


def test_a_given_encoding_and_delimiter(write):
    path = write("a.csv", "text#label\nna\u00efve, caf\u00e9;1#0\n".encode("cp1252"))
    dialect = chosen("Windows-1252", "#")
    assert rows(path, dialect) == [(2, "naïve, café;1", "0")]
    assert detect(path, dialect) == (dialect, [])
    assert rows(write("b.jsonl", '{"text": "été", "label": 1}\n'.encode("latin1")), chosen("latin1"))
    with pytest.raises(UserError, match=r"a\.csv, line 2: not UTF-8"):
        read_table(path, chosen("utf8"))


@pytest.mark.parametrize("name", ["a.csv", "b.xlsx"])
def test_no_header(tmp_path, name):
    path = tmp_path / name
    frame = pd.DataFrame([["bon", 1, "un livre"], ["nul", 0, None]])
    frame.to_csv(path, header=False, index=False) if name == "a.csv" else frame.to_excel(
        path, header=False, index=False
    )
    table = read_table(str(path), Dialect(header=False))
    assert table.columns.tolist() == ["1", "2", "3"]
    columns = choose_columns(table.columns, Columns("1", label="2"), name)
    assert [(r.text, r.label, r.line) for r in records(table, columns, name)] == [
        ("bon", "1", 1),
        ("nul", "0", 2),
    ]


@pytest.mark.parametrize(
    ("name", "options", "flag"),
    [
        ("a.parquet", (None, None, True), "--no-header"),
        ("a.parquet", ("cp1252", None, None), "--encoding"),
        ("a.jsonl", (None, ";", None), "--delimiter"),
        ("a.xlsx", (None, ";", None), "--delimiter"),
        ("a.csv", ("cp12520", None, None), "--encoding cp12520"),
        ("a.csv", ("base64", None, None), "--encoding base64"),
        ("a.csv", (None, ";;", None), "--delimiter ';;'"),
        ("a.csv", (None, "", None), "--delimiter ''"),
    ],
)
def test_options_that_do_not_fit_are_refused(write, name, options, flag):
    path = write(name, "text,label\na,1\n")
    with pytest.raises(UserError, match=re.escape(flag)):
        read_table(path, chosen(*options))


def test_without_chardet_the_option_is_named(write, monkeypatch):
    monkeypatch.setitem(sys.modules, "chardet", None)
    path = write("a.csv", "text,label\na,1\nété,0\n".encode("latin1"))
    with pytest.raises(UserError, match=r"a\.csv, line 3: not UTF-8.*--encoding.*pip install chardet"):
        read_table(path)


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


@pytest.mark.parametrize("fault", [b"\xff", "é".encode()[:1], "Raté".encode("cp1252")])
def test_a_wrong_byte_does_not_change_the_encoding_of_a_file(write, fault):
    lines = [f"Été très beau, je l’ai aimé {i};réussi\n".encode() for i in range(40)]
    lines[20] = b"A" + fault + b"b;rate\n"
    with pytest.raises(UserError, match=r"a\.csv, line 22: .*UTF-8"):
        read_table(write("a.csv", b"text;label\n" + b"".join(lines)))


def test_an_accent_after_a_long_text_without(write):
    last = "Un été très beau, je l’ai aimé"
    lines = ["text;label", *20_000 * ["a plain text of many words;1"], f"{last};1"]
    assert rows(write("a.csv", "\n".join(lines).encode("cp1252")))[-1][1] == last


def test_utf_32(write):
    path = write("a.csv", "text;label\nété;1\n".encode("utf-32"))
    assert rows(path) == [(2, "été", "1")]
    assert detect(path)[1] == []


def test_a_guessed_delimiter_is_named_without_a_header(write):
    _, (note,) = detect(write("a.csv", "bon, très bien;1\nnul, raté;0\n"), Dialect(header=False))
    assert "delimiter" in note
    assert "--delimiter" in note


def test_the_case_of_a_suffix_does_not_count(tmp_path):
    path = tmp_path / "A.XLSX"
    with path.open("wb") as stream:
        pd.DataFrame({"text": ["a"], "label": ["x"]}).to_excel(stream, index=False)
    assert rows(str(path)) == [(2, "a", "x")]
