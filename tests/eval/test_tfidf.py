"""eval/tfidf.py: predictions of a run of TF-IDF, compared with scikit-learn's."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

from roberta_small.common.errors import UserError
from roberta_small.common.run import TFIDF
from roberta_small.eval.classifier import Ensemble, SentenceClassifier
from roberta_small.eval.tfidf import WORDS, Tfidf

TEXTS = ["a good book", "a good good film", "a bad book", "bad bad bad film", "an odd book", "odd, very odd"]
OTHERS = ["good bad good", "an ODD book of books", "", "unheard of"]


def fit(classes, sublinear=False):
    """A vectorizer and a classifier of scikit-learn, and the same as a file's content."""
    labels = ["good", "good", "bad", "bad", "odd", "odd"] if classes == 3 else ["x", "x", "y", "y", "y", "x"]
    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=sublinear)
    model = LogisticRegression().fit(words.fit_transform(TEXTS), labels)
    content = Tfidf(
        words.get_feature_names_out().tolist(), words.idf_, model.coef_, model.intercept_,
        model.classes_.tolist(), (1, 2), sublinear, WORDS,
    )  # fmt: skip
    return words, model, content


@pytest.mark.parametrize("sublinear", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
def test_probabilities_equal_those_of_scikit_learn(tmp_path, classes, sublinear):
    words, model, content = fit(classes, sublinear)
    content.write(tmp_path / TFIDF)
    classifier = SentenceClassifier.from_run(tmp_path)
    assert classifier.classes == model.classes_.tolist()
    wanted = model.predict_proba(words.transform([*TEXTS, *OTHERS]))
    np.testing.assert_allclose(classifier.probabilities([*TEXTS, *OTHERS]), wanted, rtol=1e-12)
    assert classifier.probabilities([]).shape == (0, classes)


def test_a_text_without_known_words_is_noted(tmp_path):
    fit(2)[2].write(tmp_path / TFIDF)
    notes = SentenceClassifier.from_run(tmp_path).classify(OTHERS).encoded.notes
    assert [note.partition(":")[0] for note in notes] == ["", "", "empty", "unknown tokens"]


def test_runs_of_the_same_words_are_an_ensemble(tmp_path):
    content = fit(2)[2]
    for seed in (1, 2):
        (tmp_path / f"seed{seed}").mkdir()
        replace(content, bias=content.bias + seed * 1e-12).write(tmp_path / f"seed{seed}" / TFIDF)
    single = SentenceClassifier.from_run(tmp_path / "seed1").probabilities(OTHERS)
    together = Ensemble.from_runs(tmp_path)
    np.testing.assert_allclose(together.classify(OTHERS).probabilities, single)


@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda data: b"", lambda data: b"x"])
def test_a_damaged_file_is_one_error(tmp_path, damage):
    path = tmp_path / TFIDF
    fit(2)[2].write(path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UserError, match=TFIDF):
        SentenceClassifier.from_run(tmp_path)


def test_no_code_is_loaded(tmp_path):
    content = {name: np.array([]) for name in ("idf", "weights", "bias")}
    content |= {"sizes": np.array([1, 2]), "sublinear": np.array(False)}
    objects = np.array([print], dtype=object)
    with open(tmp_path / TFIDF, "wb") as stream:
        np.savez(stream, ngrams=objects, classes=objects, **content)
    with pytest.raises(UserError, match="not a TF-IDF classifier"):
        SentenceClassifier.from_run(tmp_path)


def test_what_needs_a_network_is_refused(tmp_path):
    fit(2)[2].write(tmp_path / TFIDF)
    classifier = SentenceClassifier.from_run(tmp_path)
    with pytest.raises(UserError, match="TF-IDF"):
        _ = classifier.model.checkpoint
    with pytest.raises(UserError, match="--data"):
        SentenceClassifier.from_run(tmp_path, data=tmp_path)
    with pytest.raises(UserError, match="string"):
        classifier.predict([("a", "pair")])
