"""Numbers in the documentation are those of the committed files."""

import re
import sys
from pathlib import Path

import pytest

from roberta_small.common.errors import UserError

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))
import check_numbers as numbers  # noqa: E402


@pytest.mark.parametrize("path", numbers.documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_number_is_that_of_a_committed_file(path):
    text = path.read_text(encoding="utf-8")
    assert list(numbers.differences(text)) == []
    assert list(numbers.unmarked(text, numbers.given_phrases(path))) == []


def test_a_changed_number_is_found():
    marked = '<!--= only("cls-books:bow/tfidf") -->{}<!--/--> %'
    assert list(numbers.differences(marked.format("84.40"))) == []
    ((_, old, new),) = numbers.differences(marked.format("84.41"))
    assert (old, new) == ("84.41", "84.40")


@pytest.mark.parametrize(
    "expression",
    [
        'only("cls-books:bow/none")',
        'only("none:bow/tfidf")',
        "__import__('os')",
        'cell("cls-books/table1.csv", "valid")',
    ],
)
def test_an_expression_without_a_value_is_an_error(expression):
    with pytest.raises(UserError):
        numbers.compute(expression)


def test_a_number_without_expression_is_found():
    code = "```\n3.5\n```"
    text = f"Of 2,000 reviews, `1.5` and [1.25](a-2.5.md) in 30 s;\n{code}\nversion 2, <!--= x -->4.5<!--/-->"
    assert list(numbers.unmarked(text, [])) == [(1, "2,000"), (1, "1.25"), (1, "30")]
    assert list(numbers.unmarked(text, ["Of 2,000 reviews", "[1.25", "in 30 s"])) == []


@pytest.mark.parametrize("path", numbers.documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_markers_do_not_appear_in_the_rendered_page(path):
    text = path.read_text(encoding="utf-8")
    assert re.findall(r"^[ \t>*+-]*<!--=.*", text, re.MULTILINE) == []  # begins an HTML block
    expressions = [match["expression"] for match in numbers.MARKED.finditer(text)]
    assert [expression for expression in expressions if "--" in expression] == []


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('formula("results/scale/text.json", "b / 1e9 - 10 * 2", ".0f", b="rows.shards=40.text_bytes")', "0"),
        ('benchmark("finetune", "ours", ".1f", over="ours")', "1.0"),
        ('from_published("causal:causal/random", "best")', "+0.45"),
        ('value("results/cls-books/audit.json", "duplicates.normalized.test.train.length", ".0f")', "52"),
    ],
)
def test_values_of_expressions(expression, expected):
    assert numbers.compute(expression) == expected
