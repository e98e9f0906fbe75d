import re

import numpy as np
import pytest
from matplotlib.colors import to_hex
from scipy.stats import t

from roberta_small.analysis.__main__ import main
from roberta_small.analysis.features.best_settings import chosen_settings
from roberta_small.analysis.features.best_settings_figures import draw_best_settings, draw_flag
from roberta_small.analysis.query import Query
from roberta_small.analysis.read.runs import find_runs, select_finished
from roberta_small.analysis.selection import Selection
from tests.support.analysis.prediction_files import write_predictions
from tests.support.analysis.printed_tables import notes_with, parsed, printed
from tests.support.analysis.run_trees import write_run

SCORES = {"1e-5": (60.0, 61.0), "1e-4": (70.0, 72.0), "1e-3": (65.0, 66.0)}


@pytest.fixture
def grid(tmp_path):
    """Two inits, three learning rates (the recipe's is 1e-5), two seeds, two epochs, and a baseline."""
    for init, more in (("random", 0.0), ("small", 5.0)):
        for lr, scores in SCORES.items():
            arm = "fairseq" if lr == "1e-5" else f"fairseq,lr={lr}"
            for seed, score in enumerate(scores, start=1):
                run = write_run(
                    tmp_path / "runs", init, seed, [50.0, score + more], [50.0, score + more + 1],
                    arm=arm, recipe_flags=["--lr", lr],
                )  # fmt: skip
                write_predictions(run, "0101", "0110" if init == "random" else "0101")
    run = write_run(tmp_path / "runs", "tfidf", 0, [80.0], [80.0], arm="bow")
    write_predictions(run, "0101", "0111")
    return tmp_path / "runs"


def found(root):
    selection = Selection.of(select_finished(find_runs(root)), Query())
    return selection, chosen_settings(selection)


def test_tables_name_all_settings_and_compare_the_chosen_ones(grid, capsys):
    tables = parsed(capsys, "tables", grid, "--table", "best-settings")
    assert list(tables) == ["settings", "best_settings", "comparison", "examples"]
    settings = tables["settings"]["rows"]
    assert len(settings) == 7
    chosen = [(row["arm"], row["init"]) for row in settings if row["chosen"]]
    assert chosen == [("bow", "tfidf"), ("fairseq,lr=1e-4", "random"), ("fairseq,lr=1e-4", "small")]
    roles = [(row["init"], row["role"]) for row in tables["best_settings"]["rows"]]
    assert roles == [
        ("tfidf", "as the recipe"),
        ("random", "as the recipe (lr=1e-5)"),
        ("random", "chosen: lr=1e-4"),
        ("small", "as the recipe (lr=1e-5)"),
        ("small", "chosen: lr=1e-4"),
    ]
    (pair,) = [row for row in tables["comparison"]["rows"] if row["a"] != "bow/tfidf"]
    assert (pair["a"], pair["b"], pair["design"]) == (
        "fairseq,lr=1e-4/random",
        "fairseq,lr=1e-4/small",
        "paired",
    )
    assert pair["difference"] == pytest.approx(-5)
    assert {row["n"] for row in tables["examples"]["rows"]} == {4}


def test_notes_on_few_seeds_and_a_small_validation_set(grid, capsys):
    for run in grid.glob("fairseq*/*/seed*"):
        write_predictions(run, "0101", "0101", split="valid")
    words = ["tables", grid, "--table", "best-settings"]
    out = printed(capsys, *words)
    assert re.search(r"\bonly 2 seeds\b", out)
    assert re.search(r"\b\d of \d other settings", out)
    assert re.search(r"\b4 examples of valid\b", out)
    write_run(grid, "small", 3, [50.0], [50.0])
    assert re.search(r"\bdifferent\b.*\bseeds\b", printed(capsys, *words))


def test_without_a_grid(runs, capsys):
    out = printed(capsys, "tables", runs, "--table", "best-settings")
    assert out.count("the only one") == 2
    assert "| chosen" not in out


def lines_of(panel):
    return {line.get_label(): line for line in panel.lines if not line.get_label().startswith("_")}


