"""Generated tables: our reader agrees with an independent one, or stops with an error."""

import csv
import io

import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from roberta_small.common.errors import UserError
from roberta_small.preprocess.readers.tables import read_cells

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
        found = read_cells(path)
    except UserError:
        return  # it cannot be told from a file with a quotation mark that is not closed
    assert found["text"].tolist() == [text for text, _ in rows]
    assert found["label"].tolist() == [label for _, label in rows]
    independent = pd.read_csv(path, sep=delimiter, dtype=str, keep_default_na=False, encoding="utf-8-sig")
    assert independent["text"].tolist() == found["text"].tolist()


@given(st.lists(st.tuples(WORDS, LABELS), min_size=3, max_size=20), st.integers(0, 40))
def test_of_tab_separated_lines_none_is_lost(folder, rows, ragged):
    """Written without quoting, one perhaps without its label: each line is a row, or there is an error."""
    texts = [text.replace("\t", " ") for text, _ in rows]
    if ragged < len(rows):  # with several quotation marks at the beginning, it could also be a quoted file
        texts = [text.lstrip('"') or "a" for text in texts]
        texts[(ragged + 1) % len(rows)] = '"' + texts[(ragged + 1) % len(rows)]
    lines = [f"{text}\t{label}" for text, (_, label) in zip(texts, rows, strict=True)]
    if ragged < len(lines):
        lines[ragged] = texts[ragged]
    assume(all(line.strip() for line in lines))
    path = write(folder, "b.tsv", "text\tlabel\n" + "".join(f"{line}\n" for line in lines))
    try:
        found = read_cells(path)
    except UserError:
        return
    assert len(found) == len(lines)
    assert found.index.tolist() == list(range(2, len(lines) + 2))
