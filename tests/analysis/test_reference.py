"""Published results: three formats, what can be wrong in them, and ours beside them."""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from analysis.read.load import load_runs
from analysis.stats.best import best_checkpoints
from analysis.stats.reference import compare_reference, read_reference
from common.errors import UserError

PUBLISHED = Path(__file__).parents[2] / "results" / "cls-books" / "published.csv"
HEADING = "arm,init,epoch,subset,metric,mean,std,n,ddof"
GOOD = "fairseq,random,best,test,accuracy,66.77,1.14,3,0"
MARKDOWN = """# A paper

| arm | init | epoch | subset | metric | mean | std | n | ddof |
|---|:--|--:|---|---|---|---|---|---|
| fairseq | random | best | test | accuracy | 66.77 | 1.14 | 3 | 0 |

Some words.
"""
ENTRY = {
    "arm": "fairseq", "init": "random", "epoch": "best", "subset": "test", "metric": "accuracy",
    "mean": 66.77, "std": 1.14, "n": 3, "ddof": 0,
}  # fmt: skip


def write(folder, text, name="reference.csv"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_the_three_formats_say_the_same(tmp_path):
    frames = [
        read_reference(write(tmp_path, f"\ufeff{HEADING}\r\n{GOOD}\r\n")),
        read_reference(write(tmp_path, MARKDOWN, "reference.md")),
        read_reference(write(tmp_path, json.dumps([ENTRY]), "reference.json")),
    ]
    records = [frame.to_dict("records") for frame in frames]
    assert records[0] == records[1] == records[2]
    assert records[0] == [{**ENTRY, "source": ""}]


def test_columns_that_may_be_missing(tmp_path):
    path = write(tmp_path, "arm,init,epoch,subset,metric,mean,std\nhf,random,1,test,accuracy,60,\n")
    (row,) = read_reference(path).to_dict("records")
    assert math.isnan(row["std"])
    assert math.isnan(row["n"])
    assert row["ddof"] == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEADING, "no result in it"),
        ("", "no column 'arm' in the heading"),
        ("arm,init,epoch,subset,metric,std\n", "no column 'mean' in the heading"),
        (f"{HEADING}\n{GOOD}\n{GOOD}\n", "line 3: fairseq random best test accuracy is given at line 2"),
        (f"{HEADING},stdev\n{GOOD},1\n", "line 2: unknown column 'stdev'"),
        (f"{HEADING}\n{GOOD},1\n", "line 2: 10 cells, but 9 columns"),
        (f"{HEADING}\n{GOOD.replace('best', 'last')}\n", "line 2: epoch 'last' is neither"),
        (f"{HEADING}\n{GOOD.replace('best', '0')}\n", "line 2: epoch '0' is neither"),
        (f"{HEADING}\n{GOOD.replace('66.77', '66,77 %')}\n", "line 2: 10 cells"),
        (f"{HEADING}\n{GOOD.replace('66.77', '66.77 %')}\n", "line 2: mean is '66.77 %', not a number"),
        (f"{HEADING}\n{GOOD.replace('66.77', '')}\n", "line 2: no mean"),
        (f"{HEADING}\n{GOOD.replace('1.14', '-1')}\n", "line 2: std is '-1', not a number of 0 or more"),
        (f"{HEADING}\n{GOOD.replace(',3,', ',2.5,')}\n", "line 2: n is '2.5', not a whole number"),
        (f"{HEADING}\n{GOOD.replace(',3,0', ',3,2')}\n", "line 2: ddof is '2', not 0"),
        (f"{HEADING}\n{GOOD}{'0' * 140_000}\n", "line 2: not CSV (field larger than field limit"),
        (f'{HEADING}\n"{GOOD}\n' + f"{GOOD}\n" * 3000, "not CSV (field larger than field limit"),
        ("a" * 140_000, "line 1: not CSV"),
    ],
    ids=itertools.count(),
)
def test_a_bad_file_is_named_with_its_line(tmp_path, text, message):
    with pytest.raises(UserError) as error:
        read_reference(write(tmp_path, text))
    assert str(error.value).startswith(str(tmp_path / "reference.csv"))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.xlsx", "", "a reference file ends with .csv, .md, .json"),
        ("a.json", "[{", "line 1: not JSON"),
        ("a.json", '{"arm": 1}', "not a list of objects"),
        ("a.json", "[" * 100_000, "nested too deeply"),
        ("a.json", json.dumps([{**ENTRY, "mean": [66]}]), "entry 1: mean is neither a number nor a text"),
        ("a.json", json.dumps([{**ENTRY, "mean": None}]), "entry 1: no mean"),
        ("a.md", "| arm |\n|---|\n", "no column 'init'"),
    ],
    ids=itertools.count(),
)
def test_other_formats_too(tmp_path, name, text, message):
    with pytest.raises(UserError) as error:
        read_reference(write(tmp_path, text, name))
    assert message in str(error.value)


