import math
import re
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp

from common.errors import UserError
from experiments.methods.tfidf.model import STRENGTHS, Features, Split, Splits, fit, read_folder, scores


def tfidf(texts, fitted_on, sublinear=False):
    """By hand: words and pairs of words, weighted, each text scaled to length 1."""

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


def logistic(x_NV, gold_N, classes, strength):
    """Penalized maximum likelihood by scipy: weights (K, V) and intercepts (K,).

    Two classes share one row, whose penalty is half that of two opposite ones.
    """
    n, v = x_NV.shape
    k = 1 if classes == 2 else classes

    def linear(flat):
        weights, intercepts = flat[: k * v].reshape(k, v), flat[k * v :]
        logits = x_NV @ weights.T + intercepts
        return np.hstack([np.zeros((n, 1)), logits]) if classes == 2 else logits

    def loss(flat):
        logits = linear(flat)
        likelihood = (logits[np.arange(n), gold_N] - logsumexp(logits, axis=1)).sum()
        return -strength * likelihood + 0.5 * (flat[: k * v] ** 2).sum()

    found = minimize(loss, np.zeros(k * v + k), method="L-BFGS-B", options={"maxiter": 5000, "maxfun": 10**7})
    return lambda x: _softmax(x, found.x, k, v, classes)


def _softmax(x_NV, flat, k, v, classes):
    logits = x_NV @ flat[: k * v].reshape(k, v).T + flat[k * v :]
    if classes == 2:
        logits = np.hstack([np.zeros((len(x_NV), 1)), logits])
    return np.exp(logits - logsumexp(logits, axis=1, keepdims=True))


@pytest.mark.parametrize("sublinear", [False, True])
def test_probabilities_agree_with_a_fit_by_hand(texts, monkeypatch, sublinear):
    monkeypatch.setattr("experiments.methods.tfidf.model.STRENGTHS", (1.0,))
    splits = read_folder(texts)
    doubled = Split([f"{text} {text}" for text in splits.train.texts], splits.train.labels)
    splits = Splits(doubled, splits.valid, splits.test, splits.classes)
    fitted = fit(splits, Features(sublinear=sublinear))
    names, train_NV = tfidf(doubled.texts, doubled.texts, sublinear)
    assert list(fitted.vectorizer.get_feature_names_out()) == names
    gold_N = np.array([splits.classes.index(label) for label in doubled.labels])
    predict = logistic(train_NV, gold_N, len(splits.classes), 1.0)
    _, test_NV = tfidf(splits.test.texts, doubled.texts, sublinear)
    assert fitted.probabilities(splits.test.texts) == pytest.approx(predict(test_NV), abs=2e-3)


def test_the_strength_is_chosen_on_valid_and_the_smallest_of_equal_ones(texts):
    splits = read_folder(texts)
    fitted = fit(splits, Features())
    assert tuple(fitted.valid_accuracy) == STRENGTHS
    best = max(fitted.valid_accuracy.values())
    assert fitted.strength == min(c for c, accuracy in fitted.valid_accuracy.items() if accuracy == best)
    right = [
        splits.classes[row.argmax()] == label
        for row, label in zip(fitted.probabilities(splits.valid.texts), splits.valid.labels, strict=True)
    ]
    assert best == pytest.approx(100 * np.mean(right))
    # Test takes no part: other labels there change nothing.
    other = Split(splits.test.texts, splits.test.labels[::-1])
    again = fit(Splits(splits.train, splits.valid, other, splits.classes), Features())
    assert (again.strength, again.valid_accuracy) == (fitted.strength, fitted.valid_accuracy)


def test_most_informative_ngrams_belong_to_their_class(texts):
    splits = read_folder(texts)
    informative = fit(splits, Features()).most_informative(3)
    assert list(informative) == splits.classes
    for name, ngrams in informative.items():
        texts_of = [
            t for t, label in zip(splits.train.texts, splits.train.labels, strict=True) if label == name
        ]
        weights = [weight for _, weight in ngrams]
        assert weights == sorted(weights, reverse=True)
        assert all(weight > 0 for weight in weights)
        assert any(ngrams[0][0] in text for text in texts_of)
    assert {"captivant", "superbe", "émouvant"} & {ngram for ngram, _ in informative["good"]}
    assert {"ennuyeux", "plat", "raté"} & {ngram for ngram, _ in informative["bad"]}


def test_features_choose_what_is_counted(texts):
    splits = read_folder(texts)
    words = fit(splits, Features((1, 1), 2)).vectorizer.get_feature_names_out()
    assert not [word for word in words if " " in word]
    counts = Counter(word for text in splits.train.texts for word in set(text.split()))
    assert set(words) == {word for word, count in counts.items() if count >= 2 and len(word) > 1}
    with pytest.raises(UserError, match="--min-df 1000: no n-gram of the training texts is left"):
        fit(splits, Features(min_df=1000))


def test_scores_by_hand():
    probabilities = np.array([[0.5, 0.25, 0.25], [0.125, 0.75, 0.125], [0.5, 0.25, 0.25], [0.25, 0.25, 0.5]])
    split = Split(["a"] * 4, ["c", "a", "b", "b"])
    # Columns are c, a, b: right, right, wrong (c), right.
    found = scores(probabilities, split, ["c", "a", "b"])
    assert found["accuracy"] == 75
    assert found["macro_f1"] == pytest.approx((2 / 3 + 1 + 2 / 3) / 3)
    assert found["loss"] == pytest.approx(-np.mean(np.log2([0.5, 0.75, 0.25, 0.5])))
    # Gorodkin's R_K from the confusion matrix: (c n - sum t p) / sqrt((n2 - p2)(n2 - t2)).
    assert found["mcc"] == pytest.approx((3 * 4 - (1 * 2 + 1 * 1 + 2 * 1)) / math.sqrt((16 - 6) * (16 - 6)))
