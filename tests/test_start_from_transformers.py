"""From a CSV file and a model of Transformers to runs, predictions, and a model of Transformers again."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_models
import tiny_tokenizers
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from common import manifest
from common.predictions import read
from eval import SentenceClassifier
from eval.__main__ import main as evaluate
from export.__main__ import main as export
from preprocess.__main__ import main as preprocess

ROOT = Path(__file__).parents[1]
CLASSES = {"very bad", "good"}


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    """One cache for all tests of this file."""
    monkeypatch.setenv("RS_CACHE", str(tmp_path_factory.getbasetemp() / "converted"))


def prepared(folder, family, pairs=False):
    """(model, data): a tiny random model, and data binarized with its tokenizer."""
    tiny_models.write(folder / family, family)
    rows = [(f"{text} {i}", ("very bad", "good")[i % 2]) for i, text in enumerate(tiny_tokenizers.lines(60))]
    rows[5] = ("livre " * 60, "good")  # truncated
    header = ("text", "label")
    if pairs:
        rows = [(text, f"{text} bon", label) for text, label in rows]
        header = ("text", "text2", "label")
    with open(folder / "reviews.csv", "w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([header, *rows])
    words = ["--pair-column", "text2", "--text-column", "text"] if pairs else []
    data = str(folder / "data")
    words = [
        "dataset",
        str(folder / "reviews.csv"),
        "--tokenizer",
        str(folder / family),
        *words,
        "--out",
        data,
    ]
    assert preprocess(words) == 0
    return folder / family, folder / "data"


def train(*words):
    command = [sys.executable, "-m", "experiments", "train", *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def words_of(folder, model, data):
    """Options and flags of a short run."""
    options = ["--data", data, "--pretrained", model, "--inits", "pretrained", "--seeds", "1"]
    options += ["--out", folder / "runs", "--device", "cpu"]
    return options, ["--", *tiny_models.FLAGS, "--max-epoch", "1", "--precision", "fp32", "--lr", "1e-3"]


@pytest.mark.slow
@pytest.mark.parametrize(("family", "pairs"), [("camembert", False), ("roberta", True)])
def test_from_a_csv_file_to_transformers(tmp_path, capsys, family, pairs):
    model, data = prepared(tmp_path, family, pairs)
    options, flags = words_of(tmp_path, model, data)
    assert f"converted from {model}" in train(*options, *flags)
    run = tmp_path / "runs/fairseq/pretrained/seed1"
    recorded = manifest.read(run)
    assert recorded["checkpoint"]["source"] == str(model)
    assert f"initialization: weights of {recorded['checkpoint']['path']}" in (run / "train.log").read_text()

    capsys.readouterr()
    text = "un livre captivant\ttrès bon" if pairs else "un livre captivant"
    assert evaluate(["predict", "--checkpoint", str(run), "--format", "jsonl", text]) == 0
    assert set(json.loads(capsys.readouterr().out)["probabilities"]) == CLASSES

    folder = tmp_path / "exported"
    assert export(["transformers", str(run), "--out", str(folder)]) == 0
    network = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert network.config.bos_token_id == tokenizer.cls_token_id == (5 if family == "camembert" else 0)
    assert network.config.eos_token_id == tokenizer.sep_token_id
    texts = [("un livre", "pas bon"), ("été", "captivant")] if pairs else ["un livre pas bon", "été", ""]
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        found_NK = network(**batch).logits.softmax(-1)
    classifier = SentenceClassifier.from_run(run)
    wanted_NK = torch.from_numpy(classifier.probabilities(texts)).float()
    assert classifier.classes == [network.config.id2label[k] for k in range(2)]
    torch.testing.assert_close(found_NK, wanted_NK, atol=1e-5, rtol=0)

    back = tmp_path / "back/model.pt"
    assert export(["fairseq", str(folder), "--out", str(back)]) == 0
    capsys.readouterr()
    again = SentenceClassifier.from_run(back)  # dictionary and tokenizer beside the checkpoint
    if not pairs:
        assert [p.probabilities for p in again.predict(texts)] == [
            pytest.approx(p.probabilities, abs=1e-6) for p in classifier.predict(texts)
        ]
    else:
        assert again.encoder.tokenizer.cls_token_id == 0


@pytest.mark.slow
def test_the_methods_of_transformers_start_from_the_same_checkpoint(tmp_path):
    model, data = prepared(tmp_path, "camembert")
    options, flags = words_of(tmp_path, model, data)
    printed = train("--method", "lora", *options, "--dry-run", *flags)
    assert f"converted from {model}" in printed
    printed = train("--method", "transformers", *options, *flags)
    assert "(from the cache)" in printed
    run = tmp_path / "runs/hf/pretrained/seed1"
    assert manifest.read(run)["checkpoint"]["source"] == str(model)
    config = json.loads((run / "model/config.json").read_text())
    assert (config["bos_token_id"], config["eos_token_id"]) == (5, 6)
    texts = (data / "text/test.input0").read_text(encoding="utf-8").splitlines()
    wanted = read(run / "predictions-test.jsonl")
    found = SentenceClassifier.from_run(run).predict(texts)
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.probabilities == pytest.approx(theirs.probabilities, abs=1e-4)
