"""Classifiers whose matrix products are in int8."""

import json

import numpy as np
import pytest

from roberta_small.eval import SentenceClassifier
from roberta_small.eval.__main__ import main
from tests.support.tiny_runs import make_run

TEXTS = ["un livre captivant", "un roman", "le livre est long", ""]


@pytest.mark.parametrize("flags", [(), ("--pooling", "mean"), ("--encoder", "padded")])
def test_logits_are_close_to_those_in_fp32(trained, tmp_path, flags):
    make_run(trained.data, tmp_path / "run", *flags, updates=1)
    rows = SentenceClassifier.from_run(tmp_path / "run").text_input.encode(TEXTS).rows
    logits = {}
    for precision in ("fp32", "int8"):
        classifier = SentenceClassifier.from_run(tmp_path / "run", precision=precision)
        network = classifier.network
        logits[precision] = network.logits(rows)
    difference = np.abs(logits["int8"] - logits["fp32"]).max()
    assert 0 < difference < 0.05 * np.abs(logits["fp32"]).max()
    kept = {name for name, _ in network.model.encoder.sentence_encoder.layers.named_parameters()}
    assert not any("fc1" in name or "fc2" in name or "out_proj" in name for name in kept)
    # Nothing else holds the weights in fp32, and the checkpoint still knows their shapes.
    assert all(weight.is_meta for weight in classifier.model.checkpoint.weights.values())
    assert classifier.model.checkpoint.classes == logits["int8"].shape[1]


def test_commands(copied_run, capsys):
    words = ["--checkpoint", str(copied_run), "--precision", "int8"]
    assert main(["predict", *words, "un livre"]) == 0
    captured = capsys.readouterr()
    assert captured.err.splitlines() == ["precision: int8, as requested"]
    assert sum(json.loads(captured.out)["probabilities"].values()) == pytest.approx(1)
    assert main(["evaluate", *words, "--draws", "2"]) == 0
    assert "int8" in capsys.readouterr().err
    assert main(["predict", *words, "--explain", "out.html", "un livre"]) == 1
    assert "gradients" in capsys.readouterr().err