def beside(runs, tmp_path, *rows):
    table = load_runs(runs)
    reference = read_reference(write(tmp_path, "\n".join([HEADING, *rows]) + "\n"))
    return compare_reference(table, best_checkpoints(table), reference).to_dict("records")


@pytest.mark.parametrize("ddof", [0, 1])
def test_ours_beside_theirs_is_scipys_welch(runs, tmp_path, ddof):
    """A population std of three values is the sample std times sqrt(2/3)."""
    ours, theirs = np.array([65.5, 66.75, 68.25]), np.array([65.4, 66.7, 68.2])
    cells = f"fairseq,random,best,test,accuracy,{theirs.mean()},{theirs.std(ddof=ddof)},3,{ddof}"
    (row,) = beside(runs, tmp_path, cells)
    expected = stats.ttest_ind(ours, theirs, equal_var=False)
    interval = expected.confidence_interval(0.95)
    assert (row["n"], row["mean"], row["std"]) == pytest.approx((3, ours.mean(), ours.std(ddof=1)))
    assert row["reference_std"] == pytest.approx(theirs.std(ddof=1))
    assert (row["low"], row["high"], row["p"]) == pytest.approx(
        (interval.low, interval.high, expected.pvalue)
    )
    assert row["within_noise"] is True


def test_a_large_difference_is_no_noise(runs, tmp_path):
    (row,) = beside(runs, tmp_path, "fairseq,random,best,test,accuracy,79.3,0.65,3,0")
    assert row["within_noise"] is False
    assert row["difference"] == pytest.approx(np.mean([65.5, 66.75, 68.25]) - 79.3)


@pytest.mark.parametrize("std_n", [",", "1.0,", ",3", "1.0,1"])
def test_without_std_or_n_there_is_no_verdict(runs, tmp_path, std_n):
    (row,) = beside(runs, tmp_path, f"fairseq,random,2,test,accuracy,60,{std_n},0")
    assert row["difference"] == pytest.approx(np.mean([65.5, 60, 60]) - 60)
    assert row["within_noise"] is None


def test_rows_without_our_runs_are_named(runs, tmp_path, caplog):
    strange = ["lora,random,1,test,accuracy,60,1,3,1", "fairseq,random,9,test,accuracy,60,1,3,1"]
    rows = beside(runs, tmp_path, *strange, "fairseq,random,1,test,mcc,0.5,0.1,3,1", GOOD)
    assert len(rows) == 1
    assert "3 rows of the reference without a run of ours: lora random 1 test accuracy" in caplog.text
    with pytest.raises(UserError, match="no run of ours has what the reference reports"):
        beside(runs, tmp_path, strange[0])


def test_the_published_results_of_the_project():
    frame = read_reference(PUBLISHED).set_index(["init", "epoch", "subset"])
    assert len(frame) == 14
    for init, tests in (("pretrained", [79.3, 78.5, 80.1]), ("random", [65.4, 66.7, 68.2])):
        row = frame.loc[(init, "best", "test")]
        assert (row["mean"], row["std"]) == pytest.approx((np.mean(tests), np.std(tests)), abs=0.005)
        assert (row["n"], row["ddof"]) == (3, 0)
