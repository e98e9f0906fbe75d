"""The sentences of the report: main findings, cautions and remarks."""

import json
import re

import pytest

from roberta_small.analysis.query import Query
from roberta_small.analysis.read.runs import find_runs
from roberta_small.analysis.report.findings import gather
from roberta_small.analysis.report.summary import (
    EQUAL_SEEDS,
    FEW,
    NO_REFERENCE_INTERVAL,
    ONE_SEED,
    SINGLE,
    UNDECIDED,
    WIDER,
    cautions,
    main_findings,
    overlap_remark,
    reference_remark,
    seeds_remark,
)
from roberta_small.analysis.study import Study
from tests.support.analysis.prediction_files import write_predictions
from tests.support.analysis.run_trees import write_run


def findings_of(root, rule=None, **more):
    return gather(find_runs(root), rule or Query(**more))


def found(root, **more):
    return "\n".join(main_findings(findings_of(root, **more)))


def two_groups(root, one, other):
    for init, values in (("one", one), ("other", other)):
        for seed, value in enumerate(values, start=1):
            write_run(root, init, seed, [value], [value])


def test_one_run_has_no_interval_over_seeds(tmp_path):
    write_run(tmp_path, "random", 1, [60.0], [61.0])
    findings = findings_of(tmp_path, test_size=400)
    (text,) = main_findings(findings)
    assert re.search(r"fairseq/random [^;]*61\.00", text)
    assert re.findall(r"\[[^]]*\]", text) == ["[56.14, 65.65]"]  # none over seeds
    assert re.search(r"\b400\b", text)
    assert cautions(findings) == [SINGLE.format("fairseq/random")]
    assert findings.baseline is None


def test_an_interval_with_zero_is_not_significant(tmp_path):
    two_groups(tmp_path, [60.0, 70.0, 65.0], [64.0, 63.0, 69.0])
    best, difference = main_findings(findings_of(tmp_path))
    assert "fairseq/other has the highest" in best
    assert "65.33 %" in best
    assert "fairseq/other is 0.33 points above the baseline fairseq/one" in difference
    assert UNDECIDED in difference


def test_a_clear_difference_of_three_seeds_assumes_normal_scores(tmp_path):
    two_groups(tmp_path, [80.0, 80.5, 81.0], [60.1, 60.4, 61.2])
    findings = findings_of(tmp_path)
    text = main_findings(findings)[1]
    assert "fairseq/other is 19.93 points below the baseline fairseq/one" in text
    assert re.search(r": significant, p < 0\.001 \(t test\)", text)
    assert UNDECIDED not in text
    assert cautions(findings) == [FEW.format(3)]


def test_eight_seeds_are_not_few(tmp_path):
    two_groups(tmp_path, [80.0 + 0.1 * k for k in range(8)], [60.0 + 0.17 * k for k in range(8)])
    assert cautions(findings_of(tmp_path)) == []


def test_equal_runs_are_not_tested(tmp_path):
    two_groups(tmp_path, [60.0, 60.0], [60.0, 60.0])
    text = found(tmp_path)
    assert "fairseq/one and fairseq/other have the highest" in text
    assert f"has the same mean as the baseline fairseq/one, {EQUAL_SEEDS}" in text


def test_the_lowest_loss_is_best(tmp_path):
    for init, loss in (("one", 0.5), ("two", 0.4)):
        for seed in (1, 2):
            write_run(tmp_path, init, seed, [loss + seed / 100], [loss + seed / 90], metric="loss")
    rule = Query(metric="loss", by="loss")
    text = "\n".join(main_findings(findings_of(tmp_path, rule)))
    assert "fairseq/two has the lowest test loss" in text
    assert "points" not in text


def test_a_single_run_is_compared_by_example(tmp_path):
    for init, predicted in (("one", "0111"), ("two", "0101")):
        write_predictions(write_run(tmp_path, init, 1, [60.0], [75.0]), "0101", predicted)
    (sentence,) = main_findings(findings_of(tmp_path))[1:]
    assert ONE_SEED in sentence
    ((low, high),) = re.findall(r"by example, the difference is in \[.?([\d.]+), .?([\d.]+)\]", sentence)
    assert (float(low), float(high)) == (0.0, 75.0)


@pytest.mark.parametrize(
    ("values", "size", "wider"),
    [
        ([50.0, 60.0, 70.0], 2000, "seeds"),
        ([60.0, 60.1, 60.2], 200, "examples"),
    ],
)
def test_which_uncertainty_dominates(tmp_path, values, size, wider):
    two_groups(tmp_path, values, [])
    assert f"fairseq/one, {WIDER[wider]}" in seeds_remark(findings_of(tmp_path, test_size=size))


