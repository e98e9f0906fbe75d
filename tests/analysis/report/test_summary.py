"""Numbers and verdicts in the summary of the report."""

import json
import re

import pytest
from prediction_files import write_predictions
from run_trees import write_run

from analysis.read.runs import find_runs
from analysis.report.findings import Rule, gather
from analysis.report.summary import (
    ASSUMES_NORMAL,
    CONTAINS_ZERO,
    EXCLUDES_ZERO,
    NO_INTERVAL,
    NO_REFERENCE_INTERVAL,
    THIS_TEST_SET,
    WIDER,
    summary,
)


def summary_of(root, **more):
    return "\n".join(summary(gather(find_runs(root), Rule(), **more)))


def two_groups(root, one, other):
    for init, values in (("one", one), ("other", other)):
        for seed, value in enumerate(values, start=1):
            write_run(root, init, seed, [value], [value])


def test_one_run_has_no_interval_over_seeds(tmp_path):
    write_run(tmp_path, "random", 1, [60.0], [61.0])
    text = summary_of(tmp_path, test_size=400)
    assert re.search(r"fairseq/random [^;]*61\.00", text)
    assert re.findall(r"\[[^]]*\]", text) == ["[56.14, 65.65]"]  # none over seeds
    assert re.search(r"\b400\b", text)


def test_an_interval_with_zero_is_not_significant(tmp_path):
    two_groups(tmp_path, [60.0, 70.0, 65.0], [64.0, 63.0, 69.0])
    text = summary_of(tmp_path)
    assert CONTAINS_ZERO in text
    assert not any(EXCLUDES_ZERO.format(f"fairseq/{init}") in text for init in ("one", "other"))
    assert "3 pairs" in text
    assert "power 0.8" in text


def test_a_clear_difference_of_three_seeds_assumes_normal_scores(tmp_path):
    two_groups(tmp_path, [80.0, 80.5, 81.0], [60.1, 60.4, 61.2])
    text = summary_of(tmp_path)
    assert EXCLUDES_ZERO.format("fairseq/one") in text
    assert ASSUMES_NORMAL in text
    assert THIS_TEST_SET in text


def test_a_clear_difference_of_eight_seeds_needs_no_assumption(tmp_path):
    two_groups(tmp_path, [80.0 + 0.1 * k for k in range(8)], [60.0 + 0.17 * k for k in range(8)])
    text = summary_of(tmp_path)
    assert EXCLUDES_ZERO.format("fairseq/one") in text
    assert ASSUMES_NORMAL not in text


def test_equal_runs_are_undecided(tmp_path):
    two_groups(tmp_path, [60.0, 60.0], [60.0, 60.0])
    text = summary_of(tmp_path)
    assert NO_INTERVAL in text
    assert CONTAINS_ZERO not in text


@pytest.mark.parametrize(
    ("values", "size", "wider"),
    [
        ([50.0, 60.0, 70.0], 2000, "seeds"),
        ([60.0, 60.1, 60.2], 200, "examples"),
    ],
)
def test_which_uncertainty_dominates(tmp_path, values, size, wider):
    two_groups(tmp_path, values, [])
    assert f"fairseq/one, {WIDER[wider]}" in summary_of(tmp_path, test_size=size)


def test_many_groups_are_summarized_after_correction(tmp_path):
    for group in range(5):
        for seed in range(1, 4):
            write_run(tmp_path, f"g{group}", seed, [60.0 + seed], [60.0 + (seed * 7 + group * 5) % 9])
    text = summary_of(tmp_path)
    # In three of the ten pairs, the difference is the same for all seeds.
    assert re.search(r"\b7 pairs\b.*\b0 differ\b.*\bfor 7\b.*\b3 pairs\b", text)
    assert not re.search(r"fairseq/g\d minus", text)


def test_published_results(tmp_path):
    two_groups(tmp_path, [60.0, 61.0, 62.0], [])
    path = tmp_path / "published.csv"
    rows = ["1,test,accuracy,61.5,1,3", "best,test,accuracy,90,1,3"]
    path.write_text(
        "arm,init,epoch,subset,metric,mean,std,n\n" + "".join(f"fairseq,one,{row}\n" for row in rows), "utf-8"
    )
    text = summary_of(tmp_path, reference=path)
    (verdicts,) = re.findall(r"\b2 published numbers for fairseq/one, (.*?)\.", text)
    assert re.findall(r"\d+", verdicts) == ["1", "1"]  # one not significantly different, one above ours
    assert "lower" in verdicts


def test_published_results_without_std_are_undecided(tmp_path):
    two_groups(tmp_path, [60.0, 61.0, 62.0], [])
    path = tmp_path / "published.csv"
    path.write_text("arm,init,epoch,subset,metric,mean\nfairseq,one,best,test,accuracy,90\n", "utf-8")
    text = summary_of(tmp_path, reference=path)
    assert f"published.csv: {NO_REFERENCE_INTERVAL}" in text


def test_duplicates_of_train(tmp_path):
    duplicates = {"test": {"train": [3]}}
    content = {"splits": {"test": {"lines": 4}}, "duplicates": {"exact": duplicates}}
    audit = tmp_path / "audit.json"
    audit.write_text(json.dumps(content), encoding="utf-8")
    run = write_run(tmp_path / "runs", "random", 1, [50.0], [75.0])
    assert "25.0 points" in summary_of(tmp_path / "runs", audit=audit)
    write_predictions(run, "0101", "0111")  # wrong on an unseen one
    assert "−8.33 to −8.33 points" in summary_of(tmp_path / "runs", audit=audit)
