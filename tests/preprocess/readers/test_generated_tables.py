"""Generated tables and label cells: our reader agrees with an independent one, or stops with an error."""

import csv
import io
import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.preprocessing import MultiLabelBinarizer

from roberta_small.common.errors import UserError
from roberta_small.preprocess.label_cells import LabelOptions, read
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
