"""The model-index as huggingface_hub reads it, scalars as TensorBoard reads the event files."""

import contextlib
import json
import math

import numpy as np
import pandas as pd
import pytest
import yaml
from huggingface_hub.repocard_data import model_index_to_eval_results
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from roberta_small.analysis.__main__ import main
from tests.support.analysis.command_words import study_words
from tests.support.analysis.printed_tables import failed
from tests.support.analysis.run_trees import write_events, write_run

SCALARS = ("--table", "scalars", "--format", "csv")
RUNS = {"random": ([50.0, 62.0], [50.5, 65.5]), "pretrained": ([70.0, 81.0], [69.0, 79.25])}


@pytest.fixture
def small(tmp_path):
    """Two groups of two seeds on the same data, with macro-F1, MCC and loss too."""
    for init, (valid, test) in RUNS.items():
        for seed in (1, 2):
            accuracies = [value + seed for value in valid], [value + seed for value in test]
            run = write_run(tmp_path / "runs", init, seed, *accuracies, data={"path": "data/cls-books/"})
            others = {"macro_f1": 0.25 * seed, "mcc": -0.125, "loss": 0.0001 * seed, "lr": 1}
            for tag, value in others.items():
                write_events(run / "tensorboard/test", [(450, tag, value)], suffix=f".{tag}")
    return tmp_path / "runs"


def exported(runs, path, *words):
    with path.open("w", encoding="utf-8") as stream, contextlib.redirect_stdout(stream):
        assert main(["tables", str(runs), *words]) == 0
    return path.read_text(encoding="utf-8")


def model_index(runs, tmp_path, *words):
    return exported(runs, tmp_path / "model-index.yaml", "--format", "model-index", *words)


def test_huggingface_hub_reads_the_scores(small, tmp_path):
    text = model_index(small, tmp_path, "--groups", "fairseq/pretrained")
    name, results = model_index_to_eval_results(yaml.safe_load(text)["model-index"])
    assert name == "fairseq/pretrained"
    found = {result.metric_type: result for result in results}
    assert {kind: result.metric_value for kind, result in found.items()} == pytest.approx(
        {"accuracy": (80.25 + 81.25) / 200, "f1": 0.375, "matthews_correlation": -0.125, "loss": 0.00015}
    )
    for result in results:
        assert (result.task_type, result.dataset_type, result.dataset_name, result.dataset_split) == (
            "text-classification", "cls-books", "cls-books", "test",
        )  # fmt: skip
    assert found["f1"].metric_args == {"average": "macro"}
    assert "2 seeds" in found["accuracy"].metric_name
    assert f"{np.std([0.8025, 0.8125], ddof=1):.4f}" in found["accuracy"].metric_name
    assert "valid" not in text


def test_every_group_is_a_model_in_the_order_of_the_study(small, tmp_path):
    groups = ["fairseq/random", "fairseq/pretrained"]
    label = 'Zufall: "é" #1 \U0001f600'
    study = study_words(tmp_path, f"[labels]\n'fairseq/random' = '{label}'\n")
    text = model_index(small, tmp_path, "--groups", *groups, *study)
    models = yaml.safe_load(text)["model-index"]
    assert [model["name"] for model in models] == [label, "fairseq/pretrained"]


def test_the_selected_checkpoint_split_and_data_set_are_those_requested(runs, tmp_path):
    def accuracies(*words):
        models = yaml.safe_load(model_index(runs, tmp_path, "--dataset", "user/reviews", *words))
        return {
            model["name"].split("/")[1]: model["results"][0]["metrics"][0]["value"]
            for model in models["model-index"]
        }

    tests = {"random": [65.5, 66.75, 68.25], "pretrained": [79.25, 78.5, 80.0]}
    earliest = {**tests, "pretrained": [79.25, 78.0, 80.0]}
    valid = {"random": [62.0, 65.0, 62.5], "pretrained": [81.0, 80.0, 83.5]}
    for words, values in (([], tests), (["--ties", "earliest"], earliest), (["--split", "valid"], valid)):
        means = {name: np.mean(x) / 100 for name, x in values.items()}
        assert accuracies(*words) == pytest.approx(means)
    assert "user/reviews" in (tmp_path / "model-index.yaml").read_text()


def test_scalars_are_those_of_tensorboard(small, tmp_path):
    text = exported(small, tmp_path / "scalars.csv", *SCALARS, "--groups", "fairseq/random")
    assert text.splitlines()[0] == "run,tag,step,value"
    frame = pd.read_csv(tmp_path / "scalars.csv")
    found = {
        (run, tag): list(zip(rows["step"], rows["value"], strict=True))
        for (run, tag), rows in frame.groupby(["run", "tag"])
    }
    expected = {}
    for folder in sorted(small.glob("fairseq/random/seed*/tensorboard/*")):
        for path in folder.iterdir():
            events = EventAccumulator(str(path), size_guidance={"scalars": 0}).Reload()
            for tag in events.Tags()["scalars"]:
                key = (f"fairseq/random/{folder.parts[-3]}", f"{folder.name}/{tag}")
                expected[key] = [(event.step, event.value) for event in events.Scalars(tag)]
    assert found == expected
    assert len(expected) == 2 * (2 + 4)


def test_values_that_are_not_finite_stay_numbers(tmp_path):
    write_run(tmp_path / "runs", "random", 1, [50.0, math.nan, math.inf], [50.0, 51.0, 52.0])
    exported(tmp_path / "runs", tmp_path / "scalars.csv", *SCALARS)
    frame = pd.read_csv(tmp_path / "scalars.csv")
    values = frame.loc[frame["tag"] == "valid/accuracy", "value"].tolist()
    assert (values[0], values[2]) == (50.0, math.inf)
    assert math.isnan(values[1])


def test_language_models_are_no_classifiers(runs, capsys):
    write_run(runs, "random", 1, [8.0, 7.0], [8.0, 7.0], arm="pretrain", metric="loss")
    words = ["tables", str(runs), "--format", "model-index", "--dataset", "a"]
    assert "pretrain" in failed(capsys, *words)
    assert main([*words, "--groups", "fairseq/random"]) == 0


def test_runs_of_several_data_sets_need_a_name(small, capsys):
    manifest = small / "fairseq/random/seed1/manifest.json"
    content = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**content, "data": {"path": "data/films"}}))
    words = ["tables", str(small), "--format", "model-index"]
    err = failed(capsys, *words)
    assert all(fact in err for fact in ("cls-books", "films", "--dataset", "--groups"))
    assert main([*words, "--dataset", "both"]) == 0
