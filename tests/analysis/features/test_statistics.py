"""The command compare and the tables seeds, expected and accuracy: output, files and errors."""

import json
import math
import re
from pathlib import Path

import pandas as pd
import pytest
from statsmodels.stats.proportion import proportion_confint

from roberta_small.analysis.__main__ import main
from roberta_small.analysis.compare import holm
from roberta_small.common.tables import p_value
from tests.support.analysis.command_words import study_words, words_of
from tests.support.analysis.html_page import Page
from tests.support.analysis.prediction_files import write_predictions
from tests.support.analysis.printed_tables import failed, notes_with, parsed, printed
from tests.support.analysis.run_trees import write_events, write_run

ROOT = Path(__file__).parents[3]
GROUPS = ["--groups", "fairseq/pretrained", "fairseq/random"]
INDEX = ["--format", "model-index"]
GOLD = ["0", "1"] * 10
AUDIT = {"splits": {"test": {"lines": 20}}, "duplicates": {"exact": {"test": {"train": [3, 4]}}}}


@pytest.fixture
def run_tree(runs):
    """Every run has answers to twenty sentences: the pretrained ones are right, the others on 14."""
    for init in ("pretrained", "random"):
        for seed in (1, 2, 3):
            wrong = ["10"[int(g)] for g in GOLD[:6]] if init == "random" else GOLD[:6]
            write_predictions(runs / f"fairseq/{init}/seed{seed}", GOLD, wrong + GOLD[6:])
    return runs


def test_seeds(runs, tmp_path, capsys):
    words = ["tables", runs, "--table", "seeds", "--test-size", 2000]
    out = printed(capsys, *words, *study_words(tmp_path, "wide = true"))
    row = "| fairseq | pretrained | best |   3 | 79.25 | 0.75 |  79.25 | 78.50 | 80.00 | [77.39, 81.11] |"
    assert row in out
    assert notes_with(out, "latest")
    assert notes_with(out, "ddof 1")
    assert notes_with(out, "10,000", "seed 1")
    assert notes_with(out, "2,000 examples", "test")
    assert notes_with(out, "3 seeds", "76 %", "91 %")


def test_seeds_finds_the_size_in_prediction_files_or_an_audit(run_tree, tmp_path, capsys):
    assert parsed(capsys, "tables", run_tree, "--table", "seeds")["seeds"]["rows"][0]["test_size"] == 20
    (tmp_path / "audit.json").write_text(json.dumps({**AUDIT, "splits": {"test": {"lines": 500}}}))
    audited = parsed(capsys, "tables", run_tree, "--table", "seeds", "--audit", tmp_path / "audit.json")
    assert audited["seeds"]["rows"][0]["test_size"] == 500


def test_an_interval_ends_where_the_metric_does(runs, tmp_path, capsys):
    """Two seeds: the t interval of the mean is 70 ± 127, that of the difference 20 ± 381."""
    for init, tests in (("random", (60.0, 80.0)), ("other", (80.0, 20.0))):
        for seed, test in enumerate(tests, start=1):
            write_run(tmp_path / "two", init, seed, [50.0], [test])
    reference = tmp_path / "published.csv"
    reference.write_text("arm,init,epoch,subset,metric,mean,n\nfairseq,random,best,test,accuracy,60,3\n")
    words = ["--reference", reference]
    found = parsed(capsys, "tables", tmp_path / "two", "--table", "seeds", *words)["seeds"]
    assert {(row["t_low"], row["t_high"]) for row in found["rows"]} == {(0.0, 100.0)}
    assert any("limits of accuracy" in note for note in found["notes"])
    groups = ["--groups", "fairseq/random", "fairseq/other"]
    for name, one in parsed(capsys, "compare", tmp_path / "two", *groups, *words).items():
        if name != "plan":
            assert [(row["low"], row["high"]) for row in one["rows"]] == [(-100.0, 100.0)]
            assert any("limits of accuracy" in note for note in one["notes"])
    assert not notes_with(printed(capsys, "tables", runs, "--table", "seeds"), "limits of")


def test_compare_over_seeds_warns_of_three(runs, capsys):
    out = printed(capsys, "compare", runs, *GROUPS)
    assert notes_with(out, "3 pairs", "permutation", "0.25")
    assert "Holm" not in out  # one comparison
    assert re.search(r"^\*\*.*\b1\.00\b.*accuracy", out, flags=re.MULTILINE)  # the table of seeds needed
    assert "McNemar" not in out


