"""Attributions against integrated gradients computed step by step; words, marks and the HTML page."""

import io
import json

import numpy as np
import pytest
import torch

from roberta_small.common.predictions import Prediction
from roberta_small.eval import SentenceClassifier
from roberta_small.eval.__main__ import main
from roberta_small.eval.predict.explain import attribute, explain, explain_texts, log_odds
from roberta_small.eval.predict.output import TextPrediction, Word, write_text
from roberta_small.preprocess.__main__ import main as preprocess
from tests.support import tiny_tokenizers
from tests.support.tiny_runs import make_causal_run, make_run

pytest.importorskip("captum")


@pytest.fixture(scope="module")
def classifier(trained):
    return SentenceClassifier.from_run(trained.run)


def inputs_of(network, row):
    """Token ids (1, L), their embeddings and the baseline, both (1, L, C)."""
    tokens = torch.from_numpy(row)[None]
    embeddings = network.model.encoder.sentence_encoder.embed_tokens(tokens).detach()
    baseline = embeddings.clone()
    baseline[:, 1:-1] = 0
    return tokens, embeddings, baseline


def test_attributions_equal_the_midpoint_rule_and_sum_to_the_log_odds(classifier, trained):
    network = classifier.network
    row = classifier.encode(trained.texts[:1])[0][:20]
    row[-1] = 2
    tokens, embeddings, baseline = inputs_of(network, row)
    with torch.no_grad():
        odds_K, empty_K = (log_odds(network, point, tokens)[0] for point in (embeddings, baseline))
    logits_K = network.logits([row])[0]
    assert odds_K.numpy() == pytest.approx(logits_K - logits_K[::-1], abs=1e-5)
    k, total, steps = int(odds_K.argmax()), torch.zeros_like(embeddings), 50
    for step in range(steps):
        point = (baseline + (step + 0.5) / steps * (embeddings - baseline)).requires_grad_()
        (gradient,) = torch.autograd.grad(log_odds(network, point, tokens)[0, k], point)
        total += gradient / steps
    expected = ((embeddings - baseline) * total).sum(-1)[0]
    found = attribute(classifier, row)
    torch.testing.assert_close(found.float(), expected, atol=2e-3, rtol=1e-2)
    assert float(found.sum()) == pytest.approx(float(odds_K[k] - empty_K[k]), abs=5e-3)


def test_words_are_those_of_the_text_with_the_sum_of_their_tokens(classifier):
    text = "j'ai lu un livre magnifique d'ennui %"
    row = classifier.encode([text])[0]
    words = explain(classifier, text, row)
    assert " ".join(word.text for word in words) == text
    scores = attribute(classifier, row)
    assert sum(word.score for word in words) == pytest.approx(float(scores.sum()), abs=1e-6)
    assert explain(classifier, "", classifier.encode([""])[0]) == []


def test_one_string_is_no_list_of_texts(classifier):
    with pytest.raises(TypeError):
        explain_texts(classifier, "un", [])


def test_words_of_a_long_text_end_at_the_truncation(classifier):
    text = " ".join(["livre"] * 100)
    words = explain(classifier, text, classifier.encode([text])[0])
    assert 0 < len(words) <= 31
    assert set(word.text for word in words[:-1]) == {"livre"}


def test_strongest_words_are_marked():
    found = Prediction(0, None, {"neg": 0.2, "pos": 0.8})
    prediction = TextPrediction(0, "a b c", found, [Word("a", 1.0), Word("b", -0.5), Word("c", 0.1)])
    plain, color = io.StringIO(), io.StringIO()
    with write_text(plain, color=False) as to_plain, write_text(color, color=True) as to_color:
        to_plain(prediction)
        to_color(prediction)
    assert plain.getvalue() == "pos  0.800  [+a] [-b] c\n"
    assert "\x1b[32ma\x1b[0m \x1b[31mb\x1b[0m c" in color.getvalue()


def test_command_writes_json_and_an_escaped_page(trained, tmp_path, capsys):
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


@pytest.mark.parametrize(("arch", "pooling"), [("causal_lm_small", "last"), ("causal_roberta_small", "mean")])
def test_attributions_of_left_to_right_classifiers(trained, tmp_path, arch, pooling):
    make_causal_run(trained.data, tmp_path / "run", arch, "--pooling", pooling)
    classifier = SentenceClassifier.from_run(tmp_path / "run")
    row = classifier.encode(["un livre magnifique , mais long"])[0]
    tokens, embeddings, baseline = inputs_of(classifier.network, row)
    logits = classifier.network.logits([row])[0]
    with torch.no_grad():
        found = log_odds(classifier.network, embeddings, tokens)[0]
        empty = log_odds(classifier.network, baseline, tokens)[0]
    assert found.numpy() == pytest.approx([logits[0] - logits[1], logits[1] - logits[0]], abs=1e-5)
    k = int(found.argmax())
    gain = float(found[k] - empty[k])
    assert float(attribute(classifier, row).sum()) == pytest.approx(gain, abs=1e-2)


def test_words_of_a_pair(pairs):
    classifier = SentenceClassifier.from_run(pairs.run)
    pair = ("un livre", "une histoire")
    row = classifier.encode([pair])[0]
    assert [word.text for word in explain(classifier, pair, row)] == ["un", "livre", "une", "histoire"]
    assert np.count_nonzero(row == 2) == 3  # </s>, the separator, </s>


BERT = ["--init-token", "0", "--separator-token", "-1", "--family", "bert", "--layer-norm-eps", "1e-12"]


@pytest.mark.parametrize(
    ("make", "flags", "special"),
    [
        (tiny_tokenizers.camembert, ["--init-token", "5", "--separator-token", "6"], [5, 6, 6, 6]),
        (tiny_tokenizers.bert, [*BERT, "--token-types"], [0, 2, 2]),
    ],
    ids=["camembert", "bert"],
)
def test_special_tokens_of_a_transformers_tokenizer_keep_their_embeddings(tmp_path, make, flags, special):
    tiny_tokenizers.write_csv(tmp_path / "reviews.csv", ("bad", "good"), pairs=True)
    words = [str(tmp_path / "reviews.csv"), "--text-column", "text", "--pair-column", "text2"]
    words += ["--tokenizer", str(make(tmp_path / "tokenizer")), "--out", str(tmp_path / "data")]
    assert preprocess(["prepare", *words]) == 0
    make_run(tmp_path / "data", tmp_path / "run", *flags, updates=2)
    classifier = SentenceClassifier.from_run(tmp_path / "run")
    pair = ("le roman est captivant", "un livre ennuyeux")
    (row,) = classifier.encode([pair])
    of_text = ~np.isin(row, special)
    assert row[~of_text].tolist() == special
    tokens, embeddings, baseline = inputs_of(classifier.network, row)
    baseline[:, 1:-1] = embeddings[:, 1:-1] * torch.from_numpy(~of_text)[1:-1, None]
    with torch.no_grad():
        found, empty = (log_odds(classifier.network, point, tokens)[0] for point in (embeddings, baseline))
    k = int(found.argmax())
    scores = attribute(classifier, row)
    assert np.flatnonzero(scores).tolist() == np.flatnonzero(of_text).tolist()
    explained = explain(classifier, pair, row)
    assert [word.text for word in explained] == " ".join(pair).split()
    assert sum(word.score for word in explained) == pytest.approx(float(found[k] - empty[k]), abs=1e-3)
