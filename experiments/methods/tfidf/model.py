"""The process of a run of the method tfidf: fits TF-IDF features and logistic regression, and writes the run.

    python -m roberta_small.experiments.methods.tfidf.model TEXT RUN [options of the features]

It prints lines like those of fairseq-train, from which the launcher reads the scores.

N texts, V n-grams, K classes.
"""

from __future__ import annotations

import argparse
import copy
import json
import logging
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from roberta_small.common import predictions
from roberta_small.common.errors import UserError, report_errors
from roberta_small.common.files import atomic_write
from roberta_small.common.metrics import Scored, measure_confusion
from roberta_small.common.predictions import Prediction
from roberta_small.common.run import TENSORBOARD, TFIDF
from roberta_small.eval.tfidf import Tfidf
from roberta_small.experiments.methods.tfidf.method import (
    MODEL,
    STRENGTHS,
    Features,
    Split,
    Splits,
    add_features,
    features,
    read_folder,
)
from roberta_small.experiments.progress import LOG_FORMAT, LOG_TIME

TOLERANCE = 1e-6
"""scikit-learn's default of 1e-4 stops before the optimum if C is large."""
MAX_ITERATIONS = 5000
STEP = 1
"""The fit is logged as one step."""
MOST_INFORMATIVE = 50

Probabilities = NDArray[np.float64]


def vectorizer(features: Features) -> TfidfVectorizer:
    """The vectorizer; words are lower-cased and have at least two characters (scikit-learn's pattern).

    Weights are term frequency times ln((1 + N) / (1 + document frequency)) + 1, with L2 normalization.
    """
    return TfidfVectorizer(
        ngram_range=features.ngrams, min_df=features.min_df, sublinear_tf=features.sublinear, dtype=np.float64
    )


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

    def export(self, features: Features) -> Tfidf:
        """The classifier as a file."""
        words = self.vectorizer
        return Tfidf(
            ngrams=words.get_feature_names_out().tolist(),
            idf=words.idf_,
            weights=self.classifier.coef_,
            bias=self.classifier.intercept_,
            classes=[str(name) for name in self.classifier.classes_],
            sizes=features.ngrams,
            sublinear=features.sublinear,
        )

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
    words = vectorizer(features)
    try:
        train_NV = words.fit_transform(splits.train.texts)
    except ValueError as error:
        raise UserError(
            f"{' '.join(features.words())}: no n-gram remains ({error}); lower --min-df"
        ) from None
    valid_NV = words.transform(splits.valid.texts)
    accuracy, classifiers = {}, {}
    # For many classes, Newton's method from the solution of the strength before is seven times faster.
    how: dict[str, Any] = {"solver": "newton-cg", "warm_start": True} if len(splits.classes) > 2 else {}
    classifier = LogisticRegression(tol=TOLERANCE, max_iter=MAX_ITERATIONS, **how)
    for strength in STRENGTHS:
        classifier.set_params(C=strength).fit(train_NV, splits.train.labels)
        classifiers[strength] = copy.deepcopy(classifier)
        probabilities_NK = _in_order(classifier, valid_NV, splits.classes)
        accuracy[strength] = scores(probabilities_NK, splits.valid, splits.classes)["accuracy"]
    best = max(STRENGTHS, key=lambda strength: (accuracy[strength], -strength))
    return Fitted(words, classifiers[best], splits.classes, best, accuracy)


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


def write_run(folder: Path, fitted: Fitted, splits: Splits, features: Features) -> None:
    """Write event files, predictions and the classifier into a run folder, and log the scores."""
    for name, split in splits.items():
        probabilities_NK = fitted.probabilities(split.texts)
        found = scores(probabilities_NK, split, fitted.classes)
        _write_events(folder / TENSORBOARD / name, found)
        prefix = "" if name == "train" else f"{name}_"
        record = {"epoch": 1} | {f"{prefix}{key}": f"{value:.6g}" for key, value in found.items()}
        logging.getLogger(name).info(json.dumps(record | {f"{prefix}num_updates": str(STEP)}))
        if name != "train":
            rows = _predictions(probabilities_NK, split, fitted.classes)
            predictions.write(folder / predictions.file_name(name), rows)
    atomic_write(folder / MODEL, _model(fitted))
    fitted.export(features).write(folder / TFIDF)


def _write_events(folder: Path, values: dict[str, float]) -> None:
    writer = EventFileWriter(str(folder))
    summary = Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()])
    writer.add_event(Event(wall_time=time.time(), step=STEP, summary=summary))
    writer.close()


def _predictions(probabilities_NK: Probabilities, split: Split, classes: list[str]) -> list[Prediction]:
    return [
        Prediction(index, label, dict(zip(classes, row, strict=True)))
        for index, (label, row) in enumerate(zip(split.labels, probabilities_NK.tolist(), strict=True))
    ]


def _model(fitted: Fitted) -> str:
    content: dict[str, Any] = {
        "C": fitted.strength,
        "valid_accuracy": [{"C": c, "accuracy": x} for c, x in fitted.valid_accuracy.items()],
        "ngrams": len(fitted.vectorizer.vocabulary_),
        "telling": {
            name: [{"ngram": ngram, "weight": weight} for ngram, weight in ngrams]
            for name, ngrams in fitted.most_informative(MOST_INFORMATIVE).items()
        },
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


@report_errors
def main(words: Sequence[str] | None = None) -> None:
    """Fit and write one run."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("text", type=Path)
    parser.add_argument("run", type=Path)
    add_features(parser)
    options = parser.parse_args(words)
    logging.basicConfig(format=LOG_FORMAT, datefmt=LOG_TIME, level=logging.INFO, stream=sys.stdout)
    splits = read_folder(options.text)
    chosen = features(options)
    fitted = fit(splits, chosen)
    for strength, accuracy in fitted.valid_accuracy.items():
        print(f"C {strength:<8.3g} valid accuracy {accuracy:.2f}{'  chosen' * (strength == fitted.strength)}")
    write_run(options.run, fitted, splits, chosen)


if __name__ == "__main__":
    sys.exit(main())