def test_compare_notes_the_correction_and_unpaired_runs(runs, capsys):
    write_run(runs, "random", 8, [50.0] * 3, [50.0] * 3)
    out = printed(capsys, "compare", runs, *GROUPS, "--at", "all")
    assert notes_with(out, "Holm", "4 rows")
    assert notes_with(out, "Excluded", "fairseq/random", "seeds 8")
    assert not notes_with(out, "Excluded", "fairseq/pretrained")


def test_diverged_runs_are_listed(runs, capsys):
    write_run(runs, "random", 9, [50.0, 51.0], [math.nan] * 2)
    for command in (["seeds"], ["compare", *GROUPS], ["expected"]):
        out = printed(capsys, *words_of(command[0], runs, *command[1:]))
        assert notes_with(out, "fairseq/random/seed9")
    out = printed(capsys, "compare", runs, "--groups", "fairseq/pretrained", f"{runs}:fairseq/random")
    assert notes_with(out, f"{runs}:fairseq/random/seed9")


def test_holm_counts_the_tests_that_could_be_made(tmp_path, capsys):
    for seed in (1, 2, 3):  # after the first epoch all differences are 20: no spread, no t test
        write_run(tmp_path, "pretrained", seed, [50.0, 60.0], [80.0, 80.0 + seed])
        write_run(tmp_path, "random", seed, [50.0, 60.0], [60.0, 60.0])
    out = printed(capsys, "compare", tmp_path, *GROUPS, "--at", "1", "2")
    assert notes_with(out, "Holm", "t 1, rank 2, perm. 2")


def other_groups(runs):
    for number, init in enumerate(("other", "third"), start=1):
        for seed in (1, 2, 3):
            write_run(runs, init, seed, [50.0 + seed] * 3, [60.0 + seed**2, 60.0, 61.0 - seed * number])


def test_the_pairs_and_points_of_a_study_file_are_one_family_in_every_command(runs, tmp_path, capsys):
    other_groups(runs)
    study = tmp_path / "study.toml"
    study.write_text(
        'pairs = [["fairseq/pretrained", "fairseq/random"], ["fairseq/third", "fairseq/other"]]\n'
        'at = [2, "best"]\n'
    )
    rows = parsed(capsys, "compare", runs, "--study", study)["comparison"]["rows"]
    points = [(group, at) for group in ("fairseq/pretrained", "fairseq/third") for at in ("2", "best")]
    assert [(row["a"], row["at"]) for row in rows] == points
    corrected = [math.nan if row["p_t_holm"] is None else row["p_t_holm"] for row in rows]
    expected = holm([math.nan if row["p_t"] is None else row["p_t"] for row in rows])
    assert corrected == pytest.approx(expected.tolist(), nan_ok=True)
    chosen = parsed(capsys, "tables", runs, "--table", "best-settings", "--study", study)
    assert chosen["comparison"]["rows"] == rows
    printed(capsys, "report", runs, "--study", study, "--out", tmp_path / "report.html")
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    _, *compared = page.tables["comparison"]
    assert len(compared) == len(rows)
    assert all(p_value(row["p_t_holm"]) in cells for row, cells in zip(rows, compared, strict=True))
    assert len(parsed(capsys, "compare", runs, "--study", study, *GROUPS)["comparison"]["rows"]) == 2
    pairs = ["--pair", *GROUPS[1:], "--pair", "fairseq/third", "fairseq/other", "--at", "2", "best"]
    assert parsed(capsys, "compare", runs, *pairs)["comparison"]["rows"] == rows


def test_seeds_at_single_points(runs, capsys):
    words = ["tables", runs, "--table", "seeds"]
    for more, points in ((["--at", "2", "best"], {"2", "best"}), ([], {"1", "2", "3", "best"})):
        assert {row["at"] for row in parsed(capsys, *words, *more)["seeds"]["rows"]} == points
    assert "--at 99" in failed(capsys, "tables", runs, "--table", "seeds", "--at", "99")


