"""TF-IDF and logistic regression against a fit by hand, and reading the text folder."""

import math
import re
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

from roberta_small.common.errors import UserError
from roberta_small.common.label_kinds import Labels
from roberta_small.experiments.methods.tfidf.method import STRENGTHS, Features, read_folder
from roberta_small.experiments.methods.tfidf.model import fit, scores


def tfidf(texts, fitted_on, sublinear=False):
    """Features by hand: words and pairs of words with TF-IDF weights and L2 normalization."""

    def ngrams(text):
        words = re.findall(r"\b\w\w+\b", text.lower())
        return Counter(words + [" ".join(pair) for pair in pairwise(words)])

    documents = [ngrams(text) for text in fitted_on]
    names = sorted(set().union(*documents))
    idf = {
        name: math.log((1 + len(documents)) / (1 + sum(name in document for document in documents))) + 1
        for name in names
    }
    rows = []
    for text in texts:
        counts = ngrams(text)
        row = [
            (1 + math.log(counts[name]) if sublinear else counts[name]) * idf[name] if counts[name] else 0.0
            for name in names
        ]
        rows.append(np.array(row) / (np.linalg.norm(row) or 1))
    return names, np.array(rows)


def logistic(x_NV, labels_N, classes, strength):
    """Penalized maximum likelihood by scipy: weights (K, V) and intercepts (K,).

    Two classes share one row of weights, whose penalty is half that of two opposite rows.
    """
    n, v = x_NV.shape
    k = 1 if classes == 2 else classes

    def linear(x_NV, flat):
        weights, intercepts = flat[: k * v].reshape(k, v), flat[k * v :]
        logits = x_NV @ weights.T + intercepts
        return np.hstack([np.zeros((len(x_NV), 1)), logits]) if classes == 2 else logits

    def loss(flat):
        logits = linear(x_NV, flat)
        likelihood = (logits[np.arange(n), labels_N] - logsumexp(logits, axis=1)).sum()
        return -strength * likelihood + 0.5 * (flat[: k * v] ** 2).sum()

    found = minimize(loss, np.zeros(k * v + k), method="L-BFGS-B", options={"maxiter": 5000, "maxfun": 10**7})
    return lambda x_NV: softmax(linear(x_NV, found.x), axis=1)


@pytest.mark.parametrize("sublinear", [False, True])
def test_probabilities_equal_those_of_a_fit_by_hand(texts, monkeypatch, sublinear):
    monkeypatch.setattr("roberta_small.experiments.methods.tfidf.model.STRENGTHS", (1.0,))
    splits, labels = read_folder(texts)
    doubled = [f"{text} {text}" for text in splits["train"].texts]
    train = replace(splits["train"], texts=doubled)
    fitted = fit(splits | {"train": train}, labels, Features(sublinear=sublinear))
    names, train_NV = tfidf(doubled, doubled, sublinear)
    assert list(fitted.vectorizer.get_feature_names_out()) == names
    predict = logistic(train_NV, train.targets, labels.size, 1.0)
    _, test_NV = tfidf(splits["test"].texts, doubled, sublinear)
    assert fitted.outputs(splits["test"].texts) == pytest.approx(predict(test_NV), abs=2e-3)


def test_the_strength_is_selected_on_valid_and_is_the_smallest_on_a_tie(texts):
    splits, labels = read_folder(texts)
    fitted = fit(splits, labels, Features())
    assert tuple(fitted.valid_scores) == STRENGTHS
    best = max(fitted.valid_scores.values())
    assert fitted.strength == min(c for c, accuracy in fitted.valid_scores.items() if accuracy == best)
    predicted_N = fitted.outputs(splits["valid"].texts).argmax(axis=1)
    assert best == pytest.approx(100 * np.mean(predicted_N == splits["valid"].targets))
    # Without test, the choice is the same.
    again = fit({name: splits[name] for name in ("train", "valid")}, labels, Features())
    assert (again.strength, again.valid_scores) == (fitted.strength, fitted.valid_scores)
    informative = fitted.most_informative(3)
    assert list(informative) == list(labels.classes)
    for ngrams in informative.values():
        weights = [weight for _, weight in ngrams]
        assert weights == sorted(weights, reverse=True)
        assert all(weight > 0 for weight in weights)
    assert {"captivant", "superbe", "émouvant"} & {ngram for ngram, _ in informative["good"]}
    assert {"ennuyeux", "plat", "raté"} & {ngram for ngram, _ in informative["bad"]}


