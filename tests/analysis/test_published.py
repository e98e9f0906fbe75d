"""Published results: three formats, their errors, and the comparison with runs."""

import itertools
import json
import math
import shutil

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from roberta_small.analysis.published import compare_reference, read_reference
from roberta_small.analysis.read.long_table import load_runs
from roberta_small.analysis.scoring import best_checkpoints
from roberta_small.common.errors import UserError

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
    ("text", "facts"),
    [
        ("", ("column 'arm'",)),
        ("arm,init,epoch,subset,metric,std\n", ("column 'mean'",)),
        (f"{HEADING}\n{GOOD}\n{GOOD}\n", ("line 3", "fairseq random best test accuracy", "line 2")),
        (f"{HEADING},stdev\n{GOOD},1\n", ("line 2", "'stdev'")),
        (f"{HEADING}\n{GOOD},1\n", ("line 2", "10 cells", "9 columns")),
        (f"{HEADING}\n{GOOD.replace('best', 'last')}\n", ("line 2", "epoch", "'last'")),
        (f"{HEADING}\n{GOOD.replace('66.77', '66.77 %')}\n", ("line 2", "mean", "'66.77 %'")),
        (f"{HEADING}\n{GOOD.replace('66.77', '')}\n", ("line 2", "mean")),
        (f"{HEADING}\n{GOOD.replace('1.14', '-1')}\n", ("line 2", "std", "'-1'", "0 or more")),
        (f"{HEADING}\n{GOOD.replace(',3,', ',2.5,')}\n", ("line 2", "n is '2.5'")),
        (f"{HEADING}\n{GOOD.replace(',3,', ',0,')}\n", ("line 2", "n is '0'", "1 or more")),
        (f"{HEADING}\n{GOOD.replace(',3,0', ',3,2')}\n", ("line 2", "ddof", "'2'")),
        (f'{HEADING}\n"{GOOD}\n' + f"{GOOD}\n" * 3000, ("not CSV", "field limit")),
    ],
    ids=itertools.count(),
)
def test_errors_have_file_and_line(tmp_path, text, facts):
    with pytest.raises(UserError) as error:
        read_reference(write(tmp_path, text))
    assert str(error.value).startswith(str(tmp_path / "reference.csv"))
    assert all(fact in str(error.value) for fact in facts)


@pytest.mark.parametrize(
    ("name", "text", "facts"),
    [
        ("a.xlsx", "", ("a.xlsx", ".csv, .md, .json")),
        ("a.json", "[{", ("a.json", "line 1")),
        ("a.json", '{"arm": 1}', ("a.json", "list of objects")),
        ("a.json", "[" * 100_000, ("a.json", "nested too deeply")),
        ("a.json", json.dumps([{**ENTRY, "mean": [66]}]), ("a.json", "entry 1", "mean")),
        ("a.md", "| arm |\n|---|\n", ("a.md", "'init'")),
    ],
    ids=itertools.count(),
)
def test_errors_in_other_formats(tmp_path, name, text, facts):
    with pytest.raises(UserError) as error:
        read_reference(write(tmp_path, text, name))
    assert all(fact in str(error.value) for fact in facts)


def compared(runs, tmp_path, *rows):
    table = load_runs(runs)
    reference = read_reference(write(tmp_path, "\n".join([HEADING, *rows]) + "\n"))
    return compare_reference(table, best_checkpoints(table), reference, name="paper.csv").to_dict("records")


@pytest.mark.parametrize("ddof", [0, 1])
def test_the_comparison_is_scipys_welch_test(runs, tmp_path, ddof):
    """A population std of three values is the sample std times sqrt(2/3)."""
    ours, theirs = np.array([65.5, 66.75, 68.25]), np.array([65.4, 66.7, 68.2])
    cells = f"fairseq,random,best,test,accuracy,{theirs.mean()},{theirs.std(ddof=ddof)},3,{ddof}"
    (row,) = compared(runs, tmp_path, cells)
    expected = stats.ttest_ind(ours, theirs, equal_var=False)
    interval = expected.confidence_interval(0.95)
    assert (row["n"], row["mean"], row["std"]) == pytest.approx((3, ours.mean(), ours.std(ddof=1)))
    assert row["reference_std"] == pytest.approx(theirs.std(ddof=1))
    assert (row["low"], row["high"], row["p"]) == pytest.approx(
        (interval.low, interval.high, expected.pvalue)
    )
    assert row["within_noise"] is True


@pytest.mark.parametrize("std_n", [",", "1.0,"])
def test_a_mean_without_n_is_exact(runs, tmp_path, std_n):
    """scipy's one-sample t test."""
    (row,) = compared(runs, tmp_path, f"fairseq,random,best,test,accuracy,62,{std_n},0")
    expected = stats.ttest_1samp([65.5, 66.75, 68.25], 62)
    low, high = expected.confidence_interval(0.95)
    assert (row["low"], row["high"]) == pytest.approx((low - 62, high - 62))
    assert row["p"] == pytest.approx(expected.pvalue)
    assert (row["test"], row["within_noise"]) == ("one-sample", False)


@pytest.mark.parametrize("std_n", [",3", "1.0,1"])
def test_published_runs_without_std_are_assumed_to_have_ours(runs, tmp_path, std_n):
    """The interval follows from the distribution of the difference, simulated with equal variances."""
    (row,) = compared(runs, tmp_path, f"fairseq,random,best,test,accuracy,62,{std_n},0")
    n = int(std_n.split(",")[1])
    assert (row["test"], row["reference_n"]) == ("equal std", n)
    random = np.random.default_rng(1)
    ours, theirs = random.normal(size=(200_000, 3)), random.normal(size=(200_000, n))
    ratios = (ours.mean(1) - theirs.mean(1)) / ours.std(1, ddof=1)
    half = (row["high"] - row["low"]) / 2 / row["std"]
    assert np.mean(np.abs(ratios) <= half) == pytest.approx(0.95, abs=0.003)
    assert np.mean(np.abs(ratios) > row["difference"] / row["std"]) == pytest.approx(row["p"], abs=0.003)


def test_a_single_run_has_no_verdict(runs, tmp_path):
    for seed in (2, 3):
        shutil.rmtree(runs / f"fairseq/random/seed{seed}")
    for std_n in (",", ",3", "1.0,3"):
        (row,) = compared(runs, tmp_path, f"fairseq,random,2,test,accuracy,60,{std_n},0")
        assert row["difference"] == pytest.approx(5.5)
        assert (row["test"], row["within_noise"]) == (None, None)


def test_p_values_are_also_corrected_for_all_rows(runs, tmp_path):
    rows = compared(runs, tmp_path, GOOD, *(f"fairseq,random,{n},test,accuracy,70,1,3,1" for n in (1, 2)))
    expected = multipletests([row["p"] for row in rows], method="holm")[1]
    assert [row["p_holm"] for row in rows] == pytest.approx(expected)


def test_warning_for_rows_without_matching_runs(runs, tmp_path, caplog):
    strange = ["lora,random,1,test,accuracy,60,1,3,1", "fairseq,random,9,test,accuracy,60,1,3,1"]
    rows = compared(runs, tmp_path, *strange, "fairseq,random,1,test,mcc,0.5,0.1,3,1", GOOD)
    assert len(rows) == 1
    assert "3 rows" in caplog.text
    for missing in ("lora random 1 test accuracy (no group lora/random)", "epoch 9", "metric mcc"):
        assert missing in caplog.text
    with pytest.raises(UserError, match=r"paper\.csv.*lora random 1 test accuracy"):
        compared(runs, tmp_path, strange[0])
