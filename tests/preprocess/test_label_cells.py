"""label_cells.py: cells with two readings are refused with both, and each remedy of a message works."""

import io
import json

import pytest

from roberta_small.common.errors import UserError
from roberta_small.common.predictions import LabelsPrediction
from roberta_small.eval.predict.output import Layout, TextPrediction, write_csv
from roberta_small.preprocess.readers.tables import read_table
from tests.preprocess.readers.test_generated_tables import reading

THOUSANDS = [f"{1000 + 137 * i:,}" for i in range(20)] + ["724", "674"]
CODES = [f"{i}.{k}" for i in range(1, 8) for k in (1, 10, 2)]
IDS = ["1,2", "1", "2", "2,3", "3", "1,3"] * 4
OBJECTS = ["{'a': 1, 'b': 0}", "{'a': 0, 'b': 1}"]


def without(mark, new=""):
    return lambda cell: cell.replace(mark, new)


AS_NUMBERS, AS_NAMES = (str, "regression", None), (str, "classification", None)


@pytest.mark.parametrize(
    ("cells", "facts", "remedies"),
    [
        (THOUSANDS, ("'1,000'", "1 or 1000"), [
            (without(","), None, None, "1000.0"), (without(",", "."), "regression", None, "1.0"),
            (*AS_NAMES, "1,000"),
        ]),
        ([cell.replace(",", ".") for cell in THOUSANDS], ("'1.000'", "1 or 1000"), [
            (without("."), None, None, "1000.0"), (*AS_NUMBERS, "1.0")
        ]),
        (["1,234.5", "3,5", *THOUSANDS], ("'1,234.5'", "'3,5'"), []),
        (CODES, ("'1.1'", "'1.10'"), [(*AS_NUMBERS, "1.1"), (*AS_NAMES, "1.1")]),
        (IDS, ("'1,2'",), [(str, None, ",", ["1", "2"]), (*AS_NUMBERS, "1.2"), (*AS_NAMES, "1,2")]),
        (["a|b", "a", "b"], ("'a|b'",), [(str, "multi-label", "|", ["a", "b"])]),
        (["a b", "a", "b"], ("'a b'",), [(str, None, " ", ["a", "b"])]),
        (OBJECTS, ("a.csv, line 2", OBJECTS[0]), [
            (*AS_NAMES, OBJECTS[0]), (lambda _: '["a", "b"]', None, None, ["a", "b"])
        ]),
        (["[1, 1, 0]", "[0, 1]"], ("[1, 1, 0]",), []),
        (["[0.5, 1]", "[1, 2]"], ("0.5",), []),
        (['["a", null]', '["b"]'], ("None",), []),
        (["[0 1 ... 0 1]", "[1 0 1]"], ("[0 1 ... 0 1]",), []),
        ([f"{i / 8}" for i in range(20)] + ["NA"], ("'NA'",), []),
    ],
)  # fmt: skip
def test_cells_with_two_readings_or_none_are_refused(cells, facts, remedies):
    with pytest.raises(UserError) as error:
        reading(cells)
    assert all(fact in str(error.value) for fact in facts)
    for change, task, separator, first in remedies:
        assert all(option is None or option in str(error.value) for option in (task, separator))
        _, lines = reading([change(cell) for cell in cells], task, separator)
        assert (json.loads(lines[0]) if isinstance(first, list) else lines[0]) == first


@pytest.mark.parametrize(
    ("cells", "task", "first"),
    [
        ([f"00{i}.{i}" for i in range(1, 9)] * 2 + ["250.00", "38.11", "401.9"], "classification", "001.1"),
        ([f"1_{i}" for i in range(30)], "classification", "1_0"),
        (["3,5", "3", "4,5", "5", "4"] * 9, "classification", "3,5"),
        (["1 000,0", "1 000,1", *(f"{i},5" for i in range(30))], "regression", "1000.0"),
        (["9 553", *(str(i) for i in range(500, 530))], "regression", "9553.0"),
        (["1.234,5", *THOUSANDS[-1:], *(f"{i},5" for i in range(30))], "regression", "1234.5"),
        (["[food, très bon]", "[]", "[price]"], "multi-label", ["food", "très bon"]),
        (['{"New York",Paris}', "{Paris}", "{}"], "multi-label", ["New York", "Paris"]),
        (["<c++><very good>", "<a>"], "multi-label", ["c++", "very good"]),
        (["[neg]", "[pos]"], "classification", "[neg]"),
        (["very good", "very bad", "good"], "classification", "very good"),
        (["[deleted]", "pos", "(x, y)"], "classification", "[deleted]"),
        (["[1.0]", "[1, 2]"], "multi-label", ["1"]),
        (["[u'a', u'b']", "[]"], "multi-label", ["a", "b"]),
        (["0 1 1", "1 0 0"], "multi-label", ["1", "2"]),
        (["[0]", "[1]", "[0, 1]", "[]"], "multi-label", ["0"]),
    ],
)
def test_cells_with_one_reading(cells, task, first):
    kind, lines = reading(cells)
    assert kind == task
    assert (json.loads(lines[0]) if isinstance(first, list) else lines[0]) == first


def test_predicted_classes_are_read_as_they_were_predicted(tmp_path):
    names, stream = ["R&B|Soul", "Jazz, new", "[x]"], io.StringIO()
    with write_csv(stream, Layout(names, several=True), ";") as write:
        for index, chosen in enumerate((names, names[:1], [])):
            p = {name: float(name in chosen) for name in names}
            found = LabelsPrediction(index, None, p, dict.fromkeys(names, 0.5))
            write(TextPrediction(index, "a", found))
    (tmp_path / "a.csv").write_text(stream.getvalue())
    kind, lines = reading(read_table(str(tmp_path / "a.csv"))["label"])
    assert kind == "multi-label"
    assert list(map(json.loads, lines)) == [sorted(names), names[:1], []]
