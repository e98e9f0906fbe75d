"""readers/objects.py: JSON and JSON lines."""

import json

import pytest

from tests.support.table_files import rows


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