def test_note_on_a_smallest_p_value_after_holm(tmp_path, capsys):
    for seed in range(1, 8):
        write_run(tmp_path, "pretrained", seed, [50.0] * 5, [60.0 + seed * e for e in range(5)])
        write_run(tmp_path, "random", seed, [50.0] * 5, [50.0 + seed] * 5)
    out = printed(capsys, "compare", tmp_path, *GROUPS, "--at", "all")
    assert notes_with(out, "7 pairs", "0.016", "0.094", "Holm", "6 rows")
    assert not notes_with(printed(capsys, "compare", tmp_path, *GROUPS), "7 pairs")


def test_compare_with_runs_of_another_folder(runs, tmp_path, capsys):
    for seed in (1, 2, 3):
        write_run(tmp_path / "other", "random", seed, [50.0], [70.0 + seed])
    groups = ["--groups", "fairseq/random", f"{tmp_path / 'other'}:fairseq/random"]
    (row,) = parsed(capsys, "compare", runs, *groups)["comparison"]["rows"]
    assert row["b"] == f"{tmp_path / 'other'}:fairseq/random"
    assert row["difference"] == pytest.approx((65.5 + 66.75 + 68.25) / 3 - 72)


def test_direction_applies_to_the_selecting_metric(runs, capsys):
    rows = parsed(capsys, "compare", runs, *GROUPS, "--direction", "lowest")["comparison"]["rows"]
    assert rows[0]["p_a_beats_b"] < 0.5
    for path in runs.glob("*/*/seed*/tensorboard/valid"):
        write_events(path, [(225 * epoch, "loss", 1.0 / epoch) for epoch in (1, 2, 3)], suffix=".loss")
    rows = parsed(capsys, "compare", runs, *GROUPS, "--by", "loss", "--direction", "highest")
    assert rows["comparison"]["rows"][0]["p_a_beats_b"] > 0.5


def test_compare_with_published_results(runs, tmp_path, capsys):
    path = tmp_path / "paper.csv"
    path.write_text(
        "arm,init,epoch,subset,metric,mean,std,n,ddof\nfairseq,random,best,test,accuracy,66.77,1.14,3,0\n"
    )
    out = printed(capsys, "compare", runs, "--reference", path)
    assert "paper.csv**" in out
    assert "66.83 ± 1.38 (3) | 66.77 ± 1.40 (3) |" in out
    assert "| yes " in out
    tables = parsed(capsys, "compare", runs, *GROUPS, "--reference", path)
    assert list(tables) == ["comparison", "plan", "reference"]


def test_expected(runs, capsys):
    out = printed(capsys, "tables", runs, "--table", "expected")
    assert "2 of 3" in out
    assert notes_with(out, "Tang et al. 2020")
    rows = parsed(capsys, "tables", runs, "--table", "expected")["expected"]["rows"]
    assert rows[-1]["test"] == 66.75


def test_accuracy_with_and_without_duplicates(run_tree, tmp_path, capsys):
    (tmp_path / "audit.json").write_text(json.dumps(AUDIT))
    words = ["tables", run_tree, "--table", "accuracy", "--audit", tmp_path / "audit.json"]
    out = printed(capsys, *words)
    assert notes_with(out, "2 examples of test", "train", "exact")
    rows = parsed(capsys, *words)["accuracy"]["rows"]
    assert (rows[-1]["accuracy"], rows[-1]["unseen_n"], rows[-1]["seen_n"]) == (70.0, 18, 2)
    assert (rows[-1]["unseen_accuracy"], rows[-1]["seen_accuracy"]) == pytest.approx((100 * 14 / 18, 0))
    low, high = proportion_confint(14, 18, method="wilson")
    assert (rows[-1]["unseen_low"], rows[-1]["unseen_high"]) == pytest.approx((100 * low, 100 * high))
    assert "70.00 ± 0.00 (3)" in out
    assert "77.78 ± 0.00 (3)" in out


