import hashlib
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score, log_loss, matthews_corrcoef
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from roberta_small.analysis import best_checkpoints, load_runs
from roberta_small.common import manifest, metrics, predictions
from roberta_small.common.errors import UserError
from roberta_small.common.files import ROOT
from roberta_small.common.run import TFIDF
from roberta_small.eval.__main__ import main as evaluate
from roberta_small.eval.model import open_model
from roberta_small.eval.tfidf import Tfidf
from roberta_small.experiments.__main__ import main as experiments
from roberta_small.experiments.methods.tfidf.method import read_folder


def main(words):
    return experiments(["train", "--method", "tfidf", *words])


RUN = Path("runs/tfidf/tfidf/seed0")
ONCE = {}
"""Content of train.label -> a run fitted on these texts."""


@pytest.fixture
def fitted(texts, tmp_path, tmp_path_factory):
    """The folder of a run fitted on the texts."""
    labels = (texts / "train.label").read_text()
    if labels not in ONCE:
        folder = tmp_path_factory.mktemp("fitted")
        assert main(["--text", str(texts), "--out", str(folder / "runs")]) == 0
        ONCE[labels] = folder / RUN
    return shutil.copytree(ONCE[labels], tmp_path / RUN)


def test_manifest_and_model_file_describe_the_run(fitted):
    content = manifest.read(fitted)
    assert [content[key] for key in ("status", "arm", "init", "seed")] == ["finished", "tfidf", "tfidf", 0]
    assert len(content["data"]["sha256"]) == 6
    assert content["recipe_flags"] == ["--ngrams", "1", "2", "--min-df", "1", "--sublinear"]
    assert {"python", "scikit-learn", "numpy"} <= set(content["packages"])
    assert "torch" not in content["packages"]
    model = json.loads((fitted / "model.json").read_text(encoding="utf-8"))
    best = max(entry["accuracy"] for entry in model["valid_accuracy"])
    assert {"C": model["C"], "accuracy": best} in model["valid_accuracy"]
    assert model["telling"]["bad"][0]["weight"] > 0


@pytest.mark.parametrize("texts", [["good", "bad"], ["good", "bad", "mixed"]], indirect=True)
def test_logged_scores_equal_those_of_the_predictions(fitted, texts):
    splits, _ = read_folder(texts)
    for name in ("valid", "test"):
        found = predictions.read(fitted / predictions.file_name(name))
        labels = splits[name].lines
        assert [prediction.true_class for prediction in found] == labels
        digests = [hashlib.sha256(text.encode()).hexdigest() for text in splits[name].texts]
        assert [prediction.key for prediction in found] == [digest[:16] for digest in digests]
        predicted = [prediction.predicted for prediction in found]
        classes = sorted(set(splits["train"].lines))
        columns = [[prediction.probabilities[c] for c in classes] for prediction in found]
        accumulator = EventAccumulator(str(fitted / "tensorboard" / name))
        accumulator.Reload()
        logged = {tag: accumulator.Scalars(tag)[0] for tag in accumulator.Tags()["scalars"]}
        assert {event.step for event in logged.values()} == {1}
        expected = {
            "accuracy": 100 * accuracy_score(labels, predicted),
            "macro_f1": f1_score(labels, predicted, average="macro"),
            "mcc": matthews_corrcoef(labels, predicted),
            "loss": log_loss(labels, columns, labels=classes) / np.log(2),
        }
        assert set(logged) == {metric.name for metric in metrics.logged()} | {metrics.LOSS}
        assert {tag: logged[tag].value for tag in expected} == pytest.approx(expected, rel=1e-5)


def test_a_run_is_evaluated_with_a_page_of_its_errors(fitted, texts, tmp_path):
    files = tmp_path / "evaluation.json", tmp_path / "errors.html"
    words = ["--checkpoint", str(fitted), "--out", str(files[0]), "--errors", str(files[1]), "--draws", "9"]
    evaluate(["evaluate", *words])
    (group,) = json.loads(files[0].read_text())["groups"]
    found = predictions.read(fitted / predictions.file_name("test"))
    wanted = 100 * np.mean([one.predicted == one.true_class for one in found])
    assert group["checkpoints"][0]["metrics"]["accuracy"]["value"] == pytest.approx(wanted)
    page = files[1].read_text()
    assert all(text in page for text in (texts / "test.input0").read_text().splitlines())
    (texts / "test.label").write_text("strange\n" * len(found))
    with pytest.raises(UserError, match=r"test\.label, line 1: .*'strange'"):
        open_model(fitted).examples("test", texts)


def test_a_finished_run_is_skipped_and_other_features_or_data_are_errors(fitted, texts, tmp_path, capsys):
    before = {path: path.read_bytes() for path in fitted.rglob("*") if path.is_file()}
    arguments = ["--text", str(texts), "--out", str(tmp_path / "runs")]
    assert main(arguments) == 0
    assert "finished (skipped)" in capsys.readouterr().out
    assert main([*arguments, "--no-sublinear"]) == 1
    assert "--sublinear" in capsys.readouterr().err
    (texts / "test.input0").write_text((texts / "test.input0").read_text().replace("livre", "roman"))
    assert main(arguments) == 1
    assert "test.input0" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in fitted.rglob("*") if path.is_file()} == before


def test_without_sublinear_the_run_counts_occurrences(texts, tmp_path):
    assert main(["--text", str(texts), "--out", str(tmp_path / "runs"), "--no-sublinear"]) == 0
    assert not Tfidf.read(tmp_path / RUN / TFIDF).sublinear
    assert "--no-sublinear" in manifest.read(tmp_path / RUN)["command"]


def test_an_unfinished_run_is_fitted_again(fitted, texts, tmp_path):
    before = (fitted / "predictions-test.jsonl").read_bytes()
    content = manifest.read(fitted)
    manifest.write(fitted, content | {"status": "running"})
    (fitted / "predictions-test.jsonl").unlink()
    assert main(["--text", str(texts), "--out", str(tmp_path / "runs")]) == 0
    assert manifest.read(fitted)["status"] == "finished"
    assert (fitted / "predictions-test.jsonl").read_bytes() == before
    assert len(list((fitted / "tensorboard" / "test").iterdir())) == 1


REVIEWS = Path(os.environ.get("SHARED_DATA", ROOT.parent / "shared" / "data")) / "cls-books"


@pytest.mark.long
@pytest.mark.skipif(not (REVIEWS / "train.review").exists(), reason="the reviews are not available")
def test_accuracy_on_real_reviews(tmp_path, monkeypatch):
    data = ["--data", str(REVIEWS / "train.review"), "--valid", "200", "--test", str(REVIEWS / "test.review")]
    monkeypatch.chdir(tmp_path)
    assert main([*data, "--out", str(tmp_path / "runs")]) == 0
    best = best_checkpoints(load_runs(tmp_path / "runs"))
    assert best["test"].item() == pytest.approx(84.4, abs=0.5)
