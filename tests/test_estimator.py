"""`TextClassifier` as a scikit-learn estimator, on small networks; the functions `train` and `tables`."""

import copy
import functools
import gc
import json
import os
import pickle
import re
import threading
import weakref
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow
import pytest
from sklearn import metrics as sk_metrics
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks
from sklearn.utils.multiclass import type_of_target

from roberta_small import TextClassifier, TextRegressor, estimator, tables, train
from roberta_small.analysis import load_runs
from roberta_small.common.errors import UserError
from roberta_small.estimator import INDICATOR, LISTS, _cells, _form, check_texts
from roberta_small.eval import Ensemble, SentenceClassifier
from tests.support import tiny_tokenizers

pytestmark = pytest.mark.usefixtures("fast_processes")
SIZES = ["--encoder-embed-dim", "16", "--encoder-ffn-embed-dim", "16", "--encoder-attention-heads", "2"]
SIZES += ["--precision", "fp32"]
SMALL = {"layers": 1, "epochs": 1, "device": "cpu", "flags": SIZES, "progress": False}


def examples(count=60):
    texts = [f"{line} {i}" for i, line in enumerate(tiny_tokenizers.lines(count))]
    return texts, np.array(["very bad", "good"])[np.arange(count) % 2]


@pytest.fixture(scope="module")
def fitted(fast_processes, tmp_path_factory):
    texts, labels = examples()
    return TextClassifier(seeds=(1, 2), folder=tmp_path_factory.mktemp("fit"), **SMALL).fit(texts, labels)


def test_the_checks_of_scikit_learn_that_need_no_numbers():
    """`check_estimator` skips estimators whose input is not a table of numbers, so they are called here."""
    for check in (
        estimator_checks.check_estimator_cloneable,
        estimator_checks.check_estimator_repr,
        estimator_checks.check_no_attributes_set_in_init,
        estimator_checks.check_do_not_raise_errors_in_init_or_set_params,
        estimator_checks.check_parameters_default_constructible,
        estimator_checks.check_get_params_invariance,
        estimator_checks.check_set_params,
        estimator_checks.check_mixin_order,
        estimator_checks.check_estimator_tags_renamed,
        estimator_checks.check_valid_tag_types,
    ):
        check("TextClassifier", TextClassifier())
    with pytest.raises(NotFittedError):
        TextClassifier().predict(["a"])


def test_predictions_are_the_mean_of_the_runs(fitted):
    texts, labels = examples()
    assert fitted.classes_.tolist() == ["good", "very bad"]
    p_NK = fitted.predict_proba(texts)
    folders = sorted(fitted.runs_.glob("fairseq/random/seed*"))
    assert [folder.name for folder in folders] == ["seed1", "seed2"]
    ensemble = Ensemble.from_runs(fitted.runs_, device="cpu")
    columns = [ensemble.classes.index(name) for name in fitted.classes_]
    np.testing.assert_allclose(p_NK, ensemble.classify(texts).probabilities[:, columns], atol=1e-6)
    single = [SentenceClassifier.from_run(folder).probabilities(texts)[:, columns] for folder in folders]
    np.testing.assert_allclose(p_NK, np.mean(single, axis=0), atol=1e-6)
    assert fitted.predict(texts).tolist() == fitted.classes_[p_NK.argmax(axis=1)].tolist()
    assert fitted.score(texts, labels) == np.mean(fitted.predict(texts) == labels)
    assert set(fitted.history()["subset"]) >= {"train", "valid"}
    assert "54 training examples" in fitted.log_


def test_pickles_copies_and_folders_predict_the_same(fitted, tmp_path):
    texts = examples(5)[0]
    wanted = fitted.predict_proba(texts)
    fitted.save(tmp_path / "saved")
    with pytest.raises(UserError, match="saved: exists"):
        fitted.save(tmp_path / "saved")
    again = pickle.loads(pickle.dumps(fitted))
    for other in (again, copy.deepcopy(fitted), TextClassifier.load(tmp_path / "saved")):
        np.testing.assert_allclose(other.predict_proba(texts), wanted, atol=1e-6)
        assert other.classes_.tolist() == fitted.classes_.tolist()
        assert other.get_params()["layers"] == 1
    assert again.runs_ != fitted.runs_
    with pytest.raises(UserError, match=r"classifier\.json"):
        TextClassifier.load(tmp_path)


