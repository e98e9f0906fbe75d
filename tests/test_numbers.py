"""Numbers in the documentation are those of the committed files."""

import tomllib
from pathlib import Path

import pytest
from PIL import Image

from docs import check_numbers as numbers
from docs import make_figure
from roberta_small.common.errors import UserError

ROOT = Path(__file__).parents[1]

TFIDF = 'only("cls-books:bow/tfidf")'
TABLE = {"row": f"| $1 | {{{TFIDF}}} |", "table": "| a | b |\n|---|--:|\n{row TF-IDF; unused}\n"}


@pytest.mark.parametrize("path", numbers.documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_number_is_computed_or_given(path):
    page = numbers.reviewed(path)
    assert page.stale + page.faults == []


@pytest.mark.parametrize("file", [numbers.NUMBERS, numbers.TABLES], ids=lambda file: file.name)
def test_every_entry_belongs_to_a_page(file):
    pages = {str(path.relative_to(ROOT)) for path in numbers.documents()}
    assert set(tomllib.loads(file.read_text(encoding="utf-8"))) <= pages


def test_a_stale_number_is_found_and_replaced():
    page = numbers.review("Linear models\nreach 84.41 %, not less.", {"models reach {} %": TFIDF}, {})
    assert (len(page.stale), page.faults) == (1, [])
    assert page.text == "Linear models\nreach 84.40 %, not less."
    assert numbers.review(page.text, {"models reach {} %": TFIDF}, {}).stale == []


def test_a_phrase_with_several_numbers():
    text = "They reach 84.4 and 1 %."
    page = numbers.review(
        text, {"reach {} and {} %": [TFIDF, 'format(average("cls-books:bow/tfidf"), ".1f")']}, {}
    )
    assert page.text == "They reach 84.40 and 84.4 %."


def test_a_stale_table_is_found_and_replaced():
    old, new = "<!-- table: x -->\n| {} |\n<!-- end -->", "| a | b |\n|---|--:|\n| TF-IDF | 84.40 |"
    page = numbers.review(old.format(1), {}, {"x": TABLE})
    assert (len(page.stale), page.faults) == (1, [])
    assert page.text == f"<!-- table: x -->\n{new}\n<!-- end -->"
    assert numbers.review(page.text, {}, {"x": TABLE}).stale == []


@pytest.mark.parametrize(
    ("text", "entries", "tables"),
    [
        ("Nothing.", {"reach {} %": TFIDF}, {}),
        ("They reach 12 things. We reach 12 things.", {"reach {} things": TFIDF}, {}),
        ("Nothing.", {"39 GB": "published"}, {}),
        ("Of 12 things.", {"12 things": "no number that needs a reason"}, {}),
        ("They reach 84.40.", {}, {}),
        ("<!-- table: y -->\n| a |\n<!-- end -->", {}, {}),
        ("Nothing.", {}, {"x": TABLE}),
        ("<!-- table: x -->\n| a |\n<!-- end -->", {}, {"x": {"table": "| 1.5 |\n"}}),
    ],
    ids=[
        "missing phrase",
        "phrase twice",
        "unused reason",
        "reason without a number",
        "number without an entry",
        "table without an entry",
        "entry without a table",
        "number in a table",
    ],
)
def test_faults(text, entries, tables):
    assert len(numbers.review(text, entries, tables).faults) == 1


def test_which_numbers_need_an_entry():
    text = "Of 2,000 reviews, `1.5` and [1.25](a-2.5.md) in 30 s;\n```\n3.5\n```\nversion 2 of 2024-01-02"
    found = numbers.review(text, {}, {}).faults
    assert [fault.split()[:3] for fault in found] == [["line", "1:", n] for n in ("2,000", "1.25", "30")]
    reasons = dict.fromkeys(["Of 2,000 reviews", "[1.25", "in 30 s"], "a reason")
    assert numbers.review(text, reasons, {}).faults == []


@pytest.mark.parametrize(
    "expression",
    [
        'only("cls-books:bow/none")',
        'only("none:bow/tfidf")',
        "__import__('os')",
        'format(cell("cls-books/published.csv", "mean"), ".2f")',
        'value("results/scale/runs.json", "rows.0.runs")',
    ],
)
def test_an_expression_without_a_value_is_an_error(expression):
    with pytest.raises(UserError):
        numbers.compute(expression)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('format(value("results/scale/text.json", "rows.shards=40.text_bytes") / 1e9 - 20, "+.0f")', "+0"),
        ('format(benchmark("finetune", "ours") / benchmark("finetune", "ours"), ".1f")', "1.0"),
        (
            'format(value("results/cls-books/audit.json", "duplicates.normalized.test.train.length"), ".0f")',
            "52",
        ),
        ('corrected("cls-books", "fairseq/pretrained", "fairseq/random")', "p = 0.033"),
        ('comparisons("cls-books")', "22"),
    ],
)
def test_values_of_expressions(expression, expected):
    assert numbers.compute(expression) == expected


def test_the_figure_of_the_readme_is_that_of_its_table():
    with Image.open(ROOT / "docs" / "results.png") as figure:
        assert figure.text["Description"] == make_figure.table()


@pytest.mark.parametrize("page", ["README.md", "docs/first-hour.md"])
def test_the_printed_table_of_methods_is_that_of_the_archive(page):
    lines = (ROOT / page).read_text(encoding="utf-8").split("All methods, ")[1].splitlines()[2:5]
    for line in lines:
        arm, init, _, valid, _, _, test, *_ = line.split()
        for subset, shown in (("valid", valid), ("test", test)):
            group = f"default-command/movies:{arm}/{init}"
            assert numbers.compute(f'only("{group}", subset="{subset}")') == shown
