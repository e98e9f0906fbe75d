import numpy as np
import pytest
from scipy.stats import ttest_rel

from roberta_small.analysis.features.best_settings import (
    choose_settings,
    find_settings,
    flag_values,
    split_arm,
    varied_flags,
)
from roberta_small.analysis.read.long_table import load_runs
from roberta_small.analysis.read.runs import find_runs
from roberta_small.analysis.scoring import best_checkpoints
from roberta_small.common.errors import UserError
from roberta_small.experiments.recipe import recipe as recipes
from roberta_small.experiments.recipe.recipe import variants
from tests.support.analysis.run_trees import write_run

VALID = {
    "fairseq": (60.0, 62.0, 61.5),
    "fairseq,lr=1e-3": (70.0, 66.0, 71.0),
    "fairseq,lr=1e-4": (68.0, 69.0, 69.5),
}
TEST = {
    "fairseq": (59.0, 61.0, 60.0),
    "fairseq,lr=1e-3": (60.0, 62.0, 61.0),
    "fairseq,lr=1e-4": (80.0, 81.0, 82.5),
}


@pytest.fixture
def grid(tmp_path):
    """Three settings, three seeds, one validation after a worse one; 1e-3 is best on valid, 1e-4 on test."""
    for arm, valid in VALID.items():
        for seed, (value, test) in enumerate(zip(valid, TEST[arm], strict=True), start=1):
            flags = ["--max-epoch=2", "--lr", "1e-5"] if arm == "fairseq" else []
            write_run(tmp_path, "random", seed, [50.0, value], [50.0, test], arm=arm, recipe_flags=flags)
    return tmp_path


def choose(root, **options):
    best = best_checkpoints(load_runs(root))
    return choose_settings(find_settings(find_runs(root)), best, **options)


def test_settings_stand_in_the_order_of_their_numbers_after_the_recipe(tmp_path):
    for lr in ("3e-4", "1e-3", "2e-5"):
        write_run(tmp_path, "random", 1, [1.0], [1.0], arm=f"fairseq,lr={lr}")
    words = ["--lr", "1e-5", "--no-save", "--lr=5e-4"]  # the last one counts
    write_run(tmp_path, "random", 1, [1.0], [1.0], recipe_flags=words)
    write_run(tmp_path, "tfidf", 0, [1.0], [1.0], arm="bow")
    settings = find_settings(find_runs(tmp_path))
    labels = ["as the recipe", "as the recipe (lr=5e-4)", "lr=2e-5", "lr=3e-4", "lr=1e-3"]
    assert settings["label"].tolist() == labels
    assert settings["values"].tolist()[:2] == [{}, {"lr": "5e-4"}]
    assert varied_flags(settings) == ["lr"]


def test_validation_chooses_and_test_takes_no_part(grid):
    data = choose(grid).set_index("arm")
    assert data.index[data["chosen"]].tolist() == ["fairseq,lr=1e-3"]
    for arm, row in data.iterrows():
        assert row["valid_mean"] == pytest.approx(np.mean(VALID[arm]))
        assert row["valid_std"] == pytest.approx(np.std(VALID[arm], ddof=1))
        assert row["test_mean"] == pytest.approx(np.mean(TEST[arm]))
    assert choose(grid, ddof=0).set_index("arm").at["fairseq", "test_std"] == pytest.approx(
        np.std(TEST["fairseq"])
    )


def test_how_far_behind_agrees_with_a_paired_t_interval(grid):
    data = choose(grid).set_index("arm")
    for arm in ("fairseq", "fairseq,lr=1e-4"):
        expected = ttest_rel(VALID["fairseq,lr=1e-3"], VALID[arm]).confidence_interval(0.95)
        assert (data.at[arm, "low"], data.at[arm, "high"]) == pytest.approx((expected.low, expected.high))
        assert data.at[arm, "behind"] == pytest.approx(
            np.mean(VALID["fairseq,lr=1e-3"]) - np.mean(VALID[arm])
        )
    assert data.at["fairseq,lr=1e-3", "behind"] == 0


def test_only_seeds_of_both_are_paired(grid):
    write_run(grid, "random", 9, [100.0], [0.0], arm="fairseq,lr=1e-3")
    data = choose(grid).set_index("arm")
    assert (data.at["fairseq,lr=1e-3", "n"], data.at["fairseq", "pairs"]) == (4, 3)
    assert data.at["fairseq", "behind"] == pytest.approx(
        np.mean(VALID["fairseq,lr=1e-3"]) - np.mean(VALID["fairseq"])
    )


@pytest.mark.parametrize(("recipe", "chosen"), [(70.0, "fairseq"), (60.0, "fairseq,lr=2e-5")])
def test_of_equal_means_the_recipe_then_the_smallest_value(tmp_path, recipe, chosen):
    for arm, mean in (("fairseq", recipe), ("fairseq,lr=2e-5", 70.0), ("fairseq,lr=1e-4", 70.0)):
        write_run(tmp_path, "random", 1, [mean], [1.0], arm=arm)
    data = choose(tmp_path)
    assert data.loc[data["chosen"], "arm"].tolist() == [chosen]


def test_the_lowest_loss_is_best(tmp_path):
    for arm, loss in (("fairseq", 0.7), ("fairseq,lr=1e-3", 0.5)):
        for seed in (1, 2):
            write_run(tmp_path, "random", seed, [loss + seed / 100], [loss], arm=arm, metric="loss")
    best = best_checkpoints(load_runs(tmp_path), "loss")
    data = choose_settings(find_settings(find_runs(tmp_path)), best, lower=True).set_index("arm")
    assert data.index[data["chosen"]].tolist() == ["fairseq,lr=1e-3"]
    assert data.at["fairseq", "behind"] == pytest.approx(0.2)


def test_arm_names_of_the_sweep_are_parsed():
    grid = {"clip-norm": ("7", "8"), "dropout": ("0.2",)}
    names = [arm for arm, _ in variants("fairseq", recipes.load("reference"), grid)]
    assert [flag_values(split_arm(name)[1]) for name in names] == [
        {"clip-norm": "7", "dropout": "0.2"},
        {"clip-norm": "8", "dropout": "0.2"},
    ]
    assert {split_arm(name)[0] for name in names} == {"fairseq"}


def test_only_nan_values_are_an_error(tmp_path):
    write_run(tmp_path, "random", 1, [float("nan")], [1.0], arm="fairseq,lr=1")
    with pytest.raises(UserError, match=r"NaN.*train\.log"):
        choose(tmp_path)
