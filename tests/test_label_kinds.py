"""Several labels per text, and numbers: from a file to scores and predictions, with each method."""

import csv
import json
import os
import random
import subprocess

import numpy as np
import pandas as pd
import pytest
from scipy.stats import pearsonr
from sklearn.metrics import f1_score

from roberta_small.common import predictions
from roberta_small.common.label_kinds import MULTI_LABEL, REGRESSION
from roberta_small.common.predictions import LabelsPrediction, ValuePrediction
from roberta_small.common.run import read_thresholds
from roberta_small.eval.classifier import Ensemble, SentenceClassifier
from tests.support import preloaded

TEXT = "good bad film book long short sun rain music war love fast slow blue red green"
WORDS = TEXT.split()
NAMES = {"good": "g", "war": "w x", "music": "m"}
SIZES = "--encoder-layers 1 --encoder-embed-dim 16 --encoder-ffn-embed-dim 16 --encoder-attention-heads 2"
FLAGS = [*SIZES.split(), "--max-epoch", "4", "--lr", "1e-2", "--precision", "fp32"]
OTHER_METHODS = {
    "transformers": ("--inits", "random", "--", *FLAGS, "--pooling", "first"),
    "lora": ("--inits", "random", "--", *FLAGS, "--pooling", "first"),
    "tfidf": (),
}
EVALUATE = ("--write-predictions", "--draws", "20")