def test_curves_of_the_recipe_and_of_the_best_settings(grid):
    left, right = draw_best_settings(*found(grid)).axes
    assert left.get_title() == "fairseq: as the recipe"
    assert {"random (2 seeds)", "small (2 seeds)"} <= set(lines_of(left))
    lines = lines_of(right)
    assert {"random, lr=1e-4 (2 seeds)", "small, lr=1e-4 (2 seeds)", "bow/tfidf"} == set(lines)
    assert lines["small, lr=1e-4 (2 seeds)"].get_ydata() == pytest.approx([50.0, 77.0])
    colors = [lines_of(left)["small (2 seeds)"], lines["small, lr=1e-4 (2 seeds)"]]
    assert len({to_hex(line.get_color()) for line in colors}) == 1
    assert left.get_ylim() == right.get_ylim()


def test_one_panel_without_runs_of_the_recipe(grid):
    for path in grid.glob("fairseq/*/*/manifest.json"):
        path.write_text(path.read_text().replace('"finished"', '"failed"'))
    (panel,) = draw_best_settings(*found(grid)).axes
    assert panel.get_title() == "fairseq: each init at its best setting"


def test_scores_stand_at_the_values_of_the_flag(grid):
    valid, test = draw_flag(*found(grid), "lr").axes
    assert [label.get_text() for label in valid.get_xticklabels()] == ["1e-5", "1e-4", "1e-3"]
    assert valid.get_xticks() == pytest.approx([0, 0.5, 1])  # decades are equally far apart
    for panel, more in ((valid, 0), (test, 1)):
        line = lines_of(panel)["fairseq/random"]
        assert line.get_ydata() == pytest.approx([np.mean(SCORES[lr]) + more for lr in SCORES])
    bars = [segment for bar in valid.collections for segment in bar.get_segments()]
    half = t.ppf(0.975, 1) * np.std(SCORES["1e-5"], ddof=1) / np.sqrt(2)
    assert bars[0][:, 1] == pytest.approx([60.5 - half, 60.5 + half])


def test_a_single_setting_is_a_point_at_its_value_and_one_without_a_value_a_horizontal_line(grid):
    for seed in (1, 2):
        write_run(grid, "random", seed, [50.0, 63.0], [50.0, 64.0], arm="hf", recipe_flags=["--lr", "1e-5"])
    test = draw_flag(*found(grid), "lr").axes[1]
    assert lines_of(test)["hf/random"].get_ydata() == pytest.approx([64])
    assert lines_of(test)["hf/random"].get_xdata() == pytest.approx([0], abs=0.05)
    assert list(lines_of(test)["bow/tfidf"].get_ydata()) == [80, 80]


def test_a_line_varies_one_flag_and_keeps_the_chosen_others(tmp_path):
    for dropout, lr, score in (("0.1", "1", 60), ("0.1", "2", 61), ("0.2", "1", 70), ("0.2", "2", 65)):
        write_run(tmp_path, "random", 1, [score], [score], arm=f"fairseq,dropout={dropout},lr={lr}")
    panel = draw_flag(*found(tmp_path), "lr").axes[0]
    assert lines_of(panel)["fairseq/random"].get_ydata() == pytest.approx([70, 65])


def test_values_that_are_not_numbers_are_in_alphabetical_order(tmp_path):
    for name, score in (("b", 60), ("a", 61), ("c", 62)):
        write_run(tmp_path, "random", 1, [score], [score], arm=f"fairseq,optimizer={name}")
    panel = draw_flag(*found(tmp_path), "optimizer").axes[0]
    assert [label.get_text() for label in panel.get_xticklabels()] == ["a", "b", "c"]
    assert lines_of(panel)["fairseq/random"].get_ydata() == pytest.approx([61, 60, 62])


def test_a_single_setting_has_no_figure_and_two_flags_at_once_no_line(tmp_path):
    write_run(tmp_path / "runs", "random", 1, [60.0], [60.0], arm="fairseq,lr=1")
    out = tmp_path / "out"
    words = ["figures", str(tmp_path / "runs"), "--figure", "best-settings", "--out", str(out)]
    assert main(words) == 0
    assert not list(out.glob("*.png"))
    write_run(tmp_path / "runs", "random", 1, [60.0], [60.0], arm="fairseq,dropout=0.5,lr=2")
    assert main(words) == 0
    assert [path.name for path in out.glob("*.png")] == ["accuracy_best_settings.png"]


def test_notes_of_a_choice_on_test(grid, capsys):
    words = ["tables", grid, "--table", "best-settings"]
    out = printed(capsys, *words)
    assert notes_with(out, "valid", "test set")
    assert not notes_with(out, "biased upwards", "test set")
    out = printed(capsys, *words, "--choose-on", "test")
    assert notes_with(out, "biased upwards", "test set")
    assert not notes_with(out, "test set is not used")
