"""Class weights, label smoothing, early stopping and the best checkpoint in a recipe."""

import json

import pytest

from roberta_small.common.cli import flags_of
from roberta_small.common.errors import UserError
from roberta_small.experiments import sweep as sweeps
from roberta_small.experiments.recipe import length as run_length
from roberta_small.experiments.recipe import recipe as recipes
from roberta_small.experiments.recipe.recipe import Recipe
from tests.support.data_folders import write_data

CLASSES = ["0", "1"]
MAXIMIZE = "--maximize-best-checkpoint-metric"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("data"))


def complete(data, *words, base="reference"):
    return sweeps.complete(recipes.load(base, words), data, CLASSES)


def notes(data, *words, examples=1800):
    recipe = run_length.resolve(complete(data, *words), examples)
    return sweeps.recipe_notes(recipe, examples)


@pytest.mark.parametrize("name", ["reference", "tuned", "sample", "causal-reference"])
def test_the_projects_recipes_stay_as_they_are(data, name):
    recipe = recipes.load(name)
    assert sweeps.complete(recipe, data, CLASSES) == recipe


def test_class_weights_are_recorded_in_numbers(data, tmp_path):
    recorded = json.loads(complete(data, "--class-weights", "balanced").value("--class-weights"))
    assert recorded == {"0": 1.0, "1": 1.0}
    (tmp_path / "weights.csv").write_text("1,0.5\n0,2\n")
    recipe = complete(data, "--class-weights", str(tmp_path / "weights.csv"))
    assert json.loads(recipe.value("--class-weights")) == {"0": 2.0, "1": 0.5}
    again = sweeps.complete(recipe, data, CLASSES)
    assert again.flags == recipe.flags


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (["--class-weights", "no-file"], ["--class-weights", "no-file"]),
        (["--class-weights"], ["--class-weights"]),
        (["--label-smoothing", "1"], ["--label-smoothing", "1"]),
        (["--label-smoothing", "a"], ["--label-smoothing", "a"]),
        (["--label-smoothing"], ["--label-smoothing"]),
        (["--patience", "two"], ["--patience", "two"]),
        (["--patience"], ["--patience"]),
        (["--validate-interval", "0"], ["--validate-interval"]),
        (["--save-interval", "0"], ["--save-interval"]),
        (["--best-checkpoint-metric", "macro-f1"], ["macro-f1", "mean macro_f1?", "mcc", "accuracy", "loss"]),
        (["--best-checkpoint-metric", "auroc"], ["auroc"]),
    ],
)
def test_wrong_values_are_errors_that_name_the_recipe(data, words, facts):
    with pytest.raises(UserError) as error:
        complete(data, *words)
    assert all(fact in str(error.value) for fact in ["reference", *facts])


@pytest.mark.parametrize(
    ("metric", "maximize"), [("accuracy", True), ("macro_f1", True), ("mcc", True), ("loss", False)]
)
@pytest.mark.parametrize("given", [True, False])
def test_the_direction_follows_from_the_metric(data, metric, maximize, given):
    words = ["--criterion", "sentence_classification", "--best-checkpoint-metric", metric]
    recipe = Recipe("own", (*words, *([MAXIMIZE] if given else [])))
    assert (MAXIMIZE in sweeps.complete(recipe, data, CLASSES).flags) == maximize


def test_the_plan_shows_and_warns_of_weights_and_early_stopping(data):
    assert notes(data) == []
    (weights,) = notes(data, "--class-weights", '{"0": 2.5, "1": 0.5}')
    assert all(fact in weights for fact in ("0 2.5", "1 0.5"))
    (stopping,) = notes(data, "--patience", "2")
    assert all(fact in stopping for fact in ("2", "accuracy", "--patience"))
    uneven = notes(data, "--class-weights", '{"0": 1000, "1": 1}')
    assert any(note.startswith("warning: ") and "1,000" in note for note in uneven)
    for patience, warns in (("3", False), ("4", True), ("9", True)):
        found = notes(data, "--patience", patience)
        assert any(note.startswith("warning: ") and "5" in note for note in found) == warns


def test_weights_survive_fairseqs_parser(data):
    """Hydra and OmegaConf, which parse fairseq's flags, give quotes, dollars and backslashes a meaning."""
    from roberta_small.common import class_weights
    from tests.support.training import configuration

    weights = {"l'été": 1 / 3, 'a "b"': 0.1, "back\\slash\\'": 1e-9, "${x}": 2.0, "so, so": 5.0}
    recipe = run_length.resolve(recipes.load("reference"), 1800)
    recipe = recipe.replace(("--class-weights", class_weights.as_value(weights)))
    cfg = configuration([data, *recipe.words, "--num-classes", "5"])
    assert class_weights.resolve(cfg.criterion.class_weights, data, list(weights)) == weights
    assert flags_of(recipe.words)["--class-weights"][1] == class_weights.as_value(weights)
