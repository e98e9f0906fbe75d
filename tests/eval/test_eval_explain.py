"""Attributions against integrated gradients by hand, and how words and pages show them."""

import io
import json

import numpy as np
import pytest
import torch
from tiny_runs import make_causal_run, make_data, make_run

from eval import SentenceClassifier
from eval.__main__ import main
from eval.explain import attribute, explain, log_odds
from eval.output import ReadableText, TextPrediction, Word

pytest.importorskip("captum")


@pytest.fixture(scope="module")
def classifier(trained):
    return SentenceClassifier.from_run(trained.run)


def parts(network, row):
    tokens = torch.from_numpy(row)[None]
    embeddings = network.model.encoder.sentence_encoder.embed_tokens(tokens).detach()
    baseline = embeddings.clone()
    baseline[:, 1:-1] = 0
    return tokens, embeddings, baseline


def test_log_odds_are_the_models(classifier, trained):
    row = classifier.encode(trained.texts[:1])[0]
    tokens, embeddings, _ = parts(classifier.network, row)
    logits = classifier.network.logits([row])[0]
    with torch.no_grad():
        ours = log_odds(classifier.network, embeddings, tokens)[0].numpy()
    assert ours == pytest.approx([logits[0] - logits[1], logits[1] - logits[0]], abs=1e-5)


def test_equals_integration_by_hand_and_adds_up(classifier, trained):
    network = classifier.network
    for text in trained.texts[:3]:
        row = classifier.encode([text])[0][:20]
        row[-1] = 2
        tokens, embeddings, baseline = parts(network, row)
        k = int(log_odds(network, embeddings, tokens).argmax())
        total = torch.zeros_like(embeddings)
        steps = 400
        for step in range(steps):  # the midpoint rule
            point = (baseline + (step + 0.5) / steps * (embeddings - baseline)).requires_grad_()
            (gradient,) = torch.autograd.grad(log_odds(network, point, tokens)[0, k], point)
            total += gradient / steps
        expected = ((embeddings - baseline) * total).sum(-1)[0]
        found = attribute(network, row)
        torch.testing.assert_close(found.float(), expected, atol=2e-3, rtol=1e-2)
        with torch.no_grad():
            gain = log_odds(network, embeddings, tokens)[0, k] - log_odds(network, baseline, tokens)[0, k]
        assert float(found.sum()) == pytest.approx(float(gain), abs=5e-3)


def test_words_are_those_of_the_text(classifier):
    text = "j'ai lu un livre magnifique d'ennui %"
    row = classifier.encode([text])[0]
    words = explain(classifier, text, row)
    assert " ".join(word.text for word in words) == text
    scores = attribute(classifier.network, row)
    assert sum(word.score for word in words) == pytest.approx(float(scores.sum()), abs=1e-6)
    assert explain(classifier, "", classifier.encode([""])[0]) == []


def test_of_a_long_text_only_what_was_read(classifier):
    text = " ".join(["livre"] * 100)
    words = explain(classifier, text, classifier.encode([text])[0])
    assert 0 < len(words) <= 31
    assert set(word.text for word in words[:-1]) == {"livre"}


def test_marks():
    prediction = TextPrediction(
        0, "a b c", {"neg": 0.2, "pos": 0.8}, [Word("a", 1.0), Word("b", -0.5), Word("c", 0.1)]
    )
    plain, color = io.StringIO(), io.StringIO()
    ReadableText(plain, color=False).write(prediction)
    ReadableText(color, color=True).write(prediction)
    assert plain.getvalue() == "pos  0.800  [+a] [-b] c\n"
    assert "\x1b[32ma\x1b[0m \x1b[31mb\x1b[0m c" in color.getvalue()


def test_command(trained, tmp_path, capsys):
    page = tmp_path / "why.html"
    explain_ = ["predict", "--checkpoint", str(trained.run), "--explain", "--html", str(page)]
    assert main([*explain_, "--format", "jsonl", "un <b>livre</b> magnifique", ""]) == 0
    first, empty = map(json.loads, capsys.readouterr().out.splitlines())
    assert [word for word, _ in first["words"]] == ["un", "<b>livre</b>", "magnifique"]
    assert empty["words"] == []
    html = page.read_text("utf-8")
    assert "&lt;b&gt;livre" in html
    assert "<b>livre" not in html
    assert html.rstrip().endswith("</html>")


@pytest.mark.parametrize("pooling", ["last", "mean"])
@pytest.mark.parametrize("arch", ["causal_lm_small", "causal_roberta_small"])
def test_left_to_right(trained, tmp_path, arch, pooling):
    make_causal_run(trained.data, tmp_path / "run", arch, "--pooling", pooling)
    classifier = SentenceClassifier.from_run(tmp_path / "run")
    row = classifier.encode(["un livre magnifique , mais long"])[0]
    tokens, embeddings, baseline = parts(classifier.network, row)
    logits = classifier.network.logits([row])[0]
    with torch.no_grad():
        ours = log_odds(classifier.network, embeddings, tokens)[0]
        empty = log_odds(classifier.network, baseline, tokens)[0]
    assert ours.numpy() == pytest.approx([logits[0] - logits[1], logits[1] - logits[0]], abs=1e-5)
    k = int(ours.argmax())
    gain = float(ours[k] - empty[k])
    assert float(attribute(classifier.network, row).sum()) == pytest.approx(gain, abs=1e-2)


def test_pairs(tmp_path):
    make_run(make_data(tmp_path, pairs=True), tmp_path / "run")
    classifier = SentenceClassifier.from_run(tmp_path / "run")
    pair = ("un livre", "une histoire")
    row = classifier.encode([pair])[0]
    assert [word.text for word in explain(classifier, pair, row)] == ["un", "livre", "une", "histoire"]
    assert np.count_nonzero(row == 2) == 3  # </s>, the separator, </s>
