"""readers/dialect.py: encodings that are detected, given and wrong."""

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
