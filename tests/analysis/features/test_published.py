"""Published values in the tables of groups: cells, data, notes, and files that do not fit."""

import numpy as np
import pytest

from roberta_small.analysis.__main__ import main
from roberta_small.analysis.published import HEADINGS
from tests.support.analysis.command_words import study_words, words_of
from tests.support.analysis.printed_tables import notes_with, parsed, printed, rows_of

HEADING = "arm,init,epoch,subset,metric,mean,std,n\n"
OURS = [65.5, 66.75, 68.25]
"""fairseq/random at the best checkpoints."""


@pytest.fixture
def published(tmp_path):
    """Writes a reference file with these rows of fairseq/random and returns its path."""

    def write(*rows):
        path = tmp_path / "paper.csv"
        path.write_text(HEADING + "".join(f"fairseq,random,{row}\n" for row in rows), encoding="utf-8")
        return path

    return write


def cells(out):
    """The rows of the first Markdown table."""
    return rows_of(out.split("\n\n")[1])


@pytest.mark.parametrize(
    ("row", "cell", "verdict"),
    [
        ("67,1,3", "67.00 ± 1.00 (3)", True),
        ("70,1,3", "70.00 ± 1.00 (3)", False),
        ("61,,", "61.00 ± – (–)", False),
        ("61,,1", "61.00 ± – (1)", True),  # a single published run varies as ours do
    ],
)
def test_table1_has_the_published_value_at_the_mean_of_its_group(runs, published, capsys, row, cell, verdict):
    path = published(f"best,test,accuracy,{row}", "1,test,accuracy,50,1,3", "best,valid,accuracy,1,1,3")
    words = ["tables", runs, "--reference", path, "--table", "table1"]
    heading, *rows = cells(printed(capsys, *words))
    assert heading[-3:] == list(HEADINGS)
    shown = {(one[1], one[2].split()[0]): one[-3:] for one in rows}
    mean = float(row.split(",")[0])
    difference = f"{np.mean(OURS) - mean:+.2f}".replace("-", "−")
    assert shown.pop(("random", "mean")) == [cell, difference, "yes" if verdict else "no"]
    assert set(map(tuple, shown.values())) == {("", "", "")}

    data = parsed(capsys, *words)["table1"]["rows"]
    (found,) = [one for one in data if one["published_mean"] is not None]
    assert (found["init"], found["seed"], found["within_noise"]) == ("random", "mean", verdict)
    assert found["published_difference"] == pytest.approx(np.mean(OURS) - mean, abs=1e-5)
    assert found["published_low"] <= found["published_difference"] <= found["published_high"]
    assert (found["published_low"] <= 0 <= found["published_high"]) == verdict
    assert "p" not in {name.removeprefix("published_") for name in found}  # it would be uncorrected


def test_seeds_has_the_published_value_of_each_point(tmp_path, runs, published, capsys):
    path = published("best,test,accuracy,67,1,3", "2,test,accuracy,60,,", "3,test,accuracy,60,,4")
    out = printed(
        capsys, "tables", runs, "--table", "seeds", "--reference", path, "--groups", "fairseq/random"
    )
    places = {row[2]: row[-3] for row in cells(out)[1:]}
    assert places == {"1": "", "2": "60.00 ± – (–)", "3": "60.00 ± – (4)", "best": "67.00 ± 1.00 (3)"}
    assert notes_with(out, "paper.csv", "ddof 1")
    assert notes_with(out, "within noise", "Welch", "Student", "one-sample")
    assert notes_with(out, "Not corrected", "3 comparisons")
    words = ["tables", runs, "--table", "seeds", "--reference", path, "--test-size", "2000"]
    wide = printed(capsys, *words, *study_words(tmp_path, "wide = true"))
    assert {"std", "examples 95 %", *HEADINGS} <= set(cells(wide)[0])


def test_a_table_without_published_values_is_unchanged_with_a_warning(runs, published, capsys, caplog):
    path = published("1,test,accuracy,67,1,3")  # table 1 has best checkpoints
    assert printed(capsys, "tables", runs, "--reference", path) == printed(capsys, "tables", runs)
    assert "paper.csv" in caplog.text
    assert "table1" in caplog.text


@pytest.mark.parametrize(
    ("command", "content", "facts"),
    [
        ("tables", "", ("column 'arm'",)),
        ("seeds", f"{HEADING}bert,random,best,test,accuracy,67,1,3\n", ("no group bert/random",)),
        ("report", f"{HEADING}fairseq,random,best,test,accuracy,67,1,0\n", ("line 2", "n is '0'")),
    ],
)
def test_a_wrong_file_is_one_error(runs, tmp_path, capsys, command, content, facts):
    path = tmp_path / "paper.csv"
    path.write_text(content, encoding="utf-8")
    out = ["--out", str(tmp_path / "report.html")] if command == "report" else []
    assert main(words_of(command, runs, "--reference", path, *out)) == 1
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error")]
    assert len(errors) == 1
    assert str(path) in errors[0]
    assert all(fact in errors[0] for fact in facts)
    assert not (tmp_path / "report.html").exists()
