"""Tables as a study presents them: labels, order, marks, bold, captions, narrow tables, one CSV per table."""

import json
import math
import re

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_rel

from roberta_small.analysis.features import TABLES
from roberta_small.common.metrics import digits
from roberta_small.common.tables import shortest
from tests.support.analysis.command_words import study_words, words_of
from tests.support.analysis.prediction_files import write_predictions
from tests.support.analysis.printed_tables import notes_with, parsed, printed, rows_of
from tests.support.analysis.run_trees import write_run

PAGE_CHARACTERS = 115
"""Characters of a row in Markdown that fit on a page in a small font."""
LABELS = '[labels]\n"fairseq/random" = "Random & co"\n"fairseq/pretrained" = "Pretrained"\n'


@pytest.fixture
def with_predictions(runs):
    for seed in (1, 2, 3):
        write_predictions(runs / f"fairseq/random/seed{seed}", "0101" * 5, "0100" * 5)
        write_predictions(runs / f"fairseq/pretrained/seed{seed}", "0101" * 5, "0101" * 5)
    return runs


COMMANDS = {
    "tables": {"table1", "table2"},
    "seeds": {"seeds"},
    "expected": {"expected"},
    "accuracy": {"accuracy"},
    "best-settings": {"settings", "best_settings", "comparison", "examples"},
    "compare": {"comparison", "plan", "examples"},
}


@pytest.mark.parametrize("command", COMMANDS)
def test_labels_replace_names_everywhere_but_in_the_keys_of_the_data(
    with_predictions, tmp_path, capsys, command
):
    groups = ["--groups", "fairseq/random", "fairseq/pretrained"]
    words = words_of(command, with_predictions, *groups, *study_words(tmp_path, LABELS))
    for fmt, escape in (("markdown", "Random & co"), ("latex", r"Random \& co")):
        text = printed(capsys, *words, "--format", fmt)
        assert escape in text
        assert "Pretrained" in text
        assert "fairseq/" not in text
    tables = parsed(capsys, *words)
    assert set(tables) == COMMANDS[command] <= set(TABLES)
    for table in tables.values():
        row = table["rows"][0]
        if "a" in row:
            assert (row["a"], row["a_label"]) == ("fairseq/random", "Random & co")
            assert (row["b"], row["b_label"]) == ("fairseq/pretrained", "Pretrained")
        else:
            assert (row["arm"], row["init"], row["group_label"]) == ("fairseq", "random", "Random & co")


def test_order_and_selection(runs, tmp_path, capsys):
    write_run(runs, "tfidf", 0, [70.0], [70.0], arm="bow")
    words = study_words(tmp_path, 'order = ["fairseq/random"]\nexclude = ["fairseq/pretrained"]\n')
    rows = rows_of(printed(capsys, "tables", runs, *words, "--table", "table1"))
    assert [row[1] for row in rows[1:]] == ["random"] * 4 + ["tfidf"] * 2
    heading = rows_of(printed(capsys, "tables", runs, *words, "--table", "table2"))[0]
    assert heading == ["epoch", "fairseq/random", "bow/tfidf"]
    pairs = rows_of(printed(capsys, "compare", runs, *words, "--table", "comparison"))
    assert pairs[1][:2] == ["fairseq/random", "bow/tfidf"]


def test_a_baseline_replaces_all_pairs(runs, capsys):
    write_run(runs, "tfidf", 0, [70.0], [70.0], arm="bow")
    rows = rows_of(printed(capsys, "compare", runs, "--baseline", "fairseq/random", "--table", "comparison"))
    assert [row[:2] for row in rows[1:]] == [
        ["bow/tfidf", "fairseq/random"],
        ["fairseq/pretrained", "fairseq/random"],
    ]


def test_marks_are_holms_p_values_of_the_paired_t_test(runs, capsys):
    """Three groups with three seeds: two tests in table 1."""
    for seed, test in ((1, 66.0), (2, 66.5), (3, 69.0)):
        write_run(runs, "near", seed, [60.0], [test])
    tests = {"pretrained": [79.25, 78.5, 80.0], "near": [66.0, 66.5, 69.0]}
    p = {name: ttest_rel(values, [65.5, 66.75, 68.25]).pvalue for name, values in tests.items()}
    assert 2 * p["pretrained"] < 0.01 < 0.05 < p["near"]
    text = printed(capsys, "tables", runs, "--baseline", "fairseq/random", "--table", "table1")
    cells = {row[1]: row[4] for row in rows_of(text) if row[2].startswith("mean")}
    stars = "***" if 2 * p["pretrained"] <= 0.001 else "**"
    assert cells.pop("pretrained").replace("\\", "") == f"79.25{stars} ± 0.75 (3)"
    assert cells == {"near": "67.17 ± 1.61 (3)", "random": "66.83 ± 1.38 (3)"}
    assert notes_with(text, "fairseq/random", "0.05", "0.01", "0.001", "2 tests", "Holm")
    assert not notes_with(printed(capsys, "tables", runs), "Holm")


