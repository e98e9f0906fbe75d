"""TF-IDF and logistic regression against scikit-learn, and reading the text folder."""

import random
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import cosine_similarity

from roberta_small.common.errors import UserError
from roberta_small.common.run import TFIDF
from roberta_small.eval.origin import RunCheckpoint
from roberta_small.eval.tfidf import WORDS, Tfidf, TfidfModel
from roberta_small.experiments.methods.linear import STRENGTHS, scores
from roberta_small.experiments.methods.tfidf.method import Features, read_folder
from roberta_small.experiments.methods.tfidf.model import fit, main, write_run

KINDS_OF_TEXTS = pytest.mark.parametrize("texts", [["good", "bad"], ["good", "bad", "mixed"]], indirect=True)


@KINDS_OF_TEXTS
@pytest.mark.parametrize("sublinear", [False, True])
def test_probabilities_equal_those_of_scikit_learn(texts, monkeypatch, sublinear):
    monkeypatch.setattr("roberta_small.experiments.methods.linear.STRENGTHS", (1.0,))
    splits, labels = read_folder(texts)
    train = splits["train"]
    train = replace(train, texts=[f"{text} {text}" for text in train.texts])
    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=sublinear)
    model = LogisticRegression(tol=1e-8, max_iter=5000).fit(words.fit_transform(train.texts), train.lines)
    wanted_NK = model.predict_proba(words.transform(splits["test"].texts))
    fitted = fit(splits | {"train": train}, labels, Features(sublinear=sublinear))
    found_NK = fitted.outputs(splits["test"].texts)
    columns = [labels.classes.index(name) for name in model.classes_]
    assert found_NK[:, columns] == pytest.approx(wanted_NK, abs=1e-5)


@KINDS_OF_TEXTS
def test_the_strength_is_selected_on_valid_and_is_the_smallest_on_a_tie(texts):
    splits, labels = read_folder(texts)
    fitted = fit(splits, labels, Features())
    assert tuple(fitted.linear.valid_scores) == STRENGTHS
    best = max(fitted.linear.valid_scores.values())
    assert fitted.linear.strength == min(
        c for c, accuracy in fitted.linear.valid_scores.items() if accuracy == best
    )
    predicted_N = fitted.outputs(splits["valid"].texts).argmax(axis=1)
    assert best == pytest.approx(100 * np.mean(predicted_N == splits["valid"].targets))
    # Without test, the choice is the same.
    again = fit({name: splits[name] for name in ("train", "valid")}, labels, Features())
    assert again.linear.strength == fitted.linear.strength
    assert again.linear.valid_scores == fitted.linear.valid_scores
    informative = fitted.most_informative(3)
    assert list(informative) == list(labels.classes)
    for ngrams in informative.values():
        weights = [weight for _, weight in ngrams]
        assert weights == sorted(weights, reverse=True)
        assert all(weight > 0 for weight in weights)
    assert {"captivant", "superbe", "émouvant"} & {ngram for ngram, _ in informative["good"]}
    assert {"ennuyeux", "plat", "raté"} & {ngram for ngram, _ in informative["bad"]}


def test_features_select_the_ngrams(texts, monkeypatch):
    monkeypatch.setattr("roberta_small.experiments.methods.linear.STRENGTHS", (1.0,))
    splits, labels = read_folder(texts)
    words = fit(splits, labels, Features((1, 1), 2)).vectorizer.get_feature_names_out()
    counts = Counter(word for text in splits["train"].texts for word in set(text.split()))
    assert set(words) == {word for word, count in counts.items() if count >= 2 and len(word) > 1}
    with pytest.raises(UserError, match="--min-df 1000"):
        fit(splits, labels, Features(min_df=1000))


@pytest.mark.parametrize("name", ["train.input0", "valid.label", "test.input0"])
def test_a_missing_file_is_an_error(texts, name):
    (texts / name).unlink()
    with pytest.raises(UserError, match=f"{re.escape(str(texts))}: .*{re.escape(name)}; "):
        read_folder(texts)


def append(path, line):
    path.write_text(path.read_text(encoding="utf-8") + line, encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "line"), [("test.label", "good\n"), ("valid.input0", "un livre\n"), ("train.label", "\n")]
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


