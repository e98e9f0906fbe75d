"""From a CSV file and a model of Transformers to runs, predictions, and a model of Transformers again."""

import json
import subprocess
from pathlib import Path

import preloaded
import pytest
import tiny_models
import tiny_tokenizers
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from roberta_small.common import manifest
from roberta_small.common.predictions import read
from roberta_small.eval import SentenceClassifier
from roberta_small.eval.__main__ import main as evaluate
from roberta_small.export.__main__ import main as export
from roberta_small.preprocess.__main__ import main as preprocess

ROOT = Path(__file__).parents[1]
CLASSES = {"very bad", "good"}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RS_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """(model, data): a tiny random CamemBERT, and data binarized with its tokenizer."""
    folder = tmp_path_factory.mktemp("prepared")
    tiny_models.write(folder / "camembert", "camembert")
    tiny_tokenizers.write_csv(folder / "reviews.csv", sorted(CLASSES))
    words = [str(folder / "reviews.csv"), "--tokenizer", str(folder / "camembert")]
    assert preprocess(["dataset", *words, "--out", str(folder / "data")]) == 0
    return folder / "camembert", folder / "data"


def train(*words):
    command = [preloaded.python(), "-m", "roberta_small.experiments", "train", *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def words_of(folder, model, data):
    """Options and flags of a short run."""
    options = ["--data", data, "--pretrained", model, "--inits", "pretrained", "--seeds", "1"]
    options += ["--out", folder / "runs", "--device", "cpu"]
    return options, ["--", *tiny_models.FLAGS, "--max-epoch", "1", "--precision", "fp32", "--lr", "1e-3"]


@pytest.mark.slow
def test_from_a_csv_file_to_transformers(prepared, tmp_path, capsys):
    model, data = prepared
    options, flags = words_of(tmp_path, model, data)
    assert f"converted from {model}" in train(*options, *flags)
    run = tmp_path / "runs/fairseq/pretrained/seed1"
    recorded = manifest.read(run)
    assert recorded["checkpoint"]["source"] == str(model)
    assert f"initialization: weights of {recorded['checkpoint']['path']}" in (run / "train.log").read_text()

    capsys.readouterr()
    assert evaluate(["predict", "--checkpoint", str(run), "--format", "jsonl", "un livre captivant"]) == 0
    assert set(json.loads(capsys.readouterr().out)["probabilities"]) == CLASSES

    folder = tmp_path / "exported"
    assert export(["transformers", str(run), "--out", str(folder)]) == 0
    network = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = ["un livre pas bon", "été", ""]
    with torch.no_grad():
        found_NK = network(**tokenizer(texts, padding=True, return_tensors="pt")).logits.softmax(-1)
    classifier = SentenceClassifier.from_run(run)
    wanted_NK = torch.from_numpy(classifier.probabilities(texts)).float()
    assert classifier.classes == [network.config.id2label[k] for k in range(2)]
    torch.testing.assert_close(found_NK, wanted_NK, atol=1e-5, rtol=0)


@pytest.mark.slow
def test_the_methods_of_transformers_start_from_the_same_checkpoint(prepared, tmp_path):
    model, data = prepared
    options, flags = words_of(tmp_path, model, data)
    printed = train("--method", "lora", *options, "--dry-run", *flags)
    assert f"converted from {model}" in printed
    printed = train("--method", "transformers", *options, *flags)
    assert "(from the cache)" in printed
    run = tmp_path / "runs/transformers/pretrained/seed1"
    assert manifest.read(run)["checkpoint"]["source"] == str(model)
    config = json.loads((run / "model/config.json").read_text())
    assert (config["bos_token_id"], config["eos_token_id"]) == (5, 6)
    texts = (data / "text/test.input0").read_text(encoding="utf-8").splitlines()
    wanted = read(run / "predictions-test.jsonl")
    found = SentenceClassifier.from_run(run).predict(texts)
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.probabilities == pytest.approx(theirs.probabilities, abs=1e-4)
