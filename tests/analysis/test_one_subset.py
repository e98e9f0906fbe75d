"""Trees with one evaluated subset: stock fairseq's `--valid-subset valid`, and a Transformers Trainer."""

import json

import pandas as pd
import pytest

from roberta_small.analysis import best_checkpoints, load_runs
from roberta_small.analysis.__main__ import main
from roberta_small.common.errors import UserError
from tests.support.analysis.command_words import words_of
from tests.support.analysis.log_trees import write_transformers
from tests.support.analysis.printed_tables import failed, parsed, printed
from tests.support.analysis.run_trees import write_events, write_run


def write_subset(folder, subset, values=(50.0, 60.0), metric="accuracy"):
    write_events(folder / subset, [(25 * step, metric, value) for step, value in enumerate(values, start=1)])


@pytest.fixture
def fairseq(tmp_path):
    """Two inits of two seeds, whose best accuracies on valid are 61, 62 and 71, 72."""
    for init, base in (("random", 60.0), ("tuned", 70.0)):
        for seed in (1, 2):
            folder = tmp_path / "logs" / "fairseq" / init / f"seed{seed}"
            write_subset(folder, "valid", (base - 5, base + seed, base))
            write_subset(folder, "train", (99.0, 99.0, 99.0))
    return tmp_path / "logs"


@pytest.fixture
def transformers(tmp_path):
    """The logs of two seeds without those of the test."""
    for seed in (1, 2):
        folder = tmp_path / "logs" / "hf" / "random" / f"seed{seed}"
        write_transformers(folder, valid=(0.5, 0.6))
        for path in folder.rglob("events*.1"):
            path.unlink()
    return tmp_path / "logs"


@pytest.mark.parametrize(
    ("tree", "command"),
    [
        *(("fairseq", name) for name in ("tables", "seeds", "expected", "best-settings", "figures")),
        ("transformers", "report"),
    ],
)
def test_every_command_works_and_says_which_subset_it_is(tree, command, request, tmp_path, capsys, caplog):
    tree = request.getfixturevalue(tree)
    out = tmp_path / "out" / ("report.html" if command == "report" else "")
    assert main(words_of(command, tree, "--out", out)) == 0
    assert caplog.text.count("only evaluated subset") == 1
    if command == "figures":
        assert {path.name for path in out.iterdir()} >= {"accuracy_per_epoch.png", "accuracy_seeds.png"}
        return
    text = out.read_text(encoding="utf-8") if command == "report" else capsys.readouterr().out
    assert "optimistic, because valid was also used for the selection" in text


def test_the_values_are_those_of_the_best_checkpoints(fairseq, capsys):
    tables = parsed(capsys, "tables", fairseq)
    rows = pd.DataFrame(tables["table1"]["rows"]).set_index(["init", "seed"])
    assert rows.at[("random", 1), "test"] == rows.at[("random", 1), "valid"] == 61.0
    assert rows.at[("tuned", "mean"), "test"] == 71.5
    assert set(rows["reported"]) == set(rows["subset"]) == {"valid"}
    assert {row["epoch"] for row in tables["table2"]["rows"]} == {1, 2, 3}


@pytest.mark.parametrize("subset", ["test", "books"])
def test_the_only_subset_may_have_another_name(tmp_path, subset, capsys):
    for seed in (1, 2):
        folder = tmp_path / "fairseq" / "random" / f"seed{seed}"
        write_subset(folder, subset)
        write_subset(folder, "train")
    assert "60.00" in printed(capsys, "tables", tmp_path)
    assert load_runs(tmp_path).query("subset == @subset")["epoch"].max() == 2


def test_of_several_subsets_without_test_one_has_to_be_named(tmp_path, capsys, caplog):
    folder = tmp_path / "fairseq" / "random" / "seed1"
    for subset in ("valid", "valid1", "train"):
        write_subset(folder, subset, (50.0, 61.0 if subset == "valid" else 59.0))
    assert "--split" in failed(capsys, "tables", tmp_path)
    out = printed(capsys, "tables", tmp_path, "--split", "valid1")
    assert "59.00" in out
    assert "only evaluated" not in caplog.text
    assert "optimistic" not in out


def test_runs_without_any_validation_are_an_error(tmp_path):
    write_subset(tmp_path / "seed1", "train")
    with pytest.raises(UserError, match="valid"):
        best_checkpoints(load_runs(tmp_path))


def test_accuracy_is_that_of_the_predictions_of_test(tmp_path, capsys):
    run = write_run(tmp_path, "random", 1, [50.0, 60.0], [51.0, 61.0])
    for path in (run / "tensorboard" / "test").iterdir():
        path.unlink()
    line = {"index": 0, "gold": "b", "probabilities": {"a": 0.25, "b": 0.75}}
    (run / "predictions-test.jsonl").write_text(json.dumps(line) + "\n", encoding="utf-8")
    (row,) = parsed(capsys, "tables", tmp_path, "--table", "accuracy")["accuracy"]["rows"]
    assert (row["split"], row["accuracy"], row["logged"]) == ("test", 100.0, None)
