"""readers/tables.py and readers/objects.py: files of each format as rows of text; columns."""

import bz2
import gzip
import json
import lzma

import pandas as pd
import pytest

from roberta_small.common.errors import UserError
from roberta_small.preprocess.readers import read_records
from roberta_small.preprocess.readers.dialect import Dialect
from roberta_small.preprocess.readers.records import COMPRESSED
from roberta_small.preprocess.readers.tables import Columns, choose_columns, load, read_table, records
from tests.support.table_files import rows


@pytest.mark.parametrize(
    ("suffix", "compress"), [(".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress)]
)
def test_compressed(write, suffix, compress):
    assert rows(write(f"a.tsv{suffix}", compress(b"text\tlabel\na,b\t1\n"))) == [(2, "a,b", "1")]


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_an_uncompressed_table_with_a_compression_suffix_is_an_error(write, suffix):
    with pytest.raises(UserError, match=f"corrupt or truncated {suffix} file"):
        read_table(write(f"a.csv{suffix}", b"text,label\na,1\n"))


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
        ("a.csv", 'text,label\n"a,1\nb,0\nc,1\nd,0\ne",1\n', "line 2"),
        ("a.csv", "text,label\ra,1\rb,0\r", "carriage return"),
        ("a.csv", 'text,label\na,1\n"b,0\nc,1\nd,0\ne",1\nf,0\n', "line 3"),
        ("a.tsv", "un bon livre\t1\nun livre plat\t0\nencore un\t1\nun dernier\t0\n", "line 1"),
        ("a.csv", b"\x1f\x8b\x08\x00", ".gz"),
        ("a.csv", b"PK\x03\x04rest", ".xlsx"),
        ("a.csv", b"\xd0\xcf\x11\xe0" + bytes(99), ".xlsx"),
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
        (["sentence1", "sentence2", "score"], Columns("sentence1", "sentence2", "score")),
        (["text", "score", "topic"], Columns("text", None, "topic")),
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
    table = load(path).cells
    assert table["text"].fillna("").tolist() == [" a\rb ", "", "", "c"]
    assert table["id"].fillna("").tolist() == ["01", "", "", ""]
    single = load(write("b.csv", 'text\na\n\n""\nb\n\n')).cells
    assert single["text"].fillna("").tolist() == ["a", "", "b"]
    assert single.index.tolist() == [2, 4, 5]
    rows = [{"a": 1, "b": [1.5]}, {"a": "x"}, {}]
    stored = load(write("c.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))).cells
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
    table = read_table(path)
    (record,) = records(table, choose_columns(table.columns, Columns(split="part"), path), path)
    assert (record.text, record.pair, record.label, record.split, record.line) == ("a", "b", "0", "dev", 1)


def test_joined_columns(write):
    path = write("a.csv", "title,body,stars\nUn titre,le texte,5\n,seul,1\nsans suite,,3\n")
    table = read_table(path)
    columns = choose_columns(table.columns, Columns("title", more_text=("body",)), path)
    found = [(record.text, record.label) for record in records(table, columns, path)]
    assert found == [("Un titre le texte", "5"), ("seul", "1"), ("sans suite", "3")]


@pytest.mark.parametrize("name", ["a.csv", "b.xlsx"])
def test_no_header(tmp_path, name):
    path = tmp_path / name
    frame = pd.DataFrame([["bon", 1, "un livre"], ["nul", 0, None]])
    write = frame.to_csv if name == "a.csv" else frame.to_excel
    write(path, header=False, index=False)
    table = read_table(str(path), Dialect(header=False))
    assert table.columns.tolist() == ["1", "2", "3"]
    columns = choose_columns(table.columns, Columns("1", label="2"), name)
    found = [(record.text, record.label, record.line) for record in records(table, columns, name)]
    assert found == [("bon", "1", 1), ("nul", "0", 2)]


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