def test_many_groups_are_summarized_after_correction(tmp_path):
    for group in range(6):
        for seed in range(1, 4):
            test = 60.0 + (seed * 7 + group * 5) % 9 if group < 5 else 90.0 + 0.1 * seed**2
            write_run(tmp_path, f"g{group}", seed, [60.0 + seed], [test])
    best, difference, summary = main_findings(findings_of(tmp_path))
    assert "fairseq/g5 has the highest" in best
    assert "fairseq/g5 is" in difference
    assert re.match(r"\d of 5 groups differ significantly from the baseline fairseq/g0", summary)
    data = findings_of(tmp_path).differences.set_index("group")["p"]
    undecided = [group for group, p in data.items() if p > 0.05]
    untested = [group for group, p in data.items() if p != p]
    assert untested
    assert f"Undecided: {', '.join(undecided)}." in summary
    assert f"Not tested over seeds: {', '.join(untested)}." in summary


def test_other_pairs_have_a_sentence_or_are_counted(tmp_path):
    for group in range(5):
        for seed in range(1, 4):
            write_run(tmp_path, f"g{group}", seed, [60.0 + seed], [60.0 + seed * 1.1 ** (group * seed)])
    pairs = [("fairseq/g1", "fairseq/g0"), ("fairseq/g3", "fairseq/g2")]
    assert re.search(r"fairseq/g3 is .* above fairseq/g2 ", found(tmp_path, study=Study(pairs=tuple(pairs))))
    counted = main_findings(findings_of(tmp_path, all_pairs=True))[-1]
    assert re.search(r"^Of 6 other pairs of groups, 0 differ significantly \(6 tested, .*10 tests", counted)


def test_scores_on_the_selecting_subset_are_the_first_caution(tmp_path):
    two_groups(tmp_path, [60.0, 61.0, 62.0], [64.0, 63.0, 69.0])
    first, *_ = cautions(findings_of(tmp_path, Query(subset="test")))
    assert "biased upwards" in first
    assert cautions(findings_of(tmp_path)) == [FEW.format(3)]


def test_diverged_runs_are_a_caution(tmp_path):
    two_groups(tmp_path, [60.0, 61.0], [64.0, 63.0])
    write_run(tmp_path, "one", 3, [50.0], [float("nan")])
    assert any("fairseq/one/seed3" in text for text in cautions(findings_of(tmp_path)))


def test_labels_replace_names(tmp_path):
    two_groups(tmp_path, [60.0, 61.0], [64.0])
    study = Study(labels={"fairseq/one": "First", "fairseq/other": "Second"})
    findings = findings_of(tmp_path, study=study)
    text = " ".join([*main_findings(findings), *cautions(findings)])
    assert "Second is" in text
    assert "fairseq/" not in text


def test_published_results(tmp_path):
    two_groups(tmp_path, [60.0, 61.0, 62.0], [])
    path = tmp_path / "published.csv"
    rows = ["1,test,accuracy,61.5,1,3", "best,test,accuracy,90,1,3"]
    path.write_text(
        "arm,init,epoch,subset,metric,mean,std,n\n" + "".join(f"fairseq,one,{row}\n" for row in rows), "utf-8"
    )
    text = reference_remark(findings_of(tmp_path, reference=path))
    (verdicts,) = re.findall(r"\b2 published numbers for fairseq/one, (.*?)\.", text)
    assert re.findall(r"\d+", verdicts) == ["1", "1"]  # one not significantly different, one above ours
    assert "lower" in verdicts


def test_published_results_are_undecided_for_a_single_run(tmp_path):
    two_groups(tmp_path, [60.0], [])
    path = tmp_path / "published.csv"
    path.write_text("arm,init,epoch,subset,metric,mean\nfairseq,one,best,test,accuracy,90\n", "utf-8")
    text = reference_remark(findings_of(tmp_path, reference=path))
    assert f"published.csv: {NO_REFERENCE_INTERVAL}" in text


def test_duplicates_of_train(tmp_path):
    duplicates = {"test": {"train": [3]}}
    content = {"splits": {"test": {"lines": 4}}, "duplicates": {"exact": duplicates}}
    audit = tmp_path / "audit.json"
    audit.write_text(json.dumps(content), encoding="utf-8")
    run = write_run(tmp_path / "runs", "random", 1, [50.0], [75.0])
    findings = findings_of(tmp_path / "runs", audit=audit)
    assert "1 of the 4 test examples (25.0 %)" in cautions(findings)[-1]
    assert "25.0 points" in overlap_remark(findings)
    write_predictions(run, "0101", "0111")  # wrong on an unseen one
    assert "−8.33 to −8.33 points" in overlap_remark(findings_of(tmp_path / "runs", audit=audit))