def write_data(folder, count=120):
    """multi.jsonl and numbers.csv: the labels follow from the words."""
    rng = random.Random(1)
    texts = [" ".join(rng.choices(WORDS, k=8)) for _ in range(count)]
    rows = [
        {"text": text, "label": [name for word, name in NAMES.items() if word in text.split()]}
        for text in texts
    ]
    (folder / "multi.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with open(folder / "numbers.csv", "w", newline="") as stream:
        scores = [1.5 * text.count("good") - text.count("bad") + rng.gauss(0, 0.1) for text in texts]
        rows = zip(texts, (f"{score:.4f}" for score in scores), strict=True)
        csv.writer(stream).writerows([("text", "label"), *rows])


def run(here, *words, expect=0):
    """Run a command of this project in the folder `here`; returns what it prints."""
    command = [preloaded.python(), "-m", "roberta_small", *words]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, env=environment)
    assert done.returncode == expect, done.stderr + done.stdout
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with runs of all methods on both kinds of data: multi/ and numbers/."""
    here = tmp_path_factory.mktemp("kinds")
    write_data(here)
    for name in ("multi.jsonl", "numbers.csv"):
        out = name.partition(".")[0]
        command = ["train", "--data", name, "--seeds", "1", "2", "--out", out, "--device", "cpu"]
        run(here, *command, "--no-baselines", "--", *FLAGS)
        for method, words in OTHER_METHODS.items():
            command = ["train", "--method", method, "--data", name, "--out", out]
            command += [] if method == "tfidf" else ["--seeds", "1", "--device", "cpu"]
            run(here, *command, *words)
    return here


def labels_of(folder, split):
    return [json.loads(line) for line in (folder / f"text/{split}.label").read_text().splitlines()]


def data_of(here, name):
    (folder,) = (here / "data").glob(f"{name}-*")
    return folder


@pytest.mark.long
def test_several_labels(trained):
    seeds = [trained / f"multi/fairseq/random/seed{seed}" for seed in (1, 2)]
    run(trained, "evaluate", "--checkpoint", "multi", *EVALUATE, "--out", "m.json")
    report = json.loads((trained / "m.json").read_text())
    assert report["label_kind"] == MULTI_LABEL
    gold = labels_of(data_of(trained, "multi"), "test")
    for folder, scores in zip(seeds, report["groups"][0]["checkpoints"], strict=True):
        thresholds = read_thresholds(folder)
        assert set(thresholds) == set(NAMES.values())
        found = predictions.read(folder / "predictions-test.jsonl")
        assert all(isinstance(one, LabelsPrediction) for one in found)
        assert [sorted(one.true_classes) for one in found] == gold
        names = list(thresholds)
        truth, predicted = (
            [[name in labels for name in names] for labels in rows]
            for rows in (gold, [one.predicted for one in found])
        )
        assert scores["metrics"]["micro_f1"]["value"] == pytest.approx(
            f1_score(np.array(truth), np.array(predicted), average="micro")
        )
        assert scores["per_class"].keys() == thresholds.keys()
        (again,) = SentenceClassifier.from_run(folder).predict(["good war"])
        assert again.thresholds == thresholds
    ensemble = Ensemble.from_runs(trained / "multi/fairseq/random")
    mean = {name: np.mean([read_thresholds(folder)[name] for folder in seeds]) for name in NAMES.values()}
    assert dict(zip(ensemble.classes, ensemble.labels.thresholds, strict=True)) == pytest.approx(mean)


@pytest.mark.long
def test_numbers(trained):
    folder = trained / "numbers/fairseq/random/seed1"
    run(trained, "evaluate", "--checkpoint", "numbers", *EVALUATE, "--out", "r.json")
    report = json.loads((trained / "r.json").read_text())
    assert report["label_kind"] == REGRESSION
    found = predictions.read(folder / "predictions-test.jsonl")
    assert all(isinstance(one, ValuePrediction) for one in found)
    gold = labels_of(data_of(trained, "numbers"), "test")
    assert [one.true_value for one in found] == gold
    metrics = report["groups"][0]["checkpoints"][0]["metrics"]
    assert list(metrics) == ["pearson", "spearman", "rmse"]
    values = [one.predicted for one in found]
    assert metrics["pearson"]["value"] == pytest.approx(pearsonr(gold, values).statistic)
    # Scaled back: as large as the labels.
    assert 0.3 < np.std(values) / np.std(gold) < 3
    texts = (data_of(trained, "numbers") / "text/test.input0").read_text().splitlines()
    again = SentenceClassifier.from_run(folder).predict(texts)
    assert [one.predicted for one in again] == pytest.approx(values, abs=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["multi", "numbers"])
@pytest.mark.parametrize("suffix", ["jsonl", "xlsx"])
def test_predictions_in_all_formats(trained, kind, suffix):
    command = ["predict", "--ensemble", "--checkpoint", f"{kind}/fairseq/random", "--input", "numbers.csv"]
    run(trained, *command, "--out", f"out.{suffix}")
    path = trained / f"out.{suffix}"
    table = pd.read_excel(path) if suffix == "xlsx" else pd.read_json(path, lines=True)
    assert len(table) == 120
    if kind == "numbers":
        assert table["prediction"].dtype == float
        assert "std" in table
        assert not any(name.startswith(("p(", "prob")) for name in table)
    elif suffix == "jsonl":
        assert {name for names in table["prediction"] for name in names} <= set(NAMES.values())
    else:
        assert {f"{what}({name})" for what in ("p", "std") for name in NAMES.values()} <= {*table}
        cells = table["prediction"]
        assert {name for cell in cells for name in json.loads(cell)} <= set(NAMES.values())


@pytest.mark.long
def test_flags_for_exclusive_classes_are_one_error(trained):
    for words in (("--label-smoothing", "0.1"), ("--class-weights", "balanced")):
        error = run(trained, "train", "--data", "multi.jsonl", "--no-baselines", "--", *words, expect=1)
        assert words[0] in error
    error = run(
        trained, "train", "--data", "numbers.csv", "--", "--best-checkpoint-metric", "accuracy", expect=1
    )
    assert "pearson" in error


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "metric", "other"), [("multi", "micro_f1", "loss"), ("numbers", "pearson", "rmse")]
)
def test_tables_figures_and_report(trained, kind, metric, other):
    assert metric.replace("_", " ") in run(trained, "tables", kind)
    if kind == "multi":  # the report contains the figures of the other kind
        run(trained, "figures", kind, "--out", "figures")
        assert {path.name for path in (trained / "figures").iterdir()} >= {f"{metric}_seeds.png"}
    else:
        run(trained, "report", kind, "--out", "report.html")
        assert metric in (trained / "report.html").read_text()
    run(trained, "tables", kind, "--metric", other)
    error = run(trained, "tables", kind, "--table", "accuracy", expect=1)
    assert "one known class per text" in error


@pytest.mark.long
@pytest.mark.parametrize(("kind", "metric"), [("multi", "micro_f1"), ("numbers", "pearson")])
def test_every_method_trains_predicts_and_is_compared(trained, kind, metric):
    arms = {"fairseq", "transformers", "lora", "tfidf"}
    table = json.JSONDecoder().raw_decode(run(trained, "tables", kind, "--format", "json"))[0]
    best = {row["arm"]: row for row in table["table1"]["rows"] if row["seed"] is not None}
    assert set(best) == arms
    texts = ["good good film", "war rain red"]
    gold = labels_of(data_of(trained, kind), "test")
    for arm in arms:
        (folder,) = (trained / kind / arm).glob("*/seed[01]")
        assert json.loads((folder / "manifest.json").read_text())["best"]["metric"] == metric
        found = SentenceClassifier.from_run(folder)
        assert found.labels.kind.metric == metric
        assert len(found.predict(texts)) == 2
        if arm != "fairseq":  # whose predictions the command evaluate writes
            written = predictions.to_arrays(predictions.read(folder / "predictions-test.jsonl"))
            assert written.labels.thresholds == found.labels.thresholds
            assert len(written.targets) == len(gold)
    # A good word of the text has an effect: the model is not a constant.
    value = SentenceClassifier.from_run(trained / kind / "tfidf/tfidf/seed0").probabilities(texts)
    assert abs(value[0] - value[1]).max() > 0.1