def test_the_best_means_are_bold(runs, tmp_path, capsys):
    words = ["tables", runs, *study_words(tmp_path, "bold = true")]
    rows = rows_of(printed(capsys, *words, "--table", "table2"))
    assert all(row[1].startswith("**") and not row[2].startswith("**") for row in rows[1:])
    latex = printed(capsys, *words, "--table", "table1", "--format", "latex")
    assert r"\textbf{79.25 $\pm$ 0.75 (3)}" in latex
    assert latex.count(r"\textbf") == 2  # valid and test
    lowest = rows_of(printed(capsys, *words, "--table", "table2", "--direction", "lowest"))
    assert all(row[2].startswith("**") and not row[1].startswith("**") for row in lowest[1:])
    assert "**" not in printed(capsys, "tables", runs, "--table", "table2").split("\n", 1)[1]


def test_digits_captions_and_labels_of_latex(runs, tmp_path, capsys):
    text = 'digits = 1\n[captions]\ntable1 = "R&D"\n[latex-labels]\ntable1 = "tab:main"\n'
    words = study_words(tmp_path, text)
    before = digits("accuracy")
    text = printed(capsys, "tables", runs, "--format", "latex", *words)
    assert r"\caption{R\&D}" in text
    assert re.findall(r"\\label\{(.*)\}", text) == ["tab:main", "tab:table2"]
    assert r"79.2 $\pm$ 0.8 (3)" in text
    assert digits("accuracy") == before


def test_every_table_has_a_csv_file_of_its_own(with_predictions, tmp_path, capsys):
    words = ["--baseline", "fairseq/random", "--format", "csv", "--out", tmp_path / "out"]
    assert printed(capsys, "compare", with_predictions, *words) == ""
    for name in COMMANDS["compare"]:
        data = pd.read_csv(tmp_path / "out" / f"{name}.csv")
        rows = json.loads((tmp_path / "out" / f"{name}.json").read_text())[name]["rows"]
        assert list(data) == list(rows[0])
        assert len(data) == len(rows)
    alone = printed(capsys, "compare", with_predictions, *words[:4], "--table", "plan")
    assert alone == (tmp_path / "out" / "plan.csv").read_text()


def test_narrow_tables_fit_on_a_page_and_wide_ones_have_all_columns(with_predictions, tmp_path, capsys):
    published = tmp_path / "published.csv"
    published.write_text(
        "arm,init,epoch,subset,metric,mean,std,n\nfairseq,random,best,test,accuracy,70,1,3\n", "utf-8"
    )
    groups = ["--groups", "fairseq/random", "fairseq/pretrained"]
    for command in COMMANDS:
        more = ["--reference", published] if command in ("compare", "seeds", "tables") else []
        words = words_of(command, with_predictions, *groups, *more)
        narrow = printed(capsys, *words, *study_words(tmp_path, LABELS))
        assert max(len(line) for line in narrow.splitlines() if line.startswith("|")) <= PAGE_CHARACTERS
        columns = [
            columns_of(
                printed(capsys, *words, "--format", "latex", *study_words(tmp_path, f"{wide}{LABELS}"))
            )
            for wide in ("", "wide = true\n")
        ]
        assert all(few <= min(8, all_) for few, all_ in zip(*columns, strict=True))
        if command in ("seeds", "accuracy", "compare", "best-settings"):
            assert sum(columns[0]) < sum(columns[1])


def columns_of(latex):
    """The number of columns of each table, which all of its rows have."""
    columns = []
    for alignment, body in re.findall(r"\\begin\{tabular\}\{(\w+)\}(.*?)\\end\{tabular\}", latex, re.DOTALL):
        rows = [line.count(" & ") + 1 for line in body.splitlines() if line.endswith(r"\\")]
        assert set(rows) == {len(alignment)}
        columns.append(len(alignment))
    return columns


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (84.4000015258789, "84.4"),
        (6.200000000000003, "6.2"),
        (np.float64(np.float32(0.1)), "0.1"),
        (np.mean(np.float32([79.55, 80.0, 80.9]).astype(float)), "80.15"),
        (200 / 3, "66.66667"),
        (4.654263538798074e-09, "4.6542635e-09"),
        (1 / 3 + 1, "1.3333333"),
        (123456789.0, "123456789.0"),
        (1234567890.5, "1234567900.0"),
        (0.0, "0.0"),
        (-2.5, "-2.5"),
        (math.inf, "inf"),
    ],
)
def test_numbers_have_the_digits_of_single_precision(value, expected):
    assert repr(float(shortest(value))) == expected
