"""readers/delimited.py: delimiters, quotation marks and lines of CSV and TSV."""

import pytest

from roberta_small.preprocess.readers.dialect import Dialect
from roberta_small.preprocess.readers.tables import load
from tests.support.table_files import rows


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