@pytest.mark.parametrize(
    ("command", "fmt"),
    [(["seeds"], "markdown"), (["expected"], "latex"), (["compare", *GROUPS], "csv"), (["accuracy"], "json")],
)
def test_every_command_in_every_format_and_as_files(run_tree, tmp_path, capsys, command, fmt):
    name, *more = command
    output = tmp_path / "report"
    out = printed(capsys, *words_of(name, run_tree, *more, "--format", fmt, "--out", output))
    if fmt == "csv" and name == "compare":  # several tables: only files
        assert out == ""
    else:
        assert out.endswith("\n")
        assert not out.endswith("\n\n")
    assert {path.suffix for path in output.iterdir()} == {".md", ".tex", ".csv", ".json"}
    if fmt == "latex":
        assert out.isascii()
        assert out.count("{") == out.count("}")
    if fmt == "csv":
        for path in output.glob("*.csv"):
            assert len(pd.read_csv(path))


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (["compare", "RUNS"], ("compare", "--groups", "--reference")),
        (["compare", "RUNS", "--groups", "fairseq/random"], ("--groups", "fairseq/pretrained")),
        (["compare", "RUNS", "--groups", "random", "pretrained"], ("--groups", "'random'")),
        (["compare", "RUNS", "--groups", "fairseq/random", "nowhere:a/b"], ("nowhere",)),
        (["compare", "RUNS", *GROUPS, "--pair", *GROUPS[1:]], ("--groups", "--pair")),
        (["compare", "RUNS", "--pair", "a/b", "fairseq/random"], ("'a/b'",)),
        (["compare", "RUNS", *GROUPS, "--at", "7"], ("--at 7", "1, 2, 3, best")),
        (["compare", "RUNS", "--groups", *["fairseq/random"] * 2], ("--groups", "fairseq/pretrained")),
        (["compare", "RUNS", *GROUPS, "--by", "mcc"], ("'mcc'", "--metric", "accuracy")),
        (["seeds", "RUNS", "--audit", "absent.json"], ("absent.json",)),
        (["accuracy", "RUNS"], ("predictions-test.jsonl", "evaluate --write-predictions")),
        (["tables", "absent"], ("absent",)),
        (["tables", "RUNS", "--format", "csv"], ("--format csv", "table1, table2", "--table", "--out")),
        (["tables", "RUNS", "--baseline", "fairseq/late"], ("'fairseq/late'",)),
        (["figures", "RUNS", "--reference", "absent.csv", "--out", "out"], ("absent.csv",)),
        (["tables", "RUNS", *INDEX], ("--dataset",)),  # not recorded
        (["tables", "RUNS", *INDEX, "--table", "seeds"], ("--table", "model-index")),
    ],
)
def test_a_user_error_is_one_message_with_the_facts(runs, capsys, arguments, facts):
    write_run(runs, "late", 1, [50.0], [50.0], status="failed")
    name, source, *more = arguments
    assert main(words_of(name, runs if source == "RUNS" else source, *more)) in (1, 2)
    out, err = capsys.readouterr()
    errors = [line for line in err.splitlines() if line.startswith("error")]
    assert len(errors) == 1
    assert all(fact in errors[0] for fact in facts)
    assert out == ""


@pytest.mark.parametrize(
    "arguments", [["seeds", "--test-size", "0"], ["compare", "--detect", "nan"], ["compare", "--detect", "x"]]
)
def test_invalid_numbers_are_usage_errors(runs, capsys, arguments):
    assert main(words_of(arguments[0], runs, *arguments[1:])) == 2
    message = capsys.readouterr().err
    assert arguments[1] in message
    assert "_difference" not in message


def test_committed_runs_against_the_published_results(capsys):
    """After the last epoch random initialisation lands where the published runs did, within noise."""
    runs, published = (ROOT / "results/cls-books" / name for name in ("runs.tar.xz", "published.csv"))
    rows = parsed(capsys, "compare", runs, "--reference", published)["reference"]["rows"]
    assert len(rows) == 14
    (last,) = [row for row in rows if (row["init"], row["epoch"]) == ("random", "5")]
    assert last["within_noise"] is True
    assert math.isclose(last["mean"], 68.06, abs_tol=1e-3)


def test_accuracy_on_another_split_uses_the_log_of_that_split(runs, capsys):
    write_predictions(runs / "fairseq/random/seed1", GOLD, GOLD, split="valid")
    (row,) = parsed(capsys, "tables", runs, "--table", "accuracy", "--split", "valid")["accuracy"]["rows"]
    assert (row["logged"], row["accuracy"]) == (62.0, 100.0)
    write_predictions(runs / "fairseq/random/seed1", GOLD, GOLD, split="other")
    (row,) = parsed(capsys, "tables", runs, "--table", "accuracy", "--split", "other")["accuracy"]["rows"]
    assert row["logged"] is None
