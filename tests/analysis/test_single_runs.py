"""A group with a single run, such as a deterministic baseline, and groups with several seeds."""

import numpy as np
import pytest
from scipy.stats import binomtest

from roberta_small.analysis.features.curves import draw_curves
from roberta_small.analysis.features.seeds import SINGLE
from roberta_small.analysis.predictions import compare_predictions, read_predictions
from roberta_small.analysis.read.long_table import load_runs
from roberta_small.analysis.read.runs import find_runs
from tests.support.analysis.command_words import study_words
from tests.support.analysis.prediction_files import write_predictions
from tests.support.analysis.printed_tables import notes_with, printed
from tests.support.analysis.run_trees import write_run

GOLD = list("0101010101")
ANSWERS = {1: list("0101010110"), 2: list("0101011010"), 3: list("0101010101")}
BASELINE = list("1101010100")


@pytest.fixture
def with_baseline(tmp_path):
    """Three seeds with two epochs and one baseline with a single validation, all with answers."""
    root = tmp_path / "runs"
    for seed, answers in ANSWERS.items():
        test = 10.0 * sum(a == b for a, b in zip(answers, GOLD, strict=True))
        write_predictions(write_run(root, "random", seed, [50.0, 60.0 + seed], [50.0, test]), GOLD, answers)
    write_predictions(write_run(root, "tfidf", 0, [80.0], [80.0], arm="bow"), GOLD, BASELINE)
    return root


def test_a_single_run_is_set_against_each_run_of_the_other_group(with_baseline):
    answers = read_predictions(find_runs(with_baseline))
    frame = compare_predictions(answers, "fairseq/random", "bow/tfidf")
    assert frame["seed"].tolist() == [1, 2, 3, "mean"]
    right_of_baseline = np.array(BASELINE) == np.array(GOLD)
    for row in frame.iloc[:3].itertuples():
        right = np.array(ANSWERS[row.seed]) == np.array(GOLD)
        only = int((right & ~right_of_baseline).sum()), int((~right & right_of_baseline).sum())
        assert (row.only_a, row.only_b) == only
        assert row.p_mcnemar == pytest.approx(binomtest(only[0], sum(only)).pvalue if sum(only) else 1)
        assert row.difference == pytest.approx(100 * (right.mean() - right_of_baseline.mean()))
    assert frame["difference"].iloc[-1] == pytest.approx(frame["difference"].iloc[:3].mean())
    turned = compare_predictions(answers, "bow/tfidf", "fairseq/random")
    assert turned["difference"].tolist() == pytest.approx((-frame["difference"]).tolist())


def test_groups_of_several_seeds_without_a_common_one_are_still_not_paired(with_baseline):
    write_predictions(write_run(with_baseline, "other", 8, [1.0], [1.0]), GOLD, BASELINE)
    write_predictions(write_run(with_baseline, "other", 9, [1.0], [1.0]), GOLD, BASELINE)
    answers = read_predictions(find_runs(with_baseline))
    assert compare_predictions(answers, "fairseq/random", "fairseq/other").empty


def test_its_interval_is_that_of_the_examples(with_baseline, tmp_path, capsys):
    wide = study_words(tmp_path, "wide = true")
    out = printed(capsys, "tables", with_baseline, "--table", "seeds", *wide)
    # statsmodels: proportion_confint(8, 10, method="wilson") = (0.490162, 0.943318)
    (row,) = [line for line in out.splitlines() if "tfidf" in line and "best" in line]
    assert "[49.02, 94.33]" in row
    assert SINGLE in out
    assert notes_with(out, "3 seeds", "bootstrap")
    assert "1 seeds" not in out


def test_alone_it_keeps_its_interval(tmp_path, capsys):
    write_run(tmp_path, "tfidf", 0, [80.0], [80.0], arm="bow")
    out = printed(capsys, "tables", tmp_path, "--table", "seeds", "--test-size", "10")
    assert "[49.02, 94.33]" in out
    assert not notes_with(out, "seeds", "bootstrap", "too narrow")


def test_no_test_over_seeds_is_made_with_it(with_baseline, capsys):
    out = printed(capsys, "compare", with_baseline, "--groups", "fairseq/random", "bow/tfidf")
    assert notes_with(out, "single run", "prediction files")
    assert "nan" not in out
    assert "McNemar" in out


def test_a_single_validation_is_a_line_in_the_panels_of_curves(with_baseline):
    figure = draw_curves(load_runs(with_baseline))
    assert [panel.get_title() for panel in figure.axes] == ["fairseq: valid", "fairseq: test"]
    for panel in figure.axes:
        (line,) = [line for line in panel.lines if line.get_label() == "bow/tfidf"]
        assert set(line.get_ydata()) == {80.0}
        assert [text.get_text() for text in panel.texts] == ["80.00"]


def test_single_validations_alone_are_points(tmp_path):
    write_run(tmp_path, "tfidf", 0, [80.0], [81.0], arm="bow")
    figure = draw_curves(load_runs(tmp_path))
    assert [panel.get_title() for panel in figure.axes] == ["bow: valid", "bow: test"]
    assert not [text for panel in figure.axes for text in panel.texts]
