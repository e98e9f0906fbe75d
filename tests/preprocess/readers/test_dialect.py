"""readers/dialect.py and delimited.py: encodings, delimiters, quotation marks and lines of CSV and TSV."""

import re
import sys

import pytest

from roberta_small.common.errors import UserError
from roberta_small.preprocess.readers.dialect import Dialect
from roberta_small.preprocess.readers.tables import load, read_table
from tests.support.table_files import chosen, rows

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
    loaded = load(path)
    (note,) = loaded.notes
    assert path in note
    assert f" {encoding}" in note
    assert "--encoding" in note
    example = re.search(r"'(.*)'", note)[1]
    assert example in text
    assert not example.isascii()
    assert loaded.dialect == Dialect(encoding, ";")


def test_a_given_encoding_and_delimiter(write):
    path = write("a.csv", "text#label\nna\u00efve, caf\u00e9;1#0\n".encode("cp1252"))
    dialect = chosen("Windows-1252", "#")
    assert rows(path, dialect) == [(2, "naïve, café;1", "0")]
    loaded = load(path, dialect)
    assert (loaded.dialect, loaded.notes) == (dialect, [])
    assert rows(write("b.jsonl", '{"text": "été", "label": 1}\n'.encode("latin1")), chosen("latin1"))
    with pytest.raises(UserError, match=r"a\.csv, line 2: not UTF-8"):
        read_table(path, chosen("utf8"))


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
    assert load(path).notes == []


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


def test_quotes_in_tsv(write):
    enclosing = write("a.tsv", 'label\ttext\n1\t"a\tb\nc"\n0\t"d ""e"""\n')
    assert rows(enclosing) == [(2, "1", "a b c"), (4, "0", 'd "e"')]
    ordinary = write("b.tsv", 'label\ttext\n1\t"Casablanca" is good\n0\tan "open one\n0\t"Up"\n')
    assert rows(ordinary) == [(2, "1", '"Casablanca" is good'), (3, "0", 'an "open one'), (4, "0", '"Up"')]
    split = write("c.tsv", 'text\tlabel\n"a\t1\nb"\t0\nc\t2\n')
    assert rows(split) == [(2, '"a', "1"), (3, 'b"', "0"), (4, "c", "2")]
    assert rows(write("d.tsv", 'text\tlabel\n"a\tb"\nc\td\n')) == [(2, '"a', 'b"'), (3, "c", "d")]


def test_the_delimiter_is_the_one_of_the_header(write):
    assert rows(write("a.csv", "text\tlabel\na, b; c\t1\n")) == [(2, "a, b; c", "1")]
    assert rows(write("b.csv", "\n\ntext;label\na, b;1\n")) == [(4, "a, b", "1")]
    quoted = '"text, as\nwritten, or ""said""";"a, b";label\n"a, b";c;1\n'
    assert rows(write("c.csv", quoted)) == [(3, "a, b", "c", "1")]
    assert rows(write("d.csv", 'size 5" b;"c, d"\na;1\n')) == [(2, "a", "1")]


def test_a_text_longer_than_the_limit_of_the_csv_module(write):
    text = "a" * 200_000
    assert rows(write("a.csv", f"text,label\n{text},1\n")) == [(2, text, "1")]


def test_paragraphs_whose_lines_have_one_delimiter(write):
    """They have as many fields as a row, and repeat each other, but no value of the column of the labels."""
    text = '"a table of tests\n * plain (Original, 3)\n * bold (Original, 3)\nend"'
    path = write("a.csv", f"text,label\n{text},x\nb,y\nc,x\nd,y\n")
    assert [label for _, _, label in rows(path)] == ["x", "y", "x", "y"]


def test_other_delimiters(write):
    assert rows(write("a.csv", "text|label\na, b; c|1\n")) == [(2, "a, b; c", "1")]
    assert rows(write("b.csv", "sep=;\ntext;label,x\na,b;1\n")) == [(3, "a,b", "1")]


def test_a_stray_quotation_mark_and_a_line_without_label(write):
    """The quotation mark is an ordinary character, although lines differ in their number of delimiters."""
    path = write("a.tsv", 'text\tlabel\na\t1\n"b is c\t0\nno label\nd\t1\ne" f\t0\n')
    wanted = [("a", "1"), ('"b is c', "0"), ("no label", None), ("d", "1"), ('e" f', "0")]
    assert rows(path) == [(line, *row) for line, row in enumerate(wanted, start=2)]


def test_a_row_with_fewer_fields_is_filled(write):
    assert rows(write("a.csv", "text,label,other\na,1\nb\n")) == [(2, "a", "1", None), (3, "b", None, None)]


def test_a_guessed_delimiter_is_named_without_a_header(write):
    (note,) = load(write("a.csv", "bon, très bien;1\nnul, raté;0\n"), Dialect(header=False)).notes
    assert "delimiter" in note
    assert "--delimiter" in note