def test_features_select_the_ngrams(texts, monkeypatch):
    monkeypatch.setattr("roberta_small.experiments.methods.tfidf.model.STRENGTHS", (1.0,))
    splits, labels = read_folder(texts)
    words = fit(splits, labels, Features((1, 1), 2)).vectorizer.get_feature_names_out()
    counts = Counter(word for text in splits["train"].texts for word in set(text.split()))
    assert set(words) == {word for word, count in counts.items() if count >= 2 and len(word) > 1}
    with pytest.raises(UserError, match="--min-df 1000"):
        fit(splits, labels, Features(min_df=1000))


def test_scores_by_hand():
    probabilities = np.array([[0.5, 0.25, 0.25], [0.125, 0.75, 0.125], [0.5, 0.25, 0.25], [0.25, 0.25, 0.5]])
    # Columns are c, a, b: right, right, wrong (c), right.
    found = scores(Labels.single("cab"), np.array([0, 1, 2, 2]), probabilities)
    assert found["accuracy"] == 75
    assert found["macro_f1"] == pytest.approx((2 / 3 + 1 + 2 / 3) / 3)
    assert found["loss"] == pytest.approx(-np.mean(np.log2([0.5, 0.75, 0.25, 0.5])))
    # Gorodkin's R_K from the confusion matrix: (c n - sum t p) / sqrt((n2 - p2)(n2 - t2)).
    assert found["mcc"] == pytest.approx((3 * 4 - (1 * 2 + 1 * 1 + 2 * 1)) / math.sqrt((16 - 6) * (16 - 6)))


def test_texts_labels_and_classes_are_read_in_order(texts):
    splits, labels = read_folder(texts)
    for name, split in splits.items():
        assert split.texts == (texts / f"{name}.input0").read_text().splitlines()
        assert split.lines == (texts / f"{name}.label").read_text().split()
        assert [labels.classes[i] for i in split.targets] == split.lines
    assert list(labels.classes) == ["good", *sorted(set(splits["train"].lines) - {"good"})]


@pytest.mark.parametrize("name", ["train.input0", "valid.label", "test.input0"])
def test_a_missing_file_is_an_error(texts, name):
    (texts / name).unlink()
    with pytest.raises(UserError, match=f"{re.escape(str(texts))}: .*{re.escape(name)}; "):
        read_folder(texts)


def append(path, line):
    path.write_text(path.read_text(encoding="utf-8") + line, encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("test.label", "good\n"),
        ("valid.input0", "un livre\n"),
        ("train.label", "\n"),
    ],
)
def test_texts_and_labels_that_do_not_match_are_errors(texts, name, line):
    append(texts / name, line)
    with pytest.raises(UserError, match=re.escape(str(texts / name))):
        read_folder(texts)


@pytest.mark.parametrize("name", ["valid", "test"])
def test_a_class_that_does_not_occur_in_train_is_an_error(texts, name):
    number = len((texts / f"{name}.label").read_text().split()) + 1
    append(texts / f"{name}.label", "strange\n")
    append(texts / f"{name}.input0", "un livre\n")
    with pytest.raises(UserError, match=rf"{name}\.label, line {number}: .*'strange'.* good"):
        read_folder(texts)


def test_a_missing_folder_pairs_and_a_single_class_are_errors(texts):
    with pytest.raises(UserError, match=re.escape(str(texts / "none"))):
        read_folder(texts / "none")
    (texts / "train.input1").write_text("second\n")
    with pytest.raises(UserError, match=r"train\.input1"):
        read_folder(texts)
    (texts / "train.input1").unlink()
    labels = texts / "train.label"
    labels.write_text("good\n" * len(labels.read_text().split()))
    with pytest.raises(UserError, match=r"train\.label: .*good"):
        read_folder(texts)


def test_invalid_utf8_is_an_error_that_names_the_line(texts):
    (texts / "test.input0").write_bytes(b"un\ncaf\xe9\n")
    with pytest.raises(UserError, match=r"test\.input0, line 2"):
        read_folder(texts)
