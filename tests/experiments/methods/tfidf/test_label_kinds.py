"""Multi-label and numeric labels, against scikit-learn's classifier and regression on the same features."""

import json
import shutil

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import f1_score
from sklearn.multiclass import OneVsRestClassifier

from roberta_small.common import manifest, predictions
from roberta_small.common.errors import UserError
from roberta_small.common.run import TFIDF, read_thresholds
from roberta_small.eval.model import open_model
from roberta_small.eval.tfidf import Tfidf
from roberta_small.experiments.methods.linear import STRENGTHS
from roberta_small.experiments.methods.tfidf.method import Features, read_folder
from roberta_small.experiments.methods.tfidf.model import fit, main
from roberta_small.preprocess.__main__ import main as preprocess
from tests.support.tiny_tokenizers import lines


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The line files of both kinds of data."""
    root = tmp_path_factory.mktemp("data")
    last = ("un", "deux", "trois", "quatre")
    texts = [f"{line} {last[i % 4]}" for i, line in enumerate(lines(80, 2))]
    every = {
        # All texts have "c"; whether they have "a" or "b" is a word of the text.
        "several": [["c", *("a" * ("un" in t.split())), *("b" * ("trois" in t.split()))] for t in texts],
        "numbers": [len(text) / 7 + 3 * text.count("deux") for text in texts],
    }
    for name, labels in every.items():
        rows = [{"text": text, "label": label} for text, label in zip(texts, labels, strict=True)]
        (root / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        task = "multi-label" if name == "several" else "regression"
        words = f"prepare {root}/{name}.jsonl --task {task} --valid 0.2 --out {root}/{name}"
        assert preprocess(words.split()) == 0
    return root


@pytest.fixture(scope="module")
def fits(folders):
    """Name -> splits, labels and the fitted model."""
    found = {name: read_folder(folders / name / "text") for name in ("several", "numbers")}
    return {name: (*read, fit(*read, Features())) for name, read in found.items()}


def features_of(splits):
    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    return words.fit_transform(splits["train"].texts), words.transform(splits["test"].texts)


def test_multi_label_equals_one_versus_rest(fits):
    splits, labels, fitted = fits["several"]
    train, test = features_of(splits)
    y = splits["train"].targets
    regression = LogisticRegression(C=fitted.linear.strength, tol=1e-6, max_iter=5000)
    model = OneVsRestClassifier(regression).fit(train, y)
    found = fitted.outputs(splits["test"].texts)
    k = labels.classes.index("c")
    others = [i for i in range(3) if i != k]
    assert found[:, others] == pytest.approx(model.predict_proba(test)[:, others], abs=1e-6)
    assert (found[:, k] > 0.999).all()
    valid = splits["valid"]
    best = f1_score(valid.targets, fitted.outputs(valid.texts) >= 0.5, average="micro")
    scores = fitted.linear.valid_scores
    assert scores[fitted.linear.strength] == max(scores.values()) == pytest.approx(best)


def test_regression_equals_ridge(fits):
    splits, _, fitted = fits["numbers"]
    assert tuple(fitted.linear.valid_scores) == STRENGTHS
    train, test = features_of(splits)
    # Scaling the labels changes nothing.
    ridge = Ridge(alpha=1 / fitted.linear.strength).fit(train.toarray(), splits["train"].targets)
    found = fitted.outputs(splits["test"].texts)[:, 0]
    assert found == pytest.approx(ridge.predict(test.toarray()), abs=1e-3)
    assert set(fitted.most_informative(3)) == {"higher", "lower"}


@pytest.mark.parametrize("name", ["several", "numbers"])
def test_the_saved_model_predicts_the_same(folders, fits, tmp_path, name):
    text = folders / name / "text"
    main([str(text), str(tmp_path)])
    splits, _, wanted = fits[name]
    saved = Tfidf.read(tmp_path / TFIDF)
    assert saved.meaning == wanted.linear.labels
    names = {"schema": 1, "status": "finished", "arm": "tfidf", "init": "tfidf", "seed": 0}
    manifest.write(
        tmp_path, names | {"recipe": "r", "command": [], "data": {"path": str(text), "sha256": {}}}
    )
    model = open_model(tmp_path)
    examples = model.examples("test")
    assert np.array_equal(examples.labels, splits["test"].targets)
    outputs = model.labels.outputs(model.network.logits(examples.rows))
    assert outputs == pytest.approx(wanted.outputs(splits["test"].texts), abs=1e-9)
    arrays = predictions.to_arrays(predictions.read(tmp_path / "predictions-test.jsonl"))
    assert arrays.outputs == pytest.approx(outputs, abs=1e-9)
    assert np.array_equal(arrays.targets, splits["test"].targets)
    if name == "several":
        assert read_thresholds(tmp_path) == dict(zip(saved.classes, saved.meaning.thresholds, strict=True))


def test_a_malformed_label_is_one_error(folders, tmp_path):
    shutil.copytree(folders / "numbers", tmp_path / "copy")
    labels = tmp_path / "copy/text/valid.label"
    labels.write_text("many\n" + labels.read_text().partition("\n")[2])
    with pytest.raises(UserError, match=r"valid\.label, line 1: label 'many'"):
        read_folder(tmp_path / "copy/text")
