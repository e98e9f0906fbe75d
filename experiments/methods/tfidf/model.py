"""TF-IDF features of word n-grams, and logistic regression.

N texts, V n-grams, K classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from tqdm import tqdm

from roberta_small.common.errors import UserError
from roberta_small.common.metrics import Scored, measure_confusion
from roberta_small.preprocess.labels import check_line_counts, class_names, label_dictionary, read_labels
from roberta_small.preprocess.readers.lines import read_text_lines

SPLITS = ("train", "valid", "test")
STRENGTHS = tuple(10 ** (half / 2) for half in range(-4, 9))
"""C, the inverse strength of the L2 penalty: 0.01 to 10,000."""
TOLERANCE = 1e-6
"""scikit-learn's default of 1e-4 stops before the optimum if C is large."""
MAX_ITERATIONS = 5000

Probabilities = NDArray[np.float64]


@dataclass(frozen=True)
class Split:
    """The examples of one split, line by line."""

    texts: list[str]
    labels: list[str]


@dataclass(frozen=True)
class Splits:
    """The three splits; `classes` are those of train, in the order of the label dictionary."""

    train: Split
    valid: Split
    test: Split
    classes: list[str]

    def items(self) -> list[tuple[str, Split]]:
        """Each split with its name."""
        return [(name, getattr(self, name)) for name in SPLITS]


@dataclass(frozen=True)
class Features:
    """Selection and weighting of n-grams."""

    ngrams: tuple[int, int] = (1, 2)
    """Minimum and maximum number of words of an n-gram."""
    min_df: int = 1
    """N-grams that occur in fewer training texts are ignored."""
    sublinear: bool = False
    """Whether n occurrences in a text count as 1 + log(n)."""

    def vectorizer(self) -> TfidfVectorizer:
        """The vectorizer; words are lower-cased and have at least two characters (scikit-learn's pattern).

        Weights are term frequency times ln((1 + N) / (1 + document frequency)) + 1, with L2 normalization.
        """
        return TfidfVectorizer(
            ngram_range=self.ngrams, min_df=self.min_df, sublinear_tf=self.sublinear, dtype=np.float64
        )

    def words(self) -> list[str]:
        """The features as command-line words."""
        flags = ["--ngrams", *map(str, self.ngrams), "--min-df", str(self.min_df)]
        return [*flags, *(["--sublinear"] if self.sublinear else [])]


@dataclass(frozen=True)
class Fitted:
    """A classifier fitted on train, with C selected on valid."""

    vectorizer: TfidfVectorizer
    classifier: LogisticRegression
    classes: list[str]
    strength: float
    valid_accuracy: dict[float, float]
    """Accuracy in percent for each of `STRENGTHS`."""

    def probabilities(self, texts: Sequence[str]) -> Probabilities:
        """Probabilities (N, K), with the classes in the order of `classes`."""
        return _in_order(self.classifier, self.vectorizer.transform(texts), self.classes)

    def most_informative(self, most: int) -> dict[str, list[tuple[str, float]]]:
        """For each class up to `most` n-grams with the largest positive weights, with these weights."""
        ngrams_V = self.vectorizer.get_feature_names_out()
        weights_KV = self.classifier.coef_
        if len(weights_KV) == 1:  # two classes share one row: positive weights favor the second class
            weights_KV = np.concatenate([-weights_KV, weights_KV])
        row_of = {name: row for row, name in enumerate(self.classifier.classes_)}
        return {name: _largest(ngrams_V, weights_KV[row_of[name]], most) for name in self.classes}


