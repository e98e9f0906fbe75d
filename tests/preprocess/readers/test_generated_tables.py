"""Generated tables: our reader agrees with an independent one, or stops with an error."""

import csv
import io

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roberta_small.common.errors import UserError
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