def test_a_missing_folder_a_missing_second_text_and_a_single_class_are_errors(texts):
    with pytest.raises(UserError, match=re.escape(str(texts / "none"))):
        read_folder(texts / "none")
    (texts / "train.input1").write_text("second\n")
    with pytest.raises(UserError, match=r"missing valid\.input1"):
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


def accuracy(splits, labels):
    predicted_N = fit(splits, labels, Features()).outputs(splits["test"].texts).argmax(axis=1)
    return 100 * np.mean(predicted_N == splits["test"].targets)


def test_text_without_spaces_is_classified(tmp_path, monkeypatch):
    """Both classes have the same characters; the order of two of them makes the difference."""
    rng = random.Random(1)
    for split, size in (("train", 200), ("valid", 40), ("test", 100)):
        noise = ["".join(chr(rng.randrange(0x4E02, 0x4E60)) for _ in range(8)) for _ in range(size)]
        texts = [f"{some[:4]}{'一丁'[:: 1 - 2 * (i % 2)]}{some[4:]}\n" for i, some in enumerate(noise)]
        (tmp_path / f"{split}.input0").write_text("".join(texts))
        (tmp_path / f"{split}.label").write_text("neg\npos\n" * (size // 2))
    splits, labels = read_folder(tmp_path)
    wanted = accuracy(splits, labels)
    assert wanted > 95
    main([str(tmp_path), str(tmp_path / "run")])
    saved = TfidfModel(RunCheckpoint(tmp_path / "run" / TFIDF, None, None))
    logits = saved.network.logits(saved.text_input.encode(splits["test"].texts).rows)
    assert 100 * np.mean(logits.argmax(axis=1) == splits["test"].targets) == wanted
    monkeypatch.setattr("roberta_small.experiments.methods.tfidf.model.TOKENS", WORDS)
    assert accuracy(splits, labels) < 60
    with np.load(tmp_path / "run" / TFIDF) as found:
        np.savez(tmp_path / "old.npz", **{name: found[name] for name in found if name != "pattern"})
    assert Tfidf.read(tmp_path / "old.npz").pattern == WORDS  # of version 1


def test_of_pairs_the_similarity_decides(tmp_path):
    """Neither text alone says anything; the features equal those of scikit-learn."""
    rng = random.Random(1)
    for split, size in (("train", 200), ("valid", 40), ("test", 100)):
        first, second, labels = [], [], []
        for i in range(size):
            words = rng.sample([f"w{number:03}" for number in range(300)], 8)
            first.append(" ".join(words))
            shared = words[:6] if i % 2 else []
            second.append(" ".join([*shared, *(f"w{rng.randrange(300):03}" for _ in range(8 - len(shared)))]))
            labels.append(("other", "same")[i % 2])
        for name, lines in (("input0", first), ("input1", second), ("label", labels)):
            (tmp_path / f"{split}.{name}").write_text("".join(f"{line}\n" for line in lines))
    splits, labels = read_folder(tmp_path)
    fitted = fit(splits, labels, Features())
    test = splits["test"]
    assert scores(labels, test.targets, fitted.outputs(test.texts))["accuracy"] > 90
    ((best, _),) = fitted.most_informative(1)["same"]
    assert best == "cosine similarity"
    both = [fitted.vectorizer.transform(column).toarray() for column in zip(*test.texts, strict=True)]
    words = [" " not in ngram for ngram in fitted.vectorizer.get_feature_names_out()]
    cosines_N = np.diag(cosine_similarity(*(part[:, words] for part in both)))
    features_NV = np.hstack([*both, 10 * cosines_N[:, None]])
    wanted_N = features_NV @ fitted.linear.weights[0] + fitted.linear.bias
    write_run(tmp_path / "run", fitted, splits, Features())
    saved = TfidfModel(RunCheckpoint(tmp_path / "run" / TFIDF, None, None))
    assert saved.pairs
    logits_NK = saved.network.logits(saved.text_input.encode([*test.texts, ("", "")]).rows)[:-1]
    assert logits_NK[:, 1] - logits_NK[:, 0] == pytest.approx(wanted_N, abs=1e-9)