def fit(splits: Splits, features: Features) -> Fitted:
    """Fit on train for each of `STRENGTHS` and select by accuracy on valid; the smallest C on a tie.

    Raises `UserError` if no n-gram is left.
    """
    vectorizer = features.vectorizer()
    try:
        train_NV = vectorizer.fit_transform(splits.train.texts)
    except ValueError as error:
        raise UserError(
            f"{' '.join(features.words())}: no n-gram remains ({error}); lower --min-df"
        ) from None
    valid_NV = vectorizer.transform(splits.valid.texts)
    accuracy, classifiers = {}, {}
    for strength in tqdm(STRENGTHS, desc="fitting", delay=1, leave=False):
        classifier = LogisticRegression(C=strength, tol=TOLERANCE, max_iter=MAX_ITERATIONS)
        classifiers[strength] = classifier.fit(train_NV, splits.train.labels)
        probabilities_NK = _in_order(classifier, valid_NV, splits.classes)
        accuracy[strength] = scores(probabilities_NK, splits.valid, splits.classes)["accuracy"]
    best = max(STRENGTHS, key=lambda strength: (accuracy[strength], -strength))
    return Fitted(vectorizer, classifiers[best], splits.classes, best, accuracy)


def scores(probabilities_NK: Probabilities, split: Split, classes: Sequence[str]) -> dict[str, float]:
    """The metrics of a training log: every registered metric of a confusion matrix, and the loss in bits."""
    labels = np.asarray([list(classes).index(name) for name in split.labels])
    matrix_KK = Scored(labels, probabilities_NK).confusion(np.ones((1, len(labels))))[0]
    names = sorted(classes)  # the column order of log_loss
    columns = [list(classes).index(name) for name in names]
    return {
        **measure_confusion(matrix_KK),
        "loss": float(log_loss(np.asarray(split.labels), probabilities_NK[:, columns], labels=names))
        / np.log(2),
    }


def _in_order(classifier: LogisticRegression, x_NV: object, classes: Sequence[str]) -> Probabilities:
    known = list(classifier.classes_)
    return classifier.predict_proba(x_NV)[:, [known.index(name) for name in classes]]


def _largest(ngrams_V: NDArray, weights_V: NDArray[np.float64], most: int) -> list[tuple[str, float]]:
    largest = np.argsort(-weights_V, kind="stable")[:most]
    return [(str(ngrams_V[i]), float(weights_V[i])) for i in largest if weights_V[i] > 0]


def file_names() -> list[str]:
    """Names of the files that `read_folder` reads."""
    return [f"{split}.{kind}" for split in SPLITS for kind in ("input0", "label")]


def read_folder(folder: Path) -> Splits:
    """Read train, valid and test.

    Raises `UserError` if a file is missing, if texts and labels differ in their number of lines, if there are
    sentence pairs or only one class, and if a class of valid or test does not occur in train.
    """
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; create it with python -m preprocess split (or sample)")
    missing = [name for name in file_names() if not (folder / name).is_file()]
    if missing:
        raise UserError(
            f"{folder}: missing {', '.join(missing)}; create the folder with python -m preprocess split, "
            "with --test-text and --test-label"
        )
    if (folder / "train.input1").exists():
        raise UserError(f"{folder}: contains sentence pairs (train.input1); method tfidf reads single texts")
    splits = {name: _read_split(folder, name) for name in SPLITS}
    classes = class_names(label_dictionary(str(folder / "train.label")))
    if len(classes) < 2:
        raise UserError(
            f"{folder / 'train.label'}: every label is {classes[0]}; a classifier needs at least two classes"
        )
    for name in ("valid", "test"):
        _check_classes(folder, name, splits[name].labels, classes)
    return Splits(**splits, classes=classes)


def _read_split(folder: Path, name: str) -> Split:
    text_path, label_path = str(folder / f"{name}.input0"), str(folder / f"{name}.label")
    split = Split(list(read_text_lines(text_path)), list(read_labels(label_path)))
    check_line_counts(text_path, len(split.texts), label_path, len(split.labels))
    return split


def _check_classes(folder: Path, name: str, labels: list[str], classes: list[str]) -> None:
    for number, label in enumerate(labels, start=1):
        if label not in classes:
            raise UserError(
                f"{folder / f'{name}.label'}, line {number}: class '{label}' does not occur in train.label, "
                f"which has: {', '.join(classes)}"
            )