def test_two_threads_predict_with_one_object(fitted):
    texts = examples(40)[0]
    wanted = fitted.predict_proba(texts)
    fresh = pickle.loads(pickle.dumps(fitted))
    found = {}
    threads = [
        threading.Thread(target=lambda i=i: found.update({i: fresh.predict_proba(texts[i : i + 20])}))
        for i in (0, 20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_allclose(np.concatenate([found[0], found[20]]), wanted, atol=1e-5)


def lowered(texts):
    return [text.lower() for text in texts]


@pytest.mark.long
def test_nothing_of_a_classifier_stays(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    classifier = TextClassifier(**SMALL).fit(*examples(20))
    classifier.predict(["un"])
    runs, gone = classifier.runs_, weakref.ref(classifier)
    del classifier
    gc.collect()
    assert gone() is None
    assert not runs.exists()
    assert not os.listdir(tmp_path)


@pytest.mark.long
def test_model_selection_and_pipelines():
    texts, labels = examples(40)
    classifier = TextClassifier(**SMALL)
    assert clone(classifier).get_params() == classifier.get_params()
    pipeline = make_pipeline(FunctionTransformer(lowered), classifier)
    rates, split = {"textclassifier__lr": [1e-4, 1e-3]}, ShuffleSplit(1, test_size=0.5, random_state=1)
    search = GridSearchCV(pipeline, rates, cv=split, n_jobs=2).fit(texts, labels)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_estimator_[-1].lr == search.best_params_["textclassifier__lr"]
    assert set(search.predict(texts)) <= {"good", "very bad"}


@pytest.mark.long
def test_pairs_numbers_and_held_out_examples(tmp_path):
    texts, _ = examples(40)
    frame = pd.DataFrame({"one": texts, "other": texts[::-1]})
    labels = pd.Series([3, 7] * 20)
    classifier = TextClassifier(folder=tmp_path, class_weight={3: 1, 7: 2.5}, **SMALL)
    classifier.fit(frame[:30], labels[:30], X_valid=frame[30:], y_valid=labels[30:])
    assert "30 training examples" in classifier.log_
    assert classifier.classes_.tolist() == [3, 7]
    assert "3 1, 7 2.5" in classifier.log_
    classifier.save(tmp_path / "saved")
    for other in (pickle.loads(pickle.dumps(classifier)), TextClassifier.load(tmp_path / "saved")):
        assert (other.n_features_in_, other.feature_names_in_.tolist()) == (2, ["one", "other"])
        with pytest.raises(ValueError, match="order"):
            other.predict(frame[["other", "one"]])
    assert set(classifier.predict(frame.to_numpy())) <= {3, 7}
    with pytest.raises(ValueError, match="pairs"):
        classifier.predict(texts)
    with pytest.raises(ValueError, match="X_valid has 2 texts"):
        classifier.fit(frame, labels, X_valid=frame[:2], y_valid=labels[:1])
    with pytest.raises(ValueError, match="expecting 1 features"):
        classifier.fit(texts, labels, X_valid=frame[:2], y_valid=labels[:2])
    assert classifier.predict_proba([]).shape == (0, 2)
    with pytest.raises(ValueError, match="y_valid: 5"):
        classifier.fit(frame, labels, X_valid=frame[:1], y_valid=[5])
    with pytest.raises(UserError, match="another recipe"):  # the folder has runs with updates
        clone(classifier).set_params(lr=1.0).fit(
            frame[:30], labels[:30], X_valid=frame[30:], y_valid=labels[30:]
        )


def test_transformers_folders(fitted, tmp_path):
    texts = examples(5)[0]
    fitted.save_pretrained(tmp_path / "folder")
    back = TextClassifier.from_pretrained(tmp_path / "folder")
    assert back.classes_.tolist() == ["good", "very bad"]
    singles = []
    for seed in (1, 2):
        single = TextClassifier.from_pretrained(fitted.runs_ / f"fairseq/random/seed{seed}")
        singles.append(single.predict_proba(texts))
    found = back.predict_proba(texts)
    assert any(np.allclose(found, wanted, atol=1e-5) for wanted in singles)
    np.testing.assert_allclose(pickle.loads(pickle.dumps(single)).predict_proba(texts), singles[1], atol=1e-6)
    assert set(single.history()["seed"]) == {2}
    with pytest.raises(UserError, match="without a run"):
        back.save(tmp_path / "saved")


def test_the_runs_of_another_fit_in_the_folder_do_not_count(fitted, monkeypatch):
    monkeypatch.setenv("RS_GRID", "lr=1e-5,1e-4")  # not a setting of an estimator
    texts, labels = examples()
    other = clone(fitted).set_params(seeds=(2,)).fit(texts, labels)
    assert other.runs_ == fitted.runs_
    assert set(other.history()["seed"]) == {2}
    assert set(fitted.history()["seed"]) == {1, 2}
    wanted = SentenceClassifier.from_run(fitted.runs_ / "fairseq/random/seed2").probabilities(texts[:5])
    assert np.allclose(np.sort(other.predict_proba(texts[:5])), np.sort(wanted), atol=1e-6)


@pytest.mark.long
def test_a_training_that_fails_is_explained():
    texts, labels = examples(20)
    classifier = TextClassifier(**SMALL | {"flags": [*SIZES, "--no-such-flag"]})
    with pytest.raises(UserError, match="no-such-flag"):
        classifier.fit(texts, labels)
    assert "no-such-flag" in classifier.log_
    classifier.set_params(flags=SIZES, lr=1e12)  # the loss diverges
    with pytest.raises(UserError, match=r"seed1 failed: .*train\.log"):
        classifier.fit(texts, labels)


def test_texts():
    assert check_texts(pd.Series(["a", "b"])) == ["a", "b"]
    assert check_texts(np.array(["a", "b"])) == ["a", "b"]
    assert check_texts(np.array([["a"], ["b"]])) == ["a", "b"]
    assert check_texts([("a", "b"), ["c", "d"]]) == [("a", "b"), ("c", "d")]
    assert check_texts([]) == []
    texts = {"text": ["a", "b"]}
    assert check_texts(pd.DataFrame(texts)) == check_texts(texts["text"])  # what the errors propose
    for wrong in (texts, {1: "a"}, {"a", "b"}, np.array("ab"), pd.DataFrame({"text": ["a", None]})):
        with pytest.raises(ValueError, match="X: "):
            check_texts(wrong)
    for wrong in ("a", ["a", 1], ["a", None], [("a", "b"), "c"], ["c", ("a", "b")], [("a", "b", "c")]):
        with pytest.raises(ValueError, match="X: "):
            check_texts(wrong)


@pytest.mark.parametrize(
    ("labels", "fact"),
    [
        (["a", "b"], "3 texts"),
        (["a", "a", "a"], "1 class"),
        (["a", None, "b"], "label 1"),
        (["a", float("nan"), "b"], "label 1"),
        (pd.Series(["a", None, "b"]), "label 1"),
        (["a", 1, "b"], "int, str"),
        ([b"a", b"b", b"a"], "bytes"),
        (["\ufeffa", "a", "b"], "spaces"),
        ([0.5, 1.0, 2.0], "fraction"),
        (["a", " a", "b"], "spaces"),
        (np.zeros((3, 2, 2)), "shape"),
        # Several labels.
        ([["a"], "b", ["c"]], "label 1"),
        ([["a"], ["a"], []], "1 class"),
        ([["a"], [1], []], "int, str"),
        (np.array([[0, 2], [1, 0], [1, 1]]), "0 and 1"),
        ([["a", 1], ["b"], ["c"]], "int, str"),
        ([[3, 3, 4], [1, 2, 3], [2, 4, 5]], "label 0"),
        (pd.DataFrame({"a": [1, pd.NA, 0], "b": [0, 1, 1]}, dtype="Int64"), "label 1 .* a"),
        (pd.DataFrame({"a": [1, 1, 0], "b": [0, None, 1]}, dtype=object), "label 1 .* b"),
    ],
)
def test_labels_that_are_not_accepted(labels, fact):
    with pytest.raises(ValueError, match=fact):
        TextClassifier().fit(["a", "b", "c"], labels)


def test_numbers_and_seeds_that_are_not_accepted():
    numbers = (["a", "b", "c"], [1, 2, float("nan")], [1, 2], [[1, 2]] * 3)
    for wrong, fact in zip(numbers, ("numbers", "label 2", "3 texts", "shape"), strict=True):
        with pytest.raises(ValueError, match=fact):
            TextRegressor().fit(["a", "b", "c"], wrong)
    for seeds in (3, ()):
        with pytest.raises(ValueError, match="seeds: "):
            TextClassifier(seeds=seeds).fit(["a", "b"], [0, 1])


@pytest.fixture
def commands(monkeypatch):
    """The words of the trainings that `fit` would run; the fitted models predict the first class."""
    found = []
    model = SimpleNamespace(pairs=True, classes=["3", "7"], labels=SimpleNamespace(size=2))
    model.classify = lambda texts: SimpleNamespace(probabilities=np.array([[0.6, 0.4]] * len(texts)))
    monkeypatch.setattr(estimator, "_run", lambda words, *others: found.append(words) or (0, []))
    monkeypatch.setattr(TextClassifier, "_model", lambda self: model)
    return found


def succeeds(function, *arguments, **named):
    try:
        function(*arguments, **named)
    except ValueError:
        return False
    return True


def test_the_columns_of_frames_are_compared_as_in_scikit_learn(commands):
    frame = pd.DataFrame({"title": ["a", "b"], "body": ["c", "d"], "more": ["e", "f"]})
    numbers, labels = pd.DataFrame(np.eye(2, 3), columns=frame.columns), [3, 7]
    kept = frame[["title", "body"]]
    ours = TextClassifier().fit(kept, labels)
    theirs = LogisticRegression().fit(numbers[kept.columns], labels)
    assert ours.feature_names_in_.tolist() == theirs.feature_names_in_.tolist()
    assert ours.n_features_in_ == theirs.n_features_in_
    for columns in (["title", "body"], ["body", "title"], ["title"], ["body", "more"], list(frame)):
        wanted = succeeds(theirs.predict, numbers[columns])
        assert succeeds(ours.predict, frame[columns]) == wanted
        assert succeeds(ours.fit, kept, labels, X_valid=frame[columns], y_valid=labels) == wanted
    assert ours.predict(kept.to_numpy()).tolist() == [3, 3]
    assert not hasattr(ours.fit(kept.to_numpy(), labels), "feature_names_in_")


def test_class_weight_is_the_flag_and_sample_weight_names_it(commands):
    pairs, weights = [("a", "b"), ("c", "d")], {np.int64(3): 1, np.int64(7): 2.5}
    for given in ("balanced", weights):
        TextClassifier(class_weight=given).fit(pairs, [3, 7])
    assert [words[-3:-1] for words in commands] == [["--", "--class-weights"]] * 2
    assert commands[0][-1] == "balanced"
    assert json.loads(commands[1][-1]) == {"3": 1, "7": 2.5}
    with pytest.raises(TypeError, match=r"sample_weight.*class_weight="):
        TextClassifier().fit(pairs, [3, 7], sample_weight=[1, 2])
    with pytest.raises(UserError, match="class_weight"):
        TextRegressor(class_weight="balanced").fit(pairs, [3, 7])


@pytest.mark.long
def test_train_and_tables(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    texts, labels = examples(40)
    pd.DataFrame({"text": texts, "label": labels}).to_csv("reviews.csv", index=False)
    how = {"epochs": 1, "layers": 1, "device": "cpu", "no_baselines": True, "flags": SIZES}
    found = train("reviews.csv", seeds=(1, 2), **how)
    printed = capsys.readouterr().out
    assert "training examples" in printed
    assert found["best"]["seed"].tolist() == [1, 2]
    shown = re.findall(r"^random +[12] +finished +1 +[\d.]+ +1 +([\d.]+)", printed, flags=re.MULTILINE)
    assert found["best"]["test"].tolist() == pytest.approx([float(test) for test in shown], abs=0.01)
    pd.testing.assert_frame_equal(found["epochs"], tables("runs")["epochs"])
    valid = load_runs("runs").query("subset == 'test' and metric == 'accuracy'")["value"]
    assert found["epochs"]["mean"].tolist() == pytest.approx([valid.mean()])
    assert train("reviews.csv", method="tfidf", dry_run=True) == {}
    with pytest.raises(UserError, match="no-such"):
        train("no-such.csv")


SEVERAL = [["g"], [], ["g", "b"], ["b"]] * 15
KINDS_SMALL = {**SMALL, "epochs": 3, "lr": 1e-2}


def of_words(labels):
    """Texts whose words are the labels, among others."""
    return [f"un {' '.join(map(str, row))} livre {i}" for i, row in enumerate(labels)]


@pytest.mark.long
def test_several_labels_as_lists_or_indicators(tmp_path):
    texts = of_words(SEVERAL)
    classifier = TextClassifier(folder=tmp_path, **KINDS_SMALL).fit(texts, SEVERAL)
    assert classifier.classes_.tolist() == ["b", "g"]
    p = classifier.predict_proba(texts)
    labels = classifier._model().labels
    thresholds = [labels.thresholds[labels.classes.index(name)] for name in ("b", "g")]
    expected = [[name for name, has in zip("bg", row, strict=True) if has] for row in p >= thresholds]
    assert classifier.predict(texts) == expected
    wanted = [sorted(row) for row in SEVERAL]
    assert classifier.score(texts, SEVERAL) == np.mean(
        [a == b for a, b in zip(expected, wanted, strict=True)]
    )
    classifier.save(tmp_path / "saved")
    again = TextClassifier.load(tmp_path / "saved")
    assert again.predict(texts[:5]) == expected[:5]
    assert pickle.loads(pickle.dumps(classifier)).predict(texts[:5]) == expected[:5]
    assert TextClassifier.from_pretrained(classifier._best_run()).predict(texts[:5]) == expected[:5]
    with pytest.raises(UserError, match="TextClassifier"):
        TextRegressor.load(tmp_path / "saved")
    matrix = np.array([["b" in row, "g" in row, False] for row in SEVERAL], dtype=int)
    other = TextClassifier(**KINDS_SMALL).fit(texts, matrix, X_valid=texts[:4], y_valid=matrix[:4])
    assert other.classes_.tolist() == [0, 1, 2]
    found = other.predict(texts)
    assert found.shape == matrix.shape
    assert not found[:, 2].any()
    assert (other.predict_proba(texts)[:, 2] == 0).all()
    assert other.score(texts, matrix) == (found == matrix).all(axis=1).mean()


@pytest.mark.long
def test_a_regressor(tmp_path):
    numbers = [len(row) * 100.0 + i % 7 for i, row in enumerate(SEVERAL)]
    texts = of_words(SEVERAL)
    regressor = TextRegressor(folder=tmp_path, seeds=(1, 2), **KINDS_SMALL)
    regressor.fit(texts, numbers)
    found = regressor.predict(texts)
    assert found.shape == (60,)
    assert regressor.score(texts, numbers) == pytest.approx(sk_metrics.r2_score(numbers, found))
    assert 0 < np.mean(found) < 200
    regressor.save(tmp_path / "saved")
    assert TextRegressor.load(tmp_path / "saved").predict(texts) == pytest.approx(found)
    best = regressor._best_run()
    assert best.name in ("seed1", "seed2")
    wanted = SentenceClassifier.from_run(best).probabilities(texts)[:, 0]
    assert TextRegressor.from_pretrained(best).predict(texts) == pytest.approx(wanted, abs=1e-4)
    with pytest.raises(UserError, match="TextRegressor"):
        TextClassifier.from_pretrained(best)


@pytest.mark.parametrize(
    "labels",
    [
        [[1, 0, 1], [0, 0, 0]], [(1.0, 0.0), (0.0, 0.0)], pd.Series([[True, False], [True, True]]),
        [[0], [1, 0], [1]], [{0, 1}, {1}], np.array([[1, 0], [1, 1]]),
        pd.DataFrame({"b": [1, 0], "a": [1, 1]}, dtype="boolean"),
    ],
)  # fmt: skip
def test_lists_of_zeros_and_ones_are_an_indicator_matrix_as_for_scikit_learn(labels):
    try:
        independent = type_of_target(list(labels) if isinstance(labels, pd.Series) else labels)
    except ValueError:  # it has no lists and sets of labels
        independent = LISTS
    form = _form(labels)
    assert (form == INDICATOR) == (independent == "multilabel-indicator")
    cells, _, classes = _cells(labels, "y", form)
    if form == INDICATOR:
        matrix = np.array(list(labels.to_numpy() if hasattr(labels, "to_numpy") else labels)).astype(int)
        assert cells == [sorted(map(str, classes[row == 1])) for row in matrix]


STRINGS = {
    **{name: functools.partial(pd.Series, dtype=name) for name in ("object", "str", "string", "category")},
    "Arrow's": functools.partial(pd.Series, dtype=pd.ArrowDtype(pyarrow.string())),
    "NumPy's": np.array,
    "NumPy's objects": functools.partial(np.array, dtype=object),
    "NumPy's of any length": functools.partial(np.array, dtype=np.dtypes.StringDType()),
    "index": pd.Index,
    "categorical": pd.Categorical,
    "tuple": tuple,
}


@pytest.mark.parametrize("kind", STRINGS)
def test_texts_and_labels_of_every_kind_of_strings(kind):
    texts, make = ["a b", "c", "a b"], STRINGS[kind]
    assert check_texts(make(texts)) == texts
    frame = pd.DataFrame({"one": make(texts), "two": make(texts[::-1])})
    assert (
        check_texts(frame) == check_texts(frame[["one", "two"]]) == list(zip(texts, texts[::-1], strict=True))
    )
    cells, _, classes = _cells(make(texts), "y", _form(make(texts)))
    assert (cells, list(map(str, classes))) == (texts, ["a b", "c"])


@pytest.mark.parametrize("kind", ["int8", "int64", "Int64", "int64[pyarrow]", "category"])
def test_labels_of_every_kind_of_integers(kind):
    labels = pd.Series([2, 10, 2], dtype=kind)
    cells, _, classes = _cells(labels, "y", _form(labels))
    assert (cells, classes.tolist()) == (["2", "10", "2"], [2, 10])
