"""Predictions and explanations of the n-gram classifier, from a run of train.sh."""

import asyncio
import contextlib
import json
import sys

import numpy as np
import pytest
import torch

from roberta_small.eval import SentenceClassifier
from roberta_small.eval.__main__ import main
from roberta_small.eval.serve.models import Models
from roberta_small.experiments.__main__ import main as train
from tests.support.tiny_runs import BAD, GOOD, make_data

pytestmark = pytest.mark.usefixtures("fast_processes")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    root = tmp_path_factory.mktemp("ngrams")
    data = make_data(root / "texts")
    common = ["--recipe", "ngrams", "--inits", "random", "--seeds", "1", "--device", "cpu"]
    assert not train(
        ["train", "--data", str(data), *common, "--out", str(root / "runs"), "--", "--ngram-buckets", "4096"]
    )
    return root / "runs" / "fairseq" / "random" / "seed1"


def test_probabilities_are_those_of_the_checkpoints_weights(run):
    classifier = SentenceClassifier.from_run(run)
    head = classifier.network.model.classification_heads[classifier.network.head]
    texts = [f"un livre {GOOD}", f"une histoire {BAD}", GOOD]
    rows = classifier.encode(texts)
    with torch.no_grad():
        expected = torch.cat([head(torch.from_numpy(row)[None]) for row in rows]).softmax(dim=-1)
    np.testing.assert_allclose(classifier.probabilities(texts), expected, atol=1e-6)
    predicted = [classifier.classes[k] for k in classifier.probabilities(texts).argmax(axis=1)]
    assert predicted == ["pos", "neg", "pos"]


def test_the_word_that_decides_has_the_largest_contribution(run, capsys):
    words = ["--format", "jsonl", "--explain", f"un {GOOD} livre"]
    assert main(["predict", "--checkpoint", str(run), *words]) == 0
    scores = dict(json.loads(capsys.readouterr().out)["words"])
    assert max(scores, key=scores.get) == GOOD
    assert np.isfinite(list(scores.values())).all()


def test_the_server_explains_without_captum(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "captum.attr", None)
    models = Models([SentenceClassifier.from_run(run)], max_tokens=4096, max_waiting=256)
    with contextlib.closing(models):
        (info,) = models.infos.values()
        (found,) = asyncio.run(models.predict(info.name, [f"un {GOOD} livre"], explain=True))
    assert info.explanation == "linear terms"
    assert found.label == "pos"
    assert max(found.words, key=lambda word: word[1])[0] == GOOD


def test_without_int8_products(run, capsys):
    assert main(["predict", "--checkpoint", str(run), "--precision", "int8", GOOD]) == 1
    assert "n-gram" in capsys.readouterr().err
